"""Rows land in files of their own partition, of the right size, under names that nothing can choose."""

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exporting import Child, Export, child_scratch, export

ODD = ["/../../x", "?", "a b", "", "new\nline", "=%2F", "é漢字🧊", "..", "#&+"]


def rows_of(done: Export, place: int) -> list[dict[str, object]]:
    return pq.ParquetFile(done.paths[place]).read().to_pylist()


def test_P13_a_part_that_spans_partitions_fans_out_into_the_right_files(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt32, ts DateTime('UTC')",
        "SELECT number, toDateTime('2024-01-30 00:00:00', 'UTC') + number * 3600 FROM numbers(100)",
        "SELECT number, toDateTime('2024-01-30 00:00:00', 'UTC') + number * 3600 FROM numbers(100)",
        partition_by="day(ts), bucket(3, id)",
    )  # fmt: skip
    assert sum(file.rows for file in done.files) == 200
    for place, file in enumerate(done.files):
        day = dt.date(1970, 1, 1) + dt.timedelta(days=file.partition[0])
        found = rows_of(done, place)
        assert len(found) == file.rows > 0
        assert {row["ts"].date() for row in found} == {day}  # type: ignore[attr-defined]
        assert f"/ts_day={day}/id_bucket={file.partition[1]}/" in file.path
    assert len({file.partition for file in done.files}) == len(done.files)
    one_day = done.table.scan(
        row_filter="ts >= '2024-01-31T00:00:00+00:00' and ts < '2024-02-01T00:00:00+00:00'"
    )
    assert one_day.to_arrow().num_rows == 48
    (row,) = done.by_clickhouse("SELECT count() AS c FROM {table} WHERE toDate(ts, 'UTC') = '2024-01-31'")
    assert row["c"] == 48


def test_D10_values_choose_no_path_whatever_they_hold(child: Child, tmp_path: Path) -> None:
    values = ", ".join(f"unhex('{value.encode().hex()}')" for value in ODD)
    done = export(
        child, tmp_path, "id UInt32, s Nullable(String)",
        f"SELECT number, if(number % 10 = 9, NULL, [{values}][number % 10 + 1]) FROM numbers(100)",
        partition_by="s",
    )  # fmt: skip
    assert {file.partition for file in done.files} == {(value,) for value in ODD} | {(None,)}
    data = Path(done.plan.destination.data_location.removeprefix("file://"))
    for path in done.paths:
        assert path.resolve().is_relative_to(data) and len(path.relative_to(data).parts) == 2
    assert sorted(tmp_path.rglob("*.parquet")) == sorted(done.paths)
    for place, file in enumerate(done.files):
        assert {row["s"] for row in rows_of(done, place)} == {file.partition[0]}
        assert file.rows == 10
    table = done.table.scan().to_arrow()
    assert table.num_rows == 100
    for value in ODD:
        assert done.table.scan(row_filter=_equal("s", value)).to_arrow().num_rows == 10


def _equal(name: str, value: str) -> object:
    from pyiceberg.expressions import EqualTo

    return EqualTo(name, value)


