"""Released rows are counted by one of several workers, and who must know of missing ones is told."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from calve.app.destination import parse_table
from calve.app.doctor import releases
from calve.app.pages.attention import attention
from calve.app.policies import approvals, guard
from calve.app.policies.guard import count_released, standing, tick
from calve.app.wiring import App
from calve.iceberg.publish.marks import RELEASED_TAG
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.metrics.collector import StoreFacts
from calve.model.errors import UnavailableError
from calve.model.process import ProcessQuery
from calve.model.seen import RELEASED, Sighting
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
    [finding] = [one for one in releases.counts(app) if lake in one.part]
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
    [finding] = [one for one in releases.counts(app) if lake in one.part]
    assert finding.warning and "the catalog is away" in finding.words


DAMAGED = [
    "{",
    "5",
    "[1]",
    '[["p"]]',
    '[["p", [1], null]]',
    '[["p", ["k"], 5]]',
    '[["p", [], {"at": "x"}]]',
    "[" * 100_000,
]


def test_T10_heirs_and_checks_that_cannot_be_read_are_not_known_and_end_no_count(app: App, lake: str) -> None:
    tick(app)
    kept = app.registry.sighting_body(lake, RELEASED)
    damaged = Sighting(subject=lake, what=RELEASED, summary='{"keys": 1, "missing": "x", "faults": 5}')
    app.registry.put_sighting(damaged, [*DAMAGED, *kept])
    assert (_seen(app, lake).missing, _seen(app, lake).why) == (0, "")
    found = count_released(app, lake)
    assert found is not None and (found["missing"], found["rows"], found["unread"]) == (0, 100, 0)


def test_T10_a_note_of_what_waits_that_cannot_be_read_is_passed_over(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = SimpleNamespace(name="events", hash="h1", releases=True)
    registry = app.registry
    monkeypatch.setattr(app, "config", SimpleNamespace(policies=[policy]))
    one = {"policy": "events", "hash": "h1", "identity": "i", "destination": "lake.ns.t", "rows": 5}
    noted = {
        "[" * 100_000: 0, "{": 0, "[5]": 0, "[{}]": 0, '[{"policy": "other"}]': 0,
        json.dumps([{"policy": "other", "hash": "h", "identity": "i", "destination": "d"}, one | {"more": 1}]): 1,
    }  # fmt: skip
    for summary, waiting in noted.items():
        registry.put_sighting(Sighting(subject="events", what=approvals.WHAT, summary=summary))
        assert [found.rows for found in approvals.waiting(app)] == [5] * waiting, summary[:20]


def test_a_warehouse_in_a_folder_is_said_to_keep_nothing(app: App, lake: str) -> None:
    count_released(app, lake)
    [finding] = [one for one in releases.buckets(app) if lake in one.part]
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
