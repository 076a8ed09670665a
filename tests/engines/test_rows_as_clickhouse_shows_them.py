"""What of a grown table is exported: lightweight deletes, columns of older and newer days, defaults."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from calve.clickhouse.pins.pin import refuse_row_policies
from calve.clickhouse.tables import describe
from calve.control.ports import TaskOrder, TaskResult
from calve.destination.plan import ExportPlan
from calve.model.errors import RefusedError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place


def test_P11_lightweight_deleted_rows_are_neither_exported_nor_counted(place: Place) -> None:
    place.execute(
        "SYSTEM START MERGES",
        "CREATE TABLE db.deleted (id UInt32, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        "INSERT INTO db.deleted SELECT number, 0 FROM numbers(1000)",
        "INSERT INTO db.deleted SELECT number, 0 FROM numbers(1000, 500)",
        "DELETE FROM db.deleted WHERE id % 10 = 7",
    )
    [process] = place.export("db.deleted", to="lake.ns.deleted")
    assert process.state is ProcessState.COMPLETED, process.error
    [source] = place.select("SELECT count() AS n, sum(id) AS ids FROM db.deleted")
    assert source["n"] == process.rows == 1350
    assert place.read_by_clickhouse("count() AS n, sum(id) AS ids", "lake.ns.deleted") == [source]
    with place.app() as app:
        plan = ExportPlan.from_json(app.store.plan(process.id) or "")
    assert plan.rows == 1500, "ranges count physical rows"
    assert [key.rows for key in plan.keys] == [1350]


def test_parts_written_before_an_alter_read_as_the_table_shows_them(place: Place) -> None:
    place.execute(
        "SYSTEM START MERGES",
        "CREATE TABLE db.grown (id UInt32, gone String, n UInt8, name String) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.grown VALUES (1, 'x', 255, 'a')",
        "ALTER TABLE db.grown ADD COLUMN later String DEFAULT concat('default of ', toString(id)) AFTER id,"
        " ADD COLUMN empty Array(UInt8), ADD COLUMN m UInt64 MATERIALIZED id * 2, ADD COLUMN al UInt64 ALIAS id * 3,"
        " ADD COLUMN e UInt8 EPHEMERAL, DROP COLUMN gone, MODIFY COLUMN n Nullable(UInt32),"
        " RENAME COLUMN name TO title SETTINGS mutations_sync = 2",
        "INSERT INTO db.grown (id, later, n, title, empty) VALUES (2, 'given', NULL, 'b', [1])",
    )
    [process] = place.export("db.grown", to="lake.ns.grown")
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.read("lake.ns.grown").sort_by("id").to_pylist() == [
        {"id": 1, "later": "default of 1", "n": 255, "title": "a", "empty": [], "m": 2},
        {"id": 2, "later": "given", "n": None, "title": "b", "empty": [1], "m": 4},
    ]


def test_P3_and_P5_a_table_with_its_columns_in_another_order_gets_each_by_its_name(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.ordered (id UInt32, a String, b String, at DateTime('Asia/Tokyo')) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.ordered VALUES (1, 'a', 'b', 1700000000)",
        "CREATE TABLE db.swapped (b String, at DateTime('UTC'), a String, id UInt32) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.swapped VALUES ('b', 1700000000, 'a', 2)",
    )
    for table in ("ordered", "swapped"):
        [process] = place.export(f"db.{table}", to="lake.ns.ordered")
        assert process.state is ProcessState.COMPLETED, process.error
    found = place.read("lake.ns.ordered").sort_by("id").to_pylist()
    assert [(row["id"], row["a"], row["b"], row["at"].timestamp()) for row in found] == [
        (1, "a", "b", 1_700_000_000),
        (2, "a", "b", 1_700_000_000),
    ]


def test_D14_row_policies_are_refused_unless_told(place: Place) -> None:
    with place.visit() as session:
        session.execute("CREATE TABLE db.policed (id UInt32) ENGINE = MergeTree ORDER BY id")
        # the embedded engine has no users, and so no policies: they are put in here
        table = replace(describe(session, "db", "policed"), row_policies=("only_mine",))
    with pytest.raises(RefusedError, match="only_mine") as caught:
        refuse_row_policies(table, ignore=False)
    assert "--ignore-row-policies" in caught.value.hint
    refuse_row_policies(table, ignore=True)


class Meanwhile(LocalRunner):
    """Runs a wave of tasks only after something has happened to the source."""

    happens: Callable[[], None]

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        self.happens()
        super().run(group, orders, on_result)


@pytest.fixture
def meanwhile(tmp_path: Path) -> "tuple[Place, Meanwhile]":
    runner = Meanwhile(slots=1)
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id UInt32) ENGINE = MergeTree ORDER BY id",
        *(f"INSERT INTO db.t SELECT number FROM numbers({first}, 100)" for first in (0, 100, 200)),
    )
    return place, runner


@pytest.mark.parametrize(
    "alter", ["OPTIMIZE TABLE db.t FINAL", "TRUNCATE TABLE db.t", "DROP TABLE db.t SYNC"]
)
def test_P7_parts_merged_or_dropped_meanwhile_lose_no_row_and_orphan_no_file(
    meanwhile: "tuple[Place, Meanwhile]", alter: str
) -> None:
    place, runner = meanwhile
    runner.happens = lambda: place.execute("SYSTEM START MERGES", alter)
    [process] = place.export("db.t", to="lake.ns.t")
    runner.close()
    assert process.state is ProcessState.COMPLETED, process.error
    table = place.table("lake.ns.t")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(300))
    known = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
    stored = {str(path) for path in (place.folder / "lake" / "warehouse").rglob("*.parquet")}
    assert stored == known
    assert place.frozen == []


def test_P17_a_part_of_the_same_name_with_other_content_is_a_change(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    place.execute("CREATE DATABASE db", "CREATE TABLE db.t (id UInt32) ENGINE = MergeTree ORDER BY id")
    place.execute("INSERT INTO db.t VALUES (1)")
    [process] = place.export("db.t", parts=("all_1_1_0",), to="lake.ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    with place.app() as app:
        again = place.check(app, "db.t", "lake.ns.t", parts=("all_1_1_0",))
        assert [one.unchanged for one in again.unchanged] == [True] and not again.chosen
        # an emptied table that is loaded anew numbers its parts from 1 again
        place.execute(
            "TRUNCATE TABLE db.t", "DETACH TABLE db.t", "ATTACH TABLE db.t", "INSERT INTO db.t VALUES (2)"
        )
        [part] = place.select("SELECT name FROM system.parts WHERE active AND table = 't'")
        assert part == {"name": "all_1_1_0"}
        changed = place.check(app, "db.t", "lake.ns.t", parts=("all_1_1_0",))
        assert len(changed.changed) == 1 and not changed.unchanged


def test_P17_a_partition_reloaded_with_the_same_block_numbers_is_a_change(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    place.execute("CREATE DATABASE db", "CREATE TABLE db.t (id UInt32) ENGINE = MergeTree ORDER BY id")
    place.execute("INSERT INTO db.t VALUES (1)", "INSERT INTO db.t VALUES (2)")
    [process] = place.export("db.t", to="lake.ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    place.execute("ALTER TABLE db.t DROP PARTITION tuple()")
    # every visit opens the folder anew: after the drop, blocks are numbered from 1 again
    place.execute("INSERT INTO db.t VALUES (1)", "INSERT INTO db.t VALUES (3)")
    with place.app() as app:
        checked = place.check(app, "db.t", "lake.ns.t")
    assert "has changed since: 2 rows then and now, in other parts" in checked.changed[0].sentence
    [again] = place.export("db.t", to="lake.ns.t", force=True)
    assert again.state is ProcessState.COMPLETED, again.error
    assert sorted(place.read("lake.ns.t")["id"].to_pylist()) == [1, 3]
    place.execute("SYSTEM START MERGES", "OPTIMIZE TABLE db.t FINAL")
    with place.app() as app:
        checked = place.check(app, "db.t", "lake.ns.t")
    assert checked.unchanged[0].sentence.endswith("unchanged since but for merges") and not checked.changed


def test_times_before_1970_are_filed_as_iceberg_has_them_and_found_as_the_docs_say(
    tmp_path: Path, runner: LocalRunner
) -> None:
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id Int32, d Date32) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.t VALUES (1, '1900-01-02'), (2, '1969-12-31'), (3, '2024-02-29')",
    )
    [process] = place.export("db.t", to="lake.ns.t", partition_by="month(d)")
    assert process.state is ProcessState.COMPLETED, process.error
    scan = place.table("lake.ns.t").scan(row_filter="d = '1900-01-02'")
    assert [task.file.partition[0] for task in scan.plan_files()] == [-840]
    assert scan.to_arrow()["id"].to_pylist() == [1]
    by_clickhouse = place.read_by_clickhouse(
        "id", "lake.ns.t", "WHERE d <= '1969-12-31' SETTINGS use_iceberg_partition_pruning = 0"
    )
    assert sorted(row["id"] for row in by_clickhouse) == [1, 2]
