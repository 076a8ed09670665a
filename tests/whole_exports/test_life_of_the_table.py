"""The table lives on while an export is under way: Spark appends, deletes, compacts, expires and changes the
schema between plan and publish; and Spark reads back what is there in the end."""

from typing import Any

import pytest
from whole_life import Life

from calve.model.process import Process
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.spark_sql import SparkCatalog, SparkSql

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLE = "lake.ns.events"
SOMEBODY_S = "(9001, DATE'2024-01-20', 'x'), (9002, DATE'2024-02-20', 'y')"


@pytest.fixture
def lake(spark_sql: SparkSql, life: Life) -> SparkCatalog:
    return spark_sql.catalog(
        "lake", uri=life.ports.properties["uri"], warehouse=life.ports.properties["warehouse"]
    )


def ids(lake: SparkCatalog, condition: str = "true", column: str = "id") -> list[int]:
    found = lake.query(f"SELECT {column} FROM {TABLE} WHERE {condition} ORDER BY 1")
    return [int(one) for one in found.column(0).to_pylist()]


def publishing(life: Life, *partitions: str, **asked: Any) -> Any:
    [process_id] = life.submit(*partitions, **asked)
    life.run_until(ProcessState.PUBLISHING, process_id)
    return process_id


def finished(life: Life, process_id: Any) -> Process:
    life.run(life.worker())
    life.check_settled()
    return life.row(process_id)


def compact(lake: SparkCatalog) -> None:
    lake.execute(
        "CALL lake.system.rewrite_data_files(table => 'ns.events', options => map('rewrite-all', 'true'))"
    )


def test_appends_deletes_compaction_and_expiry_between_plan_and_publish_are_survived(
    life: Life, lake: SparkCatalog
) -> None:
    life.export("202402")
    process_id = publishing(life, "202401")
    lake.execute(f"INSERT INTO {TABLE} VALUES {SOMEBODY_S}")
    lake.execute(f"DELETE FROM {TABLE} WHERE id = 105")
    compact(lake)
    lake.execute(
        "CALL lake.system.expire_snapshots(table => 'ns.events', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    row = finished(life, process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    expected = sorted({*range(150), 9001, 9002} - {105})
    assert ids(lake) == life.exported_ids() == expected
    assert ids(lake, "day < DATE'2024-02-01' AND note IS NULL") == list(range(0, 100, 5))


def test_a_commit_of_spark_between_search_and_send_is_a_lost_race_and_nothing_is_lost(
    life: Life, lake: SparkCatalog
) -> None:
    life.export("202402")
    process_id = publishing(life, "202401")
    life.ports.before_send.append(lambda: lake.execute(f"INSERT INTO {TABLE} VALUES {SOMEBODY_S}"))
    row = finished(life, process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert row.publish_attempts == 2
    assert ids(lake) == [*range(150), 9001, 9002]


def test_a_renamed_and_a_promoted_column_between_plan_and_publish_read_the_same_for_three_readers(
    life: Life, lake: SparkCatalog, source: KeptSource
) -> None:
    life.export("202402", casts={"id": "int"})
    process_id = publishing(life, "202401", casts={"id": "int"})
    lake.execute(f"ALTER TABLE {TABLE} RENAME COLUMN note TO remark")
    lake.execute(f"ALTER TABLE {TABLE} ALTER COLUMN id TYPE bigint")
    lake.execute(f"ALTER TABLE {TABLE} ADD COLUMN note string")
    row = finished(life, process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert ids(lake) == life.exported_ids() == list(range(150))
    condition = "id > 97 AND id <= 101 AND remark IS NOT NULL AND note IS NULL"
    assert ids(lake, condition) == [98, 99, 101]
    table = life.table()
    assert table is not None
    scan = table.scan("id > 97 AND id <= 101 AND remark IS NOT NULL AND note IS NULL").to_arrow()
    assert sorted(scan["id"].to_pylist()) == [98, 99, 101]
    location = table.location().removeprefix("file://")
    found = source.select(f"SELECT id FROM icebergLocal('{location}') WHERE {condition}")
    assert sorted(row["id"] for row in found) == [98, 99, 101]


def test_a_dropped_column_fails_the_export_and_says_which(life: Life, lake: SparkCatalog) -> None:
    life.export("202402")
    process_id = publishing(life, "202401")
    lake.execute(f"ALTER TABLE {TABLE} DROP COLUMN note")
    row = finished(life, process_id)
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "destination_changed"
    assert "column note was dropped" in row.error.message
    assert ids(lake) == list(range(100, 150))


def test_a_new_partition_spec_between_plan_and_publish_is_written_with_the_plan_s(
    life: Life, lake: SparkCatalog
) -> None:
    life.export("202402")
    process_id = publishing(life, "202401")
    lake.execute(f"ALTER TABLE {TABLE} ADD PARTITION FIELD bucket(4, id)")
    row = finished(life, process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert ids(lake) == list(range(150))
    assert ids(lake, "day < DATE'2024-01-05'") == [number for number in range(100) if number % 50 % 28 < 4]


def test_L21_an_export_that_spark_compacted_is_replaced_by_whole_partitions(
    life: Life, lake: SparkCatalog
) -> None:
    life.export("202401")
    life.export("202402")
    compact(lake)
    process_id = publishing(life, "202401", force=True)
    row = finished(life, process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert ids(lake) == list(range(150))


def test_L21_with_rows_of_others_in_the_compacted_partition_force_refuses_and_changes_nothing(
    life: Life, lake: SparkCatalog
) -> None:
    life.export("202401")
    lake.execute(f"INSERT INTO {TABLE} VALUES {SOMEBODY_S}")
    compact(lake)
    row = finished(life, publishing(life, "202401", force=True))
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "replace_refused"
    assert ids(lake) == [*range(100), 9001, 9002]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_D13_rows_that_spark_deleted_are_not_brought_back_unless_told(
    life: Life, lake: SparkCatalog, mode: str
) -> None:
    life.export("202401")
    lake.execute(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
    lake.execute(f"DELETE FROM {TABLE} WHERE id IN (3, 4)")
    row = finished(life, publishing(life, "202401", force=True))
    assert row.state is ProcessState.FAILED and row.error is not None
    # Copy-on-write put other files in place of ours: whose rows those hold is not known (T7).
    rewritten = mode == "copy-on-write"
    assert row.error.code == ("replace_refused" if rewritten else "deletes_would_be_lost")
    assert ids(lake) == [number for number in range(100) if number not in (3, 4)]
    if rewritten:
        lake.execute(f"DELETE FROM {TABLE}")
    row = finished(life, publishing(life, "202401", force=True, discard_deletes=True))
    assert row.state is ProcessState.COMPLETED, row.error
    assert ids(lake) == life.exported_ids() == list(range(100))
