"""Storage and catalogs that answer, but not with what was asked for: 500, 502, 503, 504, 429. That is an
outage wherever it is met (T14): it opens a breaker, uses no budget, and ends by itself. SeaweedFS and Apache's REST
catalog are real; a proxy answers some of the requests in their place."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rest_place import ROWS, rest_place

from calve.app.backups.requests import BackupReach
from calve.backup.submit import request_of, submit
from calve.control.why import why
from calve.model.errors import PermanentError
from calve.model.process import ProcessId
from calve.model.states import ProcessState, TaskState
from support.http_faults import HttpFaults, Of
from support.iceberg_rest import IcebergRest, apache_rest
from support.kept_source import KeptSource
from support.outage_place import PARTITIONS, PARTS, Executors, OutagePlace, behind, make_table, until
from support.s3 import S3Server

pytestmark = pytest.mark.services

BUSY = [(500, "InternalError"), (502, ""), (503, "SlowDown"), (504, ""), (429, "")]


def _every(_method: str, _path: str) -> bool:
    return True


def _metadata(_method: str, path: str) -> bool:
    return "/metadata/" in path and "/metadata/calve/" not in path


def _data(method: str, path: str) -> bool:
    """What executors write."""
    return "/data/" in path


def _writes(method: str, _path: str) -> bool:
    return method in ("PUT", "POST", "DELETE")


def _reads(method: str, _path: str) -> bool:
    return method in ("GET", "HEAD")


@pytest.fixture
def front(s3: S3Server) -> Iterator[HttpFaults]:
    with HttpFaults(s3.port) as front:
        yield front


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(*make_table("events", rows=ROWS))
        yield source


@pytest.fixture
def place(
    tmp_path: Path, runner: Executors, s3: S3Server, front: HttpFaults, source: KeptSource
) -> Iterator[OutagePlace]:
    place = OutagePlace(
        tmp_path, runner, behind(s3, front.port), source=source, CALVE_LIMITS__CALL_SECONDS="3"
    )
    yield place
    print(place.everything_told())
    place.close()


def ids_of(partitions: int) -> list[int]:
    return sorted(row for row in range(PARTS * ROWS) if row // ROWS % PARTITIONS < partitions)


@pytest.mark.parametrize(("status", "code"), BUSY, ids=str)
def test_T14_a_table_that_is_not_yet_made_waits_for_its_storage(
    place: OutagePlace, front: HttpFaults, status: int, code: str
) -> None:
    to = f"far.ns.new{status}"
    front.answer(status, code=code)
    with place.worker():
        ids = place.submit("events", to, "0")
        until(lambda: place.breakers() == ["catalog:far"], "the breaker to open")
        assert "has been down since" in why(place.app.store, place.rows(ids)[0])
        probes = place.app.store.breakers()[0].probes
        until(
            lambda: place.app.store.breakers()[0].probes > probes + 3,
            "more probes than tries would be allowed",
        )
        front.heal()
        ended = place.finish(ids)
    assert [process.state for process in ended] == [ProcessState.COMPLETED], place.told(ids[0])
    assert place.ids_in(to) == ids_of(1)
    used_no_budget(place, ids)


@pytest.mark.parametrize("of", [_metadata, _data, _writes, _reads], ids=lambda of: of.__name__.strip("_"))
@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "")], ids=str)
def test_T14_a_planned_export_waits_for_data_and_for_metadata(
    place: OutagePlace, runner: Executors, front: HttpFaults, of: Of, status: int, code: str
) -> None:
    to = "far.ns.made"
    with place.worker():
        place.finish(place.submit("events", to, "0"))
        with runner.holding():
            ids = place.submit("events", to, "1", "2")
            until(lambda: place.planned(ids), "the plans")
            front.answer(status, code=code, of=of)
        until(lambda: place.breakers() == ["catalog:far"] and runner.busy == 0, "the breaker to open")
        assert not place.ended(ids)
        front.heal()
        ended = place.finish(ids)
    assert {process.state for process in ended} == {ProcessState.COMPLETED}, place.told(ids[0])
    assert place.ids_in(to) == ids_of(3)
    used_no_budget(place, ids)


def test_T14_a_folder_of_plain_parquet_waits_too_and_the_log_says_so(
    place: OutagePlace, front: HttpFaults, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="calve")
    front.answer(503, code="SlowDown")
    with place.worker():
        ids = place.submit("events", "s3://far/plain/", "0")
        until(lambda: place.breakers() == ["storage:s3://far"], "the breaker to open")
        front.heal()
        [ended] = place.finish(ids)
    assert ended.state is ProcessState.COMPLETED, place.told(ids[0])
    used_no_budget(place, ids)
    assert "storage:s3://far is down: " in caplog.text and "storage:s3://far answers again" in caplog.text


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.mark.parametrize(
    ("status", "headers"), [(502, {}), (504, {}), (429, {"Retry-After": "2"}), (503, {"Retry-After": "2"})]
)
def test_T14_a_proxy_in_front_of_a_rest_catalog_that_fails_is_an_outage(
    tmp_path: Path,
    runner: Executors,
    rest: IcebergRest,
    source: KeptSource,
    status: int,
    headers: dict[str, str],
) -> None:
    to = f"rest.busy{status}.events"
    with HttpFaults(rest.port) as front:
        place = rest_place(tmp_path, runner, front.url, source=source)
        front.answer(status, headers=headers)
        with place.worker():
            ids = place.submit("events", to, "0")
            until(lambda: place.breakers() == ["catalog:rest"], "the breaker to open")
            sent = len(front.answered)
            probes = place.app.store.breakers()[0].probes
            until(lambda: place.app.store.breakers()[0].probes > probes + 2, "three more probes")
            if headers:  # every half a second, and the catalog asked for two
                assert len(front.answered) - sent <= 2, front.answered
            front.heal()
            [ended] = place.finish(ids)
        assert ended.state is ProcessState.COMPLETED, place.told(ids[0])
        assert place.ids_in(to) == ids_of(1)
        used_no_budget(place, ids)
        place.close()


def used_no_budget(place: OutagePlace, ids: list[ProcessId]) -> None:
    for process in place.rows(ids):
        assert process.plan_attempts <= 2
        for task in place.app.store.tasks(process.id):
            assert task.state is TaskState.DONE
            assert task.attempt - task.free_attempts <= 1


def test_T15_a_warehouse_in_a_missing_bucket_is_named_at_the_first_try(nowhere: OutagePlace) -> None:
    with nowhere.worker():
        [ended] = nowhere.finish(nowhere.submit("events", "far.ns.events", "0"))
    assert ended.state is ProcessState.FAILED and ended.error is not None
    assert ended.error.code == "bucket_missing", nowhere.told(ended.id)
    assert "nowhere" in ended.error.message and ended.error.hint
    assert ended.plan_attempts <= 1
    assert nowhere.breakers() == []


def test_T15_a_folder_in_a_missing_bucket_is_refused_when_it_is_asked_for(nowhere: OutagePlace) -> None:
    with pytest.raises(PermanentError) as told:
        nowhere.submit("events", "s3://nowhere/plain/", "0")
    assert told.value.code == "bucket_missing" and "s3://nowhere" in told.value.message
    assert nowhere.app.store.live() == []


def test_T15_a_backup_location_in_a_missing_bucket_is_refused_when_it_is_asked_for(
    nowhere: OutagePlace,
) -> None:
    nowhere.place.settings = nowhere.place.settings | {"CALVE_BACKUP__URL": "s3://nowhere/backups"}
    nowhere.reopen()
    with pytest.raises(PermanentError) as told:
        reach = BackupReach(nowhere.app)
        submit(reach, nowhere.app.store, request_of(reach, "b1", "main", ("db.events",)))
    assert told.value.code == "bucket_missing" and "s3://nowhere" in told.value.message
    assert nowhere.app.store.live() == []


@pytest.fixture
def nowhere(tmp_path: Path, runner: Executors, s3: S3Server, source: KeptSource) -> Iterator[OutagePlace]:
    """A place whose bucket nobody made."""
    place = OutagePlace(tmp_path, runner, s3.properties(), source=source)
    config = place.place.folder / "calve.toml"
    config.write_text(config.read_text().replace("s3://far", "s3://nowhere"))
    place.reopen()
    yield place
    place.close()
