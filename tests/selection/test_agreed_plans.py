"""`--plan HASH`: what runs is the plan that was shown, or nothing."""

from typing import Any

import pytest

from calve.app.exports import preview_json
from calve.control.client import retry
from calve.export.request import ExportRequest
from calve.export.survey import plan_hash
from calve.model.errors import RefusedError, UsageError
from calve.model.process import Process, ProcessQuery
from calve.model.states import ProcessState
from support.place import Place

ROWS = "INSERT INTO db.{} SELECT number, toDate('2024-0{}-01') + number % 28, 'x' FROM numbers(50)"


def made(place: Place, name: str, *, engine: str = "MergeTree") -> str:
    """A table of two months and two parts each; its name."""
    place.execute(
        f"CREATE TABLE db.{name} (id UInt64, day Date, note String) ENGINE = {engine}"
        " PARTITION BY toYYYYMM(day) ORDER BY id",
        *(ROWS.format(name, month) for month in (1, 2) for _ in range(2)),
    )
    return f"db.{name}"


def shown(place: Place, table: str, to: str, **asked: Any) -> str:
    with place.app() as app:
        return plan_hash(place.check(app, table, to, **asked))


def queued(place: Place, to: str) -> list[Process]:
    with place.app() as app:
        return app.store.processes(ProcessQuery(destination=to))


def requests(processes: list[Process]) -> list[ExportRequest]:
    return [ExportRequest.from_json(one.request) for one in processes]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("plain", {}),
        ("cast", {"casts": {"id": "string"}, "exclude": ("note",)}),
        ("filtered", {"where": "id<10"}),
        ("spec", {"partition_by": "bucket(4, id)", "codec": "snappy"}),
        ("forced", {"force": True}),
    ],
)
def test_the_plan_that_was_agreed_to_is_performed(place: Place, name: str, asked: dict[str, Any]) -> None:
    table, to = made(place, f"agreed_{name}"), f"lake.ns.agreed_{name}"
    agreed = shown(place, table, to, **asked)
    ended = place.export(table, to=to, plan_hash=agreed, **asked)
    # The first of them made the destination, and the others were agreed to as if it were new.
    assert [one.state for one in ended] == [ProcessState.COMPLETED] * 2, [one.error for one in ended]
    hashes = {one.plan_hash for one in requests(queued(place, to))}
    assert len(hashes) == 2 and agreed not in hashes, "each holds its own share of the plan"
    assert place.read(to).num_rows == (40 if name == "filtered" else 200)


def test_a_destination_that_exists_and_is_changed_by_the_plan_is_agreed_to_as_it_will_be(
    place: Place,
) -> None:
    table, to = made(place, "agreed_evolving"), "lake.ns.agreed_evolving"
    place.export(table, "202401", to=to)
    place.execute("ALTER TABLE db.agreed_evolving ADD COLUMN more UInt32")
    place.execute(
        "INSERT INTO db.agreed_evolving SELECT number, toDate('2024-03-01'), 'x', 1 FROM numbers(50)",
    )
    asked: dict[str, Any] = {"evolve": True}
    agreed = shown(place, table, to, partitions=("202402", "202403"), **asked)
    ended = place.export(table, "202402", "202403", to=to, plan_hash=agreed, **asked)
    assert [one.state for one in ended] == [ProcessState.COMPLETED] * 2, [one.error for one in ended]


def test_plain_parquet_and_parts_are_agreed_to_as_well(place: Place) -> None:
    table = made(place, "agreed_files")
    to = (place.folder / "agreed_files").as_uri()
    [one] = place.export(table, "202401", to=to, plan_hash=shown(place, table, to, partitions=("202401",)))
    assert one.state is ProcessState.COMPLETED, one.error
    parts = ("202402_3_3_0",)
    agreed = shown(place, table, "lake.ns.agreed_parts", parts=parts)
    [one] = place.export(table, to="lake.ns.agreed_parts", parts=parts, plan_hash=agreed)
    assert (one.state, one.rows) == (ProcessState.COMPLETED, 50), one.error


def test_a_merge_changes_no_plan(place: Place) -> None:
    table, to = made(place, "agreed_merged"), "lake.ns.agreed_merged"
    agreed = shown(place, table, to)
    place.execute("OPTIMIZE TABLE db.agreed_merged PARTITION 202401 FINAL")
    with place.app() as app:
        ids = place.submit(app, table, to, plan_hash=agreed)
        place.execute("OPTIMIZE TABLE db.agreed_merged PARTITION 202402 FINAL")
        assert [one.state for one in place.finish(app, ids)] == [ProcessState.COMPLETED] * 2


