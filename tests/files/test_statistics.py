"""Counts and bounds are complete and right: a reader that prunes by them loses no row (P2)."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import Child, Export, export
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, IsNull, LessThan, LessThanOrEqual
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from calve.iceberg.files.footer import annotate
from calve.iceberg.files.statistics import ValueCounts, file_statistics, lower_bound, upper_bound


def bound(done: Export, which: str, name: str, file: int = 0) -> Any:
    field = done.table.schema().find_field(name)
    found = getattr(done.files[file], f"{which}_bounds").get(field.field_id)
    return None if found is None else from_bytes(field.field_type, bytes.fromhex(found))


def count(done: Export, which: str, name: str, file: int = 0) -> int | None:
    field_id = done.table.schema().find_field(name).field_id
    found: int | None = getattr(done.files[file], f"{which}_counts").get(field_id)
    return found


def test_P2_counts_and_bounds_of_every_kind_of_column(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path,
        "i Int32, n Nullable(Int64), d Decimal(9, 2), w Decimal(30, 2), t DateTime('UTC'), e Date, b Bool,"
        " s Nullable(String), x Float64, g Nullable(Int8), l Array(Nullable(Int8)),"
        " p Tuple(q Nullable(Int32), r Float32), z Nullable(Tuple(k Int32))",
        "SELECT number - 5, if(number % 2, NULL, number), number - 5.5, number - 5.5, number, number, number % 2,"
        " if(number = 3, NULL, toString(number)), number / 4, NULL, [1, NULL], (if(number < 4, NULL, number), number),"
        " if(number < 2, NULL, tuple(number)) FROM numbers(10)",
    )  # fmt: skip
    values = {name: count(done, "value", name) for name in ("i", "n", "s", "g", "p.q", "z.k")}
    assert set(values.values()) == {10}
    nulls = {name: count(done, "null", name) for name in ("i", "n", "s", "g", "x", "p.q", "p.r", "z.k")}
    assert nulls == {"i": 0, "n": 5, "s": 1, "g": 10, "x": 0, "p.q": 4, "p.r": 0, "z.k": 2}
    assert (bound(done, "lower", "i"), bound(done, "upper", "i")) == (-5, 4)
    assert (bound(done, "lower", "n"), bound(done, "upper", "n")) == (0, 8)
    assert (bound(done, "lower", "p.q"), bound(done, "upper", "p.q")) == (4, 9)
    assert (bound(done, "lower", "z.k"), bound(done, "upper", "z.k")) == (2, 9)
    for name in ("d", "w"):
        low, high = bound(done, "lower", name), bound(done, "upper", name)
        assert (str(low), str(high)) == ("-5.50", "3.50")
    assert (bound(done, "lower", "t"), bound(done, "upper", "t")) == (0, 9_000_000)
    assert (bound(done, "lower", "e"), bound(done, "upper", "e")) == (0, 9)
    assert (bound(done, "lower", "b"), bound(done, "upper", "b")) == (False, True)
    assert (bound(done, "lower", "s"), bound(done, "upper", "s")) == ("0", "9")
    assert bound(done, "lower", "g") is None and bound(done, "upper", "g") is None
    # nothing but a size for what lies below a list
    element = done.table.schema().find_field("l.element").field_id
    assert element in done.files[0].column_sizes
    assert element not in done.files[0].value_counts and element not in done.files[0].lower_bounds


def test_sizes_and_split_offsets_are_those_of_the_file(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "a UInt64, s String",
        "SELECT number, repeat(toString(cityHash64(number)), 20) FROM numbers(200000)", memory_mb=70,
    )  # fmt: skip
    (file,) = done.files
    metadata = pq.ParquetFile(done.paths[0]).metadata
    assert metadata.num_row_groups > 1
    assert len(file.split_offsets) == metadata.num_row_groups and file.split_offsets[0] == 4
    assert list(file.split_offsets) == sorted(set(file.split_offsets))
    sizes = sum(
        metadata.row_group(group).column(0).total_compressed_size for group in range(metadata.num_row_groups)
    )
    assert file.column_sizes[1] == sizes
    assert file.bytes == done.paths[0].stat().st_size


def test_predicates_at_the_edges_of_bounds_find_their_rows(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "i Int64, s String, d Decimal(18, 3), u UInt64",
        "SELECT number, concat(repeat('é', 20), toString(number)), number / 8, number FROM numbers(100)",
        "SELECT number + 1000, repeat('\U0010ffff', 17), -number / 8, 18446744073709551615 - number FROM numbers(100)",
    )  # fmt: skip
    scan = done.table.scan
    for name, value in (("i", 0), ("i", 99), ("i", 1000), ("i", 1099)):
        assert scan(row_filter=EqualTo(name, value)).to_arrow().num_rows == 1
        (row,) = done.by_clickhouse(f"SELECT count() AS c FROM {{table}} WHERE {name} = {value}")
        assert row["c"] == 1
    assert scan(row_filter=EqualTo("s", "é" * 20 + "99")).to_arrow().num_rows == 1
    assert scan(row_filter=EqualTo("s", "\U0010ffff" * 17)).to_arrow().num_rows == 100
    assert scan(row_filter=LessThan("d", "0.000")).to_arrow().num_rows == 99
    assert scan(row_filter=GreaterThanOrEqual("u", str(2**64 - 100))).to_arrow().num_rows == 100
    assert scan(row_filter=LessThanOrEqual("u", "0")).to_arrow().num_rows == 1
    assert scan(row_filter=IsNull("i")).to_arrow().num_rows == 0


def test_W3_a_row_group_without_min_and_max_means_no_bounds_for_the_file(
    child: Child, tmp_path: Path
) -> None:
    done = export(
        child, tmp_path, "id UInt32, s String",
        "SELECT number, if(number = 150000, repeat('z', 5000), 'm') FROM numbers(200000)",
        settings={"output_format_parquet_row_group_size": "50000"},
    )  # fmt: skip
    assert pq.ParquetFile(done.paths[0]).metadata.num_row_groups > 1
    assert bound(done, "lower", "s") is None and bound(done, "upper", "s") is None
    assert bound(done, "upper", "id") == 199999
    assert done.table.scan(row_filter=EqualTo("s", "z" * 5000)).to_arrow().num_rows == 1


def test_W3_row_groups_that_hold_only_nulls_do_not_cost_the_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": pa.array([None, None, 5, 7], pa.int64())}), path, row_group_size=2)
    schema = StructType(NestedField(1, "a", LongType(), required=False))
    made = file_statistics(annotate(path, schema), schema, ValueCounts(), {})
    assert made.lower_bounds == {1: (5).to_bytes(8, "little").hex()}
    assert made.null_counts == {1: 2} and made.value_counts == {1: 4}


def test_W4_NaNs_are_counted_and_cost_the_bounds_so_that_deletes_keep_them(
    child: Child, tmp_path: Path
) -> None:
    done = export(
        child, tmp_path, "id Int32, f Nullable(Float64), g Float32, t Tuple(h Float64)",
        "SELECT number, if(number = 3, nan, if(number = 4, NULL, number)), number, tuple(nan) FROM numbers(10)",
    )  # fmt: skip
    assert [count(done, "nan", name) for name in ("f", "g", "t.h")] == [1, 0, 10]
    assert bound(done, "lower", "f") is None and bound(done, "upper", "f") is None
    assert (bound(done, "lower", "g"), bound(done, "upper", "g")) == (0.0, 9.0)
    done.table.delete("f < 100")
    left = done.catalog.load_table(done.identifier).scan().to_arrow()
    assert sorted(left.column("id").to_pylist()) == [3, 4]


def test_the_zero_of_a_bound_is_minus_zero_below_and_plus_zero_above(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "f Float64", "SELECT 0.0", "SELECT -0.0")
    field_id = done.table.schema().find_field("f").field_id
    for file in done.files:
        assert bytes.fromhex(file.lower_bounds[field_id])[-1] == 0x80
        assert bytes.fromhex(file.upper_bounds[field_id])[-1] == 0x00


@pytest.mark.parametrize(
    ("properties", "low", "high", "counts"),
    [
        ({}, "a" * 16, "a" * 15 + "b", True),
        ({"write.metadata.metrics.default": "truncate(4)"}, "aaaa", "aaab", True),
        ({"write.metadata.metrics.default": "full"}, "a" * 40, "a" * 40, True),
        ({"write.metadata.metrics.default": "counts"}, None, None, True),
        ({"write.metadata.metrics.column.s": "none"}, None, None, False),
    ],
)
def test_the_table_s_properties_say_how_much_a_manifest_holds(
    child: Child, tmp_path: Path, properties: dict[str, str], low: str | None, high: str | None, counts: bool
) -> None:
    done = export(child, tmp_path, "s String", "SELECT repeat('a', 40)", properties=properties)
    assert (bound(done, "lower", "s"), bound(done, "upper", "s")) == (low, high)
    assert (count(done, "value", "s") is not None) == counts


@pytest.mark.parametrize(
    ("value", "upper"),
    [
        ("abc", "abc"),
        ("abcd" * 10, "abcdabcdabcdabce"),
        ("a" * 15 + "\ud7ff" + "x", "a" * 15 + "\ue000"),
        ("a" * 15 + "\U0010ffff" + "x", "a" * 14 + "b"),
        ("\U0010ffff" * 17, None),
    ],
)
def test_an_upper_bound_that_is_cut_off_is_rounded_up(value: str, upper: str | None) -> None:
    found = upper_bound(StringType(), value.encode(), 16)
    assert found == (None if upper is None else upper.encode())
    assert found is None or found >= value.encode()
    low = lower_bound(StringType(), value.encode(), 16)
    assert low is not None and value.encode().startswith(low)


def test_bytes_are_rounded_up_by_the_byte() -> None:
    assert upper_bound(BinaryType(), b"\x01" * 15 + b"\xff\xff", 16) == b"\x01" * 14 + b"\x02"
    assert upper_bound(BinaryType(), b"\xff" * 17, 16) is None
    assert lower_bound(BinaryType(), b"\xff" * 17, 16) == b"\xff" * 16


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, -128, -129, 255, 10**37, -(10**37)])
def test_decimals_take_the_fewest_bytes(value: int) -> None:
    from decimal import Decimal

    from pyiceberg.conversions import to_bytes

    kind = DecimalType(38, 0)
    assert lower_bound(kind, value, 16) == to_bytes(kind, Decimal(value))


def test_a_bound_of_a_double_that_nobody_counted_nans_of_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0]}), path)
    schema = StructType(NestedField(1, "a", DoubleType(), required=False))
    assert not file_statistics(annotate(path, schema), schema, ValueCounts(), {}).lower_bounds
