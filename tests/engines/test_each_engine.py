"""A table of each engine: its parts as they are, with a note, or their merged view with --final."""

from dataclasses import dataclass
from typing import Any

import pytest

from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.sql import create_table
from calve.clickhouse.tables import describe
from calve.destination.plan import ExportPlan
from calve.model.errors import RefusedError, UsageError
from calve.model.process import Process
from calve.model.states import ProcessState
from support.place import Place

# engine, columns, two inserts that a merge combines
ENGINES = {
    "replacing": ("ReplacingMergeTree(v)", "v UInt32, s String", "(1, 1, 'old'), (2, 1, 'two')", "(1, 2, 'new')"),
    "deleting": (
        "ReplacingMergeTree(v, gone)",
        "v UInt32, gone UInt8, s String",
        "(1, 1, 0, 'old'), (2, 1, 0, 'two')",
        "(1, 2, 1, 'deleted')",
    ),
    "summing": ("SummingMergeTree", "n UInt64, f Float64", "(1, 5, 0.5), (2, 1, 1)", "(1, 7, 0.25)"),
    "aggregating": (
        "AggregatingMergeTree",
        "high SimpleAggregateFunction(max, UInt64), all SimpleAggregateFunction(groupUniqArrayArray, Array(String))",
        "(1, 5, ['a']), (2, 1, [])",
        "(1, 7, ['b'])",
    ),
    "collapsing": ("CollapsingMergeTree(sign)", "sign Int8, n UInt32", "(1, 1, 5), (2, 1, 6)", "(1, -1, 5), (1, 1, 50)"),
    "versioned": (
        "VersionedCollapsingMergeTree(sign, v)",
        "sign Int8, v UInt8, n UInt32",
        "(1, 1, 1, 5), (2, 1, 1, 6)",
        "(1, -1, 1, 5), (1, 1, 2, 50)",
    ),
    "coalescing": (
        "CoalescingMergeTree",
        "a Nullable(String), b Nullable(UInt32)",
        "(1, 'kept', NULL), (2, NULL, 6)",
        "(1, NULL, 50)",
    ),
}  # fmt: skip
READ = "SELECT * FROM db.{} {} ORDER BY ALL"


@dataclass(frozen=True)
class Exported:
    processes: dict[str, Process]
    notes: dict[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def exported(place: Place) -> Exported:
    for name, (engine, columns, *inserts) in ENGINES.items():
        place.execute(
            f"CREATE TABLE db.{name} (id UInt32, {columns}) ENGINE = {engine} PARTITION BY id % 2 ORDER BY id",
            *(f"INSERT INTO db.{name} VALUES {values}" for values in inserts),
        )
    with place.app() as app:
        ids = {}
        for name in ENGINES:
            for final in (False, True):
                to = f"{name}_final" if final else name
                [ids[to]] = place.submit(app, f"db.{name}", f"lake.ns.{to}", partitions=("1",), final=final)
        done = dict(zip(ids, place.finish(app, list(ids.values())), strict=True))
        plans = {to: ExportPlan.from_json(app.store.plan(one) or "") for to, one in ids.items()}
    return Exported(done, {to: plan.notes for to, plan in plans.items()})


def _rows(place: Place, table: str, *, final: bool) -> list[dict[str, Any]]:
    return place.select(f"SELECT * FROM db.{table} {'FINAL' if final else ''} WHERE id % 2 = 1 ORDER BY ALL")


def _read(place: Place, table: str) -> list[dict[str, Any]]:
    return place.read_by_clickhouse("*", table, "ORDER BY ALL SETTINGS optimize_read_in_order = 0")


@pytest.mark.parametrize("name", ENGINES)
def test_parts_are_exported_as_they_are_and_a_note_says_so(
    place: Place, exported: Exported, name: str
) -> None:
    process = exported.processes[name]
    assert process.state is ProcessState.COMPLETED, process.error
    found = _read(place, f"lake.ns.{name}")
    assert found == _rows(place, name, final=False)
    assert len(found) == 2 + (ENGINES[name][3].count("(") - 1)
    assert any("--final exports the merged view" in note for note in exported.notes[name])


@pytest.mark.parametrize("name", ENGINES)
def test_final_exports_the_merged_view_of_the_partition(place: Place, exported: Exported, name: str) -> None:
    process = exported.processes[f"{name}_final"]
    assert process.state is ProcessState.COMPLETED, process.error
    found = _read(place, f"lake.ns.{name}_final")
    assert found == _rows(place, name, final=True)
    assert process.rows == len(found) < len(_rows(place, name, final=False))
    assert not any("--final" in note for note in exported.notes[f"{name}_final"])


def test_final_of_a_plain_table_and_of_single_parts_is_refused(place: Place, exported: Exported) -> None:
    place.execute(
        "CREATE TABLE db.plain (id UInt32) ENGINE = MergeTree ORDER BY id", "INSERT INTO db.plain VALUES (1)"
    )
    with place.app() as app:
        with pytest.raises(UsageError, match="never merges rows"):
            place.check(app, "db.plain", "lake.ns.plain", final=True)
        with pytest.raises(UsageError, match="whole partition"):
            place.check(app, "db.summing", "lake.ns.x", parts=("1_1_1_0",), final=True)


def test_an_aggregation_s_inner_state_is_refused_with_a_way_out(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.states (id UInt32, u AggregateFunction(uniq, String)) ENGINE = AggregatingMergeTree ORDER BY id",
        "INSERT INTO db.states SELECT 1, uniqState('a')",
    )
    with (
        place.app() as app,
        pytest.raises(UsageError, match=r"u: AggregateFunction\(uniq, String\)") as caught,
    ):
        place.check(app, "db.states", "lake.ns.states")
    assert "--exclude u" in caught.value.hint


def test_the_merged_view_of_graphite_cannot_be_computed_elsewhere_and_is_refused(place: Place) -> None:
    from dataclasses import replace

    with place.visit() as session:
        session.execute("CREATE TABLE db.rolled (id UInt32) ENGINE = MergeTree ORDER BY id")
        table = describe(session, "db", "rolled")
    # the engine needs a server's configuration to be created with, so its clause is put in here
    clause = create_table.parse("GraphiteMergeTree('graphite_rollup') ORDER BY id")
    graphite = replace(table, engine="GraphiteMergeTree", clause=clause)
    assert "ENGINE = MergeTree" in scratch_table(graphite).create
    with pytest.raises(RefusedError, match="rollup"):
        scratch_table(graphite, final=True)