@pytest.mark.parametrize(
    ("kind", "value", "by", "expected"),
    [
        ("Nullable(Int32)", "NULL", "c", None),
        ("UInt64", "18446744073709551615", "c", "18446744073709551615"),
        ("Decimal(9, 2)", "-1.5", "c", "-1.50"),
        ("Decimal(9, 2)", "-10.65", "truncate(50, c)", "-11.00"),
        ("Date", "'2024-01-31'", "c", 19753),
        ("Date", "'2024-01-31'", "month(c)", 648),
        ("DateTime64(3, 'UTC')", "toDateTime64('1969-12-31 23:59:59.999', 3, 'UTC')", "c", -1000),
        ("DateTime64(3, 'UTC')", "toDateTime64('1969-12-31 23:59:59.999', 3, 'UTC')", "hour(c)", -1),
        ("Bool", "true", "c", True),
        ("UUID", "'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "c", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("LowCardinality(Nullable(String))", "'x'", "c", "x"),
        ("String", "'é漢字🧊x'", "truncate(2, c)", "é漢"),
    ],
)
def test_partition_values_of_every_type_are_typed_and_publish(
    child: Child, tmp_path: Path, kind: str, value: str, by: str, expected: object
) -> None:
    fill = f"SELECT 1, CAST({value} AS {kind})"
    done = export(child, tmp_path, f"id UInt8, c {kind}", fill, partition_by=by)
    assert [file.partition for file in done.files] == [(expected,)]
    assert done.table.scan().to_arrow().num_rows == 1


def test_more_partitions_than_open_files_are_written_in_turns(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt32", "SELECT number FROM numbers(100)", partition_by="id", open_files=7
    )
    assert sorted(file.partition for file in done.files) == [(number,) for number in range(100)]
    assert sorted(done.table.scan().to_arrow().column("id").to_pylist()) == list(range(100))
    assert [file.path.rsplit("-", 1)[1] for file in done.files] == [f"{n}.parquet" for n in range(100)]


def test_files_roll_at_their_size_by_row_ranges(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt64, h UInt64",
        "SELECT number, sipHash64(number) FROM numbers(400000)", file_mb=1,
    )  # fmt: skip
    assert len(done.files) >= 3
    assert all(file.bytes < 1_600_000 for file in done.files)
    assert sorted(done.arrow().column("id").to_pylist()) == list(range(400_000))


def test_a_big_partition_among_small_ones_rolls_too(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt64, p UInt8, h UInt64",
        "SELECT number, if(number % 100 = 0, number % 7, 9), sipHash64(number) FROM numbers(400000)",
        partition_by="p", file_mb=1,
    )  # fmt: skip
    by_partition: dict[tuple[object, ...], int] = {}
    for file in done.files:
        by_partition[file.partition] = by_partition.get(file.partition, 0) + 1
    assert by_partition[(9,)] >= 3
    assert all(count == 1 for partition, count in by_partition.items() if partition != (9,))
    assert sorted(done.arrow().column("id").to_pylist()) == list(range(400_000))


def test_a_split_part_is_exported_once_whatever_its_ranges(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt64, h UInt64",
        "SELECT number, sipHash64(number) FROM numbers(300000)",
        "DELETE FROM made.source WHERE id % 3 = 0",
        task_bytes_mb=1,
    )  # fmt: skip
    assert len(done.receipts) > 1
    assert sorted(done.arrow().column("id").to_pylist()) == [n for n in range(300_000) if n % 3]


def test_P11_lightweight_deleted_rows_are_not_exported(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt8", "SELECT number FROM numbers(10)", "DELETE FROM made.source WHERE id < 4"
    )
    assert done.arrow().column("id").to_pylist() == [4, 5, 6, 7, 8, 9]


def test_a_filter_is_applied_and_what_it_leaves_empty_makes_no_file(child: Child, tmp_path: Path) -> None:
    rows = "SELECT number FROM numbers(10)"
    some = export(child, tmp_path, "id UInt8", rows, where="id = 3 OR id = 5")
    assert some.arrow().column("id").to_pylist() == [3, 5]
    none = export(child, tmp_path, "id UInt8", rows, where="id > 100")
    assert none.files == [] and [receipt.rows for receipt in none.receipts] == [0]
    deleted = export(child, tmp_path, "id UInt8", rows, "DELETE FROM made.source WHERE 1", partition_by="id")
    assert deleted.files == []


def test_final_shows_the_merged_rows(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt8, v String", "SELECT 1, 'old'", "SELECT 1, 'new'", "SELECT 2, 'x'",
        engine="ReplacingMergeTree ORDER BY id", final=True,
    )  # fmt: skip
    rows = sorted(done.arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "v": "new"}, {"id": 2, "v": "x"}]


def test_a_file_of_one_part_is_sorted_and_says_so_one_of_several_does_not(
    child: Child, tmp_path: Path
) -> None:
    fill = "SELECT 1000 - number, number FROM numbers(1000)"
    one = export(child, tmp_path, "id Int32, v Int32", fill, engine="MergeTree ORDER BY id")
    ids = one.arrow().column("id").to_pylist()
    assert ids == sorted(ids)
    assert [file.sort_order_id for file in one.files] == [one.table.sort_order().order_id] != [0]
    two = export(child, tmp_path, "id Int32, v Int32", fill, fill, engine="MergeTree ORDER BY id")
    assert [file.sort_order_id for file in two.files] == [None]
    spread = export(
        child,
        tmp_path,
        "id Int32, v Int32",
        fill,
        engine="MergeTree ORDER BY id",
        partition_by="bucket(4, v)",
    )
    for place, file in enumerate(spread.files):
        found = [row["id"] for row in rows_of(spread, place)]
        assert found == sorted(found)  # type: ignore[type-var]
        assert file.sort_order_id == spread.table.sort_order().order_id


def test_nothing_is_left_of_a_task_in_the_engine_s_folder(child: Child, tmp_path: Path) -> None:
    export(child, tmp_path, "id UInt32", "SELECT number FROM numbers(50)", partition_by="bucket(5, id)")
    failed = export(child, tmp_path, "s String", "SELECT unhex('ff')", expect_errors=True)
    assert failed.errors
    assert child.call(child_scratch) == []


def test_the_table_s_own_layout_and_codec_are_kept_to(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "id UInt32, p UInt8", "SELECT number, number % 2 FROM numbers(10)", partition_by="p",
        properties={
            "write.object-storage.enabled": "true",
            "write.data.path": f"file://{tmp_path}/elsewhere",
            "write.parquet.compression-codec": "snappy",
        },
    )  # fmt: skip
    assert all(file.path.startswith(f"file://{tmp_path}/elsewhere/") for file in done.files)
    assert all(len(Path(file.path).relative_to(f"file:{tmp_path}").parts) > 4 for file in done.files)
    assert pq.ParquetFile(done.paths[0]).metadata.row_group(0).column(0).compression == "SNAPPY"
    assert done.table.scan().to_arrow().num_rows == 10
