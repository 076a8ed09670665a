"""Field ids and annotations go into a footer without loss, and nothing else changes."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import Child, export
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.iceberg.files import thrift
from calve.iceberg.files.footer import annotate, read_footer
from calve.model.errors import PermanentError

NESTED = (
    "id UInt64, s String, a Array(Tuple(x UInt8, y Nullable(String))), m Map(String, Array(UInt8)), u UUID"
)
ROWS = (
    "SELECT number, toString(number), [(1, 'a'), (2, NULL)], map('k', [1]), generateUUIDv4() FROM numbers(50)"
)


def ids(path: Path) -> dict[str, int]:
    """Field ids by Iceberg's dotted names, from the footer itself."""
    elements = iter(read_footer(path)[2].data.items)

    def walk(prefix: str, children: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for _ in range(children):
            element = next(elements)
            middle = element[3].data == 2  # the repeated group of a list or map has no id
            name = prefix if middle else f"{prefix}.{element[4].data.decode()}".lstrip(".")
            if not middle:
                found[name] = element[9].data
            found |= walk(name, element[5].data if 5 in element else 0)
        return found

    return walk("", next(elements)[5].data)


def test_P1_every_field_at_every_depth_has_the_table_s_id(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, NESTED, ROWS)
    schema = done.table.schema()
    expected = {schema.find_column_name(number): number for number in schema.field_ids}
    assert "a.element.y" in expected and "m.value.element" in expected
    assert ids(done.paths[0]) == expected


def test_pages_are_untouched_and_the_rest_of_the_footer_survives(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"a": list(range(1000)), "b": [str(n) for n in range(1000)]})
    pq.write_table(table, path, row_group_size=100, write_page_index=True)
    before, size = path.read_bytes(), pq.read_metadata(path).serialized_size
    schema = StructType(
        NestedField(7, "a", LongType(), required=False), NestedField(9, "b", StringType(), required=False)
    )
    footer = annotate(path, schema)
    assert footer.rows == 1000 and len(footer.groups) == 10
    assert path.read_bytes().startswith(before[: len(before) - size - 8])
    again = pq.ParquetFile(path)
    assert again.read().to_pylist() == table.to_pylist()
    assert [field.metadata[b"PARQUET:field_id"] for field in again.schema_arrow] == [b"7", b"9"]
    assert again.metadata.metadata == pq.ParquetFile(pa.BufferReader(before)).metadata.metadata
    assert annotate(path, schema).meta == footer.meta


def test_the_engine_s_footer_is_read_and_written_back_byte_for_byte(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, NESTED, ROWS)
    data = done.paths[0].read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert thrift.encode(thrift.decode(footer)) == footer


VALUES = st.deferred(
    lambda: st.one_of(
        st.booleans().map(lambda value: thrift.Value(thrift.TRUE if value else thrift.FALSE, value)),
        st.integers(0, 255).map(lambda value: thrift.Value(thrift.I8, value)),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: thrift.Value(thrift.I64, value)),
        st.binary(min_size=8, max_size=8).map(lambda value: thrift.Value(thrift.DOUBLE, value)),
        st.binary(max_size=40).map(lambda value: thrift.Value(thrift.BINARY, value)),
        st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20).map(
            lambda items: thrift.Value(thrift.LIST, thrift.Items(thrift.I32, items))
        ),
        st.lists(STRUCTS, max_size=17).map(
            lambda items: thrift.Value(thrift.LIST, thrift.Items(thrift.STRUCT, items))
        ),
        st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 9)), min_size=1, max_size=3).map(
            lambda pairs: thrift.Value(thrift.MAP, thrift.Pairs(thrift.BINARY, thrift.I32, pairs))
        ),
        STRUCTS.map(thrift.struct),
    )
)
STRUCTS: Any = st.dictionaries(st.integers(1, 400), VALUES, max_size=4)


@given(STRUCTS)
def test_any_compact_thrift_survives_a_round_trip(fields: dict[int, thrift.Value]) -> None:
    assert thrift.decode(thrift.encode(fields)) == fields


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1" + b"\x00" * 20, b"PAR1" + b"\xff" * 30 + b"\x10\0\0\0PAR1"]
)
def test_what_is_no_parquet_file_is_a_clear_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    with pytest.raises(PermanentError):
        read_footer(path)


def test_W5_a_uuid_column_has_no_statistics_anywhere(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, NESTED, ROWS)
    metadata = pq.ParquetFile(done.paths[0]).metadata
    columns = [metadata.row_group(0).column(place) for place in range(metadata.num_columns)]
    by_name = {column.path_in_schema: column for column in columns}
    assert not by_name["u"].is_stats_set or not by_name["u"].statistics.has_min_max
    assert not by_name["u"].has_column_index and by_name["id"].has_column_index
    uuid_id = done.table.schema().find_field("u").field_id
    assert uuid_id not in done.files[0].lower_bounds and uuid_id not in done.files[0].upper_bounds
    some = done.arrow().column("u").to_pylist()[7]
    found = done.table.scan(row_filter=f"u == '{some}'").to_arrow()
    assert found.num_rows == 1


def test_W2_no_file_has_bloom_filters(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, NESTED, ROWS)
    for path in done.paths:
        for group in read_footer(path)[4].data.items:
            assert all(14 not in chunk[3].data for chunk in group[1].data.items)


def test_small_decimals_lie_as_integers_as_iceberg_s_spec_says(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "a Decimal(9, 2), b Array(Nullable(Decimal(18, 3))), c Decimal(19, 0)",
        "SELECT -1.5, [2.125, NULL], 3",
    )  # fmt: skip
    columns = pq.ParquetFile(done.paths[0]).schema
    assert [column.physical_type for column in columns] == ["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    assert "precision=18, scale=3" in str(columns[1].logical_type)
    (row,) = done.by_clickhouse("SELECT sum(a) AS sum, any(b[1]) AS first FROM {table} WHERE a < 0")
    assert row == {"sum": Decimal("-1.5"), "first": Decimal("2.125")}
