"""What an export that did not complete leaves: adopted by a retry, or undone, never both (D3)."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from programs import DESTINATION, PARTS, ROWS, SHORT, TABLE, create
from pyiceberg.catalog.sql import SqlCatalog

from calve.app.doctor import work
from calve.app.doctor.work import leftovers
from calve.app.wiring import App
from calve.control.client import retry
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import LockedError
from calve.model.process import Process, ProcessId
from calve.model.states import Leftovers, ProcessState
from support.local_runner import LocalRunner
from support.place import Place, kept_place


class Stumbling(LocalRunner):
    """One task fails, as often as it is tried, for as long as it stumbles."""

    fails: int | None = PARTS - 1

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        super().run(group, [self._spoilt(order) for order in orders], on_result)

    def _spoilt(self, order: TaskOrder) -> TaskOrder:
        if order.number != self.fails:
            return order
        return replace(order, function="support.tasks:explode")


@pytest.fixture
def runner() -> Iterator[Stumbling]:
    runner = Stumbling()
    yield runner
    runner.close()


@pytest.fixture
def place(tmp_path: Path, runner: Stumbling) -> Iterator[Place]:
    # One slot and one attempt: the tasks before the one that fails are done by then.
    once = {"CALVE_LIMITS__TASK_ATTEMPTS": "1", "CALVE_LIMITS__SLOTS": "1"}
    with kept_place(tmp_path, runner, **SHORT | once) as place:
        create(place)
        yield place


def an_hour_later(place: Place) -> None:
    """No attempt that lost can write any more."""
    with closing(sqlite3.connect(place.folder / "calve.db", isolation_level=None, timeout=60)) as database:
        database.execute(
            "UPDATE processes SET finished_at = finished_at - 3700000000, cleanup_at = cleanup_at - 3700000000"
        )


def failed_export(place: Place) -> Process:
    (failed,) = place.export(TABLE, to=DESTINATION)
    assert (failed.state, failed.leftovers) == (ProcessState.FAILED, Leftovers.KEPT)
    assert (failed.tasks.done, failed.tasks.failed) == (PARTS - 1, 1)
    an_hour_later(place)
    return failed


def data_files(place: Place) -> list[str]:
    return sorted(path.name for path in (place.folder / "lake" / "warehouse").rglob("*.parquet"))


def work_until(app: App, condition: Callable[[Process], bool], process_id: ProcessId) -> Process:
    app.worker().run(until=lambda: condition(app.store.process(process_id)))
    return app.store.process(process_id)


def test_T2_D3_a_retry_publishes_the_files_of_the_process_it_retries_and_undo_leaves_them(
    place: Place, runner: Stumbling
) -> None:
    failed = failed_export(place)
    written = data_files(place)
    assert len(written) == PARTS - 1 and all(failed.id in name for name in written)
    runner.fails = None
    with place.app() as app:
        again = retry(app.store, failed.id).process
        assert (again.retry_of, again.adopted) == (failed.id, True)
        (done,) = place.finish(app, [again.id])
        assert (done.state, done.rows) == (ProcessState.COMPLETED, ROWS)
        assert [task.attempt for task in app.store.tasks(done.id)] == [0] * (PARTS - 1) + [1]
        # The old process gets its leftovers back, looks afresh, and finds them published.
        old = work_until(app, lambda row: row.leftovers is Leftovers.GONE, failed.id)
        told = {event.name: event.message for event in app.store.events(old.id)}
        assert not [finding for finding in leftovers(app) if not finding.ok], "nothing for a person to do"
    assert told["leftovers_handed_back"].startswith(
        f"retry {done.id} is done; what it published of them stays"
    )
    assert told["undone"] == "nothing of it is left to delete"
    files = data_files(place)
    assert set(written) < set(files) and sum(done.id in name for name in files) == 1
    ids = place.table().scan(selected_fields=("id",)).to_arrow()["id"]
    assert (len(ids), len(ids.unique())) == (ROWS, ROWS)
    assert place.frozen == []


def test_T2_a_retry_on_other_cores_cuts_the_rows_as_the_plan_it_adopts_did(tmp_path: Path) -> None:
    """One part, cut for two cores: the half that was written is not written again by a worker with one."""
    two, one = {"CALVE_LIMITS__SLOTS": "2"}, {"CALVE_LIMITS__SLOTS": "1"}
    settings = {
        "CALVE_LIMITS__TASK_ATTEMPTS": "1",
        "CALVE_LIMITS__FILE_MB": "1",
        "CALVE_SPARK__MASTER": "local[2]",
    }
    runner = Stumbling(slots=1)  # one after the other: the first is done when the second fails
    place = Place(tmp_path, runner, **settings | two)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64, note String) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.events SELECT number, toString(sipHash64(number)) FROM numbers(100000)",
    )
    runner.fails = 1
    (failed,) = place.export(TABLE, to=DESTINATION)
    assert (failed.tasks.done, failed.tasks.failed) == (1, 1)
    runner.fails = None
    place.settings |= one
    with place.app() as app:
        (done,) = place.finish(app, [retry(app.store, failed.id).process.id])
        assert (done.state, done.rows) == (ProcessState.COMPLETED, 100_000)
        assert [task.attempt for task in app.store.tasks(done.id)] == [0, 1]
        (fresh,) = place.export(TABLE, to="lake.ns.fresh")
        assert fresh.tasks.total == 1, "a plan of its own is cut for the cores there are"
    runner.close()
    assert sorted(place.read().column("id").to_pylist()) == list(range(100_000))


def test_T2_a_catalog_that_lags_behind_the_retry_s_publish_costs_no_published_file(
    place: Place, runner: Stumbling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica or a cache: the undo of the first process does not see what its retry published."""
    failed = failed_export(place)
    before = place.table()
    runner.fails = None
    with place.app() as app:
        again = retry(app.store, failed.id).process
        place.finish(app, [again.id])
        with monkeypatch.context() as lagging:
            lagging.setattr(SqlCatalog, "load_table", lambda *_: before)
            work_until(app, lambda row: row.leftovers is Leftovers.GONE, failed.id)
    ids = place.table().scan(selected_fields=("id",)).to_arrow()["id"]
    assert (len(ids), len(ids.unique())) == (ROWS, ROWS)


