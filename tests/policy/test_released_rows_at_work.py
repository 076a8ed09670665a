"""Released rows are counted by one of several workers, and who must know of missing ones is told."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from calve.app.destination import parse_table
from calve.app.doctor import released
from calve.app.pages.attention import attention
from calve.app.policies import guard
from calve.app.policies.guard import count_released, standing, tick
from calve.app.wiring import App
from calve.iceberg.publish.marks import RELEASED_TAG
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.metrics.collector import StoreFacts
from calve.model.errors import UnavailableError
from calve.model.process import ProcessQuery
from calve.model.states import ReleaseState
from calve.model.tier import Release
from support.local_runner import LocalRunner
from support.place import Place, kept_place

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("guard"), runner) as place:
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
            "INSERT INTO db.events SELECT number, '2024-01-10' FROM numbers(100)",
            "INSERT INTO db.events SELECT number, '2024-02-10' FROM numbers(50)",
        )
        yield place


@pytest.fixture
def app(kept: Place) -> Iterator[App]:
    with kept.app() as app:
        yield app


@pytest.fixture
def lake(kept: Place, app: App) -> str:
    """A lake table of the test's own; its partition 202401 was released."""
    to = f"lake.ns.t{next(_NUMBERS)}"
    kept.export("db.events", to=to)
    table = app.catalog("lake").load_table(to.removeprefix("lake."))
    [key] = [
        name.removeprefix("calve.export.")
        for name, text in table.properties.items()
        if name.startswith("calve.export.") and '"202401"' in text
    ]
    mark = ReleaseMark(
        process="release1", store="s", attempt=1, rows=100, sums="", place="", input=("", "202401", "")
    )
    marked = ReleasedTable(
        catalog=app.catalog("lake"), identifier=tuple(to.split(".")[1:]), uuid=str(table.metadata.table_uuid)
    )
    marked.mark("release1", {key: mark}, str(table.metadata.current_snapshot_id))
    return to


def _table(app: App, lake: str):  # type: ignore[no-untyped-def]
    return app.catalog("lake").load_table(lake.removeprefix("lake."))


def _seen(app: App, lake: str) -> guard.GuardSeen:
    return next(one for one in standing(app) if one.destination == lake)


def test_one_of_several_workers_counts_a_table_that_is_due(kept: Place, app: App, lake: str) -> None:
    with kept.app() as other:
        assert lake in tick(app)
        assert lake not in tick(other)
        assert lake not in tick(app)
    seen = _seen(app, lake)
    assert (seen.missing, seen.summary["rows"], seen.summary["unread"]) == (0, 100, 0)


def test_missing_rows_are_told_with_what_puts_them_back(app: App, lake: str) -> None:
    count_released(app, lake)
    proven = _table(app, lake).metadata.refs[RELEASED_TAG].snapshot_id
    _table(app, lake).delete("day < '2024-02-01'")
    found = count_released(app, lake)
    assert found is not None
    assert found["missing"] == 100
    assert any(
        f"rollback_to_snapshot('{lake.removeprefix('lake.')}', {proven})" in way for way in found["repair"]
    )
    assert _table(app, lake).metadata.refs[RELEASED_TAG].snapshot_id == proven
    [card] = [one for one in attention(app, app.overview)["cards"] if one["destination"] == lake]
    assert (card["kind"], card["urgency"], card["code"]) == (
        "released_rows_missing",
        1,
        "released_rows_missing",
    )
    [finding] = [one for one in released.counts(app) if lake in one.part]
    assert not finding.ok and "rollback_to_snapshot" in finding.remedy
    facts = StoreFacts(lambda: app.registry, lease_seconds=30.0, wait_seconds=30.0)
    told = {family.name: family for family in facts.collect()}["calve_released_rows_missing"]
    facts.close()
    assert {one.labels["table"]: one.value for one in told.samples}[lake] == 100
    _table(app, lake).manage_snapshots().set_current_snapshot(proven).commit()
    assert (count_released(app, lake) or {})["missing"] == 0


def test_a_count_that_fails_keeps_the_last_one_and_says_why(
    app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick(app)

    def unavailable(*_: object) -> None:
        raise UnavailableError("the catalog is away", code="catalog_unavailable")

    monkeypatch.setattr(guard, "count_released", unavailable)
    app.config = replace(app.config, limits=replace(app.limits, guard_hours=0.0))
    assert lake not in tick(app)
    seen = _seen(app, lake)
    assert (seen.error, seen.summary["rows"]) == ("the catalog is away", 100)
    [finding] = [one for one in released.counts(app) if lake in one.part]
    assert finding.warning and "the catalog is away" in finding.words


def test_a_warehouse_in_a_folder_is_said_to_keep_nothing(app: App, lake: str) -> None:
    count_released(app, lake)
    [finding] = [one for one in released.buckets(app) if lake in one.part]
    assert finding.warning and "keeps nothing that is deleted" in finding.words


def test_while_the_parts_are_at_the_source_the_first_way_back_is_to_undo_the_release(
    app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = app.store.processes(ProcessQuery(destination=lake, limit=1))[0]
    [identity] = {one.input[0] for one in app.destination(parse_table(lake, app.config)).find().exports()}  # type: ignore[union-attr]
    held = Release(
        process_id=export.id,
        identity=identity,
        partition="202401",
        destination=lake,
        attempt=1,
        state=ReleaseState.QUARANTINED,
    )
    monkeypatch.setattr(app.store, "releases", lambda *_: [held])
    _table(app, lake).delete("day < '2024-02-01'")
    found = count_released(app, lake)
    assert found is not None
    assert (
        found["repair"][0] == "calve policy undo 'main:db.events' 202401: its parts are still at the source"
    )