@pytest.mark.parametrize(
    ("change", "other", "named"),
    [
        (ROWS.format("agreed_rows", 1), {}, "the rows at the source"),
        ("ALTER TABLE db.agreed_rows DROP PARTITION 202402", {}, "the rows at the source"),
        ("ALTER TABLE db.agreed_rows ADD COLUMN more UInt8", {}, "its columns"),
        ("SELECT 1", {"where": "id < 5"}, "the options"),
        ("SELECT 1", {"partition_by": "day(day)"}, "the destination"),
        ("SELECT 1", {"plan_hash": "p1-3f9a"}, "not a hash"),
    ],
)
def test_another_plan_is_refused_before_anything_is_queued(
    place: Place, change: str, other: dict[str, Any], named: str
) -> None:
    table, to = made(place, "agreed_rows"), "lake.ns.agreed_rows"
    try:
        asked = {"plan_hash": shown(place, table, to)} | other
        place.execute(change)
        with place.app() as app, pytest.raises(RefusedError, match=named) as refused:
            place.submit(app, table, to, **asked)
        assert refused.value.code == "plan_changed"
        assert queued(place, to) == []
    finally:
        place.execute("DROP TABLE db.agreed_rows SYNC")


def test_rows_that_come_before_the_pin_end_it_and_nothing_is_written(place: Place) -> None:
    table, to = made(place, "agreed_late"), "lake.late.agreed"
    agreed = shown(place, table, to)
    with place.app() as app:
        ids = place.submit(app, table, to, plan_hash=agreed)
        place.execute(ROWS.format("agreed_late", 1))
        ended = {one.partitions: one for one in place.finish(app, ids)}
        late, fine = ended["202401",], ended["202402",]
        assert late.state is ProcessState.FAILED and late.error is not None
        assert (late.error.code, late.error.retryable) == ("plan_changed", False)
        assert "the rows at the source" in late.error.message
        assert fine.state is ProcessState.COMPLETED, "of its own partition nothing changed"
        assert app.store.plan(late.id) is None
    assert place.frozen == []
    assert place.read(to).num_rows == 100


def test_a_refused_plan_has_made_no_destination(place: Place) -> None:
    table, to = made(place, "agreed_alone"), "lake.alone.agreed"
    with place.app() as app:
        ids = place.submit(
            app, table, to, partitions=("202401",), plan_hash=shown(place, table, to, partitions=("202401",))
        )
        place.execute(ROWS.format("agreed_alone", 1))
        [ended] = place.finish(app, ids)
        assert ended.state is ProcessState.FAILED
        assert ("alone",) not in app.catalog("lake").list_namespaces()


def test_a_destination_that_was_made_anew_is_another(place: Place) -> None:
    table, to = made(place, "agreed_anew"), "lake.ns.agreed_anew"
    place.export(table, "202401", to=to)
    agreed = shown(place, table, to)
    with place.app() as app:
        app.catalog("lake").drop_table("ns.agreed_anew")
    place.export(table, "202401", to=to)
    with place.app() as app, pytest.raises(RefusedError, match="the destination"):
        place.submit(app, table, to, plan_hash=agreed)


def test_T16_two_who_agree_to_the_same_plan_share_its_processes(place: Place) -> None:
    table, to = made(place, "agreed_twice"), "lake.ns.agreed_twice"
    agreed = shown(place, table, to)
    with place.app() as app:
        first = place.submit(app, table, to, plan_hash=agreed)
        assert set(place.submit(app, table, to, plan_hash=agreed)) == set(first)
        assert set(place.submit(app, table, to)) == set(first), "nor does it matter whether one agreed to it"
        place.finish(app, first)
        with pytest.raises(RefusedError, match="nothing of it is left to export"):
            place.submit(app, table, to, plan_hash=agreed)


def test_what_another_exported_meanwhile_is_not_exported_again(place: Place) -> None:
    table, to = made(place, "agreed_done"), "lake.ns.agreed_done"
    asked: dict[str, Any] = {"partitions": ("202401",)}
    agreed = shown(place, table, to, **asked)
    with place.app() as app:
        [mine] = place.submit(app, table, to, plan_hash=agreed, **asked)
        app.store.request_cancel(mine)
        [ended] = place.finish(app, [mine])
        assert ended.state is ProcessState.CANCELLED
        place.finish(app, place.submit(app, table, to, **asked))
        again = retry(app.store, mine).process
        [ended] = place.finish(app, [again.id])
    assert ExportRequest.from_json(ended.request).plan_hash
    assert (ended.state, ended.rows) == (ProcessState.COMPLETED, 0), ended.error


def test_nothing_can_be_agreed_to_that_is_to_change_first(place: Place) -> None:
    table, to = made(place, "agreed_wait"), "lake.ns.agreed_wait"
    with place.app() as app:
        assert preview_json(place.check(app, table, to, mutations="wait"))["plan_hash"] is None
        agreed = preview_json(place.check(app, table, to))["plan_hash"]
        assert agreed.startswith("p1-")
        with pytest.raises(UsageError, match="--mutations wait"):
            place.submit(app, table, to, mutations="wait", plan_hash=agreed)