class Once(Stumbling):
    """The last task fails once."""

    def _spoilt(self, order: TaskOrder) -> TaskOrder:
        return super()._spoilt(order) if order.attempt == 1 else order


def test_T13_doctor_finds_what_attempts_that_lost_have_left_and_nobody_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Once()
    place = Place(tmp_path, runner, **SHORT)
    create(place)
    (done,) = place.export(TABLE, to=DESTINATION)
    assert (done.state, done.leftovers) == (ProcessState.COMPLETED, Leftovers.KEPT)
    published = next((place.folder / "lake" / "warehouse").rglob(f"calve-{done.id}-*.parquet"))
    lost = published.with_name(f"calve-{done.id}-0-9-0.parquet")
    lost.write_bytes(b"late")
    with place.app() as app:
        assert list(leftovers(app)) == [], "it has time until no attempt can be alive"
        monkeypatch.setattr(work, "_OVERDUE", timedelta(days=-30))
        (finding,) = leftovers(app)
    assert not finding.ok and lost.name in finding.words
    assert finding.remedy == "calve worker"
    runner.close()


def test_D3_what_was_undone_is_not_adopted_and_the_retry_exports_it_all_again(
    tmp_path: Path, runner: Stumbling
) -> None:
    soon = {"CALVE_LIMITS__KEEP_FAILED_HOURS": "0.000001"}
    once = {"CALVE_LIMITS__TASK_ATTEMPTS": "1", "CALVE_LIMITS__SLOTS": "1"}
    place = Place(tmp_path, runner, **SHORT | once | soon)
    create(place)
    (failed,) = place.export(TABLE, to=DESTINATION)
    assert failed.state is ProcessState.FAILED
    an_hour_later(place)
    with place.app() as app:
        gone = work_until(app, lambda row: row.leftovers is Leftovers.GONE, failed.id)
        assert gone.state is ProcessState.FAILED
        assert data_files(place) == [], "nothing of it is left"
        runner.fails = None
        again = retry(app.store, failed.id).process
        assert not again.adopted
        (done,) = place.finish(app, [again.id])
        assert (done.state, done.rows) == (ProcessState.COMPLETED, ROWS)
        assert [task.attempt for task in app.store.tasks(done.id)] == [1] * PARTS
    assert place.read().num_rows == ROWS


def test_a_retry_does_not_adopt_what_has_changed_at_the_source(place: Place, runner: Stumbling) -> None:
    failed = failed_export(place)
    runner.fails = None
    place.execute(
        "ALTER TABLE db.events RESET SETTING max_bytes_to_merge_at_max_space_in_pool",
        "SYSTEM START MERGES db.events",
        "OPTIMIZE TABLE db.events FINAL SETTINGS optimize_throw_if_noop = 1",
    )
    with place.app() as app:
        (done,) = place.finish(app, [retry(app.store, failed.id).process.id])
        assert (done.state, done.rows) == (ProcessState.COMPLETED, ROWS)
        assert all(task.attempt == 1 for task in app.store.tasks(done.id)), "the parts are other parts now"
    ids = place.table().scan(selected_fields=("id",)).to_arrow()["id"]
    assert (len(ids), len(ids.unique())) == (ROWS, ROWS)


def test_T16_the_same_retry_again_joins_the_one_under_way_and_another_export_is_refused(place: Place) -> None:
    failed = failed_export(place)
    with place.app() as app:
        again = retry(app.store, failed.id).process
        joined = retry(app.store, failed.id)
        assert (joined.process.id, joined.joined) == (again.id, {again.id})
        with pytest.raises(LockedError, match=again.id):
            place.submit(app, TABLE, DESTINATION, force=True)
        assert app.store.process(failed.id).leftovers is Leftovers.ADOPTED
