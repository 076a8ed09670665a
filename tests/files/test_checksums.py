"""Two implementations of one definition: what ClickHouse computes and what Arrow gives agree."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exporting import Child
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.destination import checksums
from calve.model.errors import PermanentError

STRUCT = StructType(
    NestedField(7, "a", LongType(), required=False), NestedField(9, "b", StringType(), required=False)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2299, 12, 31))
INSTANTS = st.integers(-2_208_988_800_000_000, 10_413_705_600_000_000).map(
    lambda micros: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
)
DIGITS = st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3))
COLUMNS: list[tuple[IcebergType, Any, Any]] = [
    (BooleanType(), pa.bool_(), st.booleans()),
    (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (FloatType(), pa.float32(), st.floats(width=32)),
    (DoubleType(), pa.float64(), st.floats()),
    (DecimalType(20, 3), pa.decimal128(20, 3), DIGITS),
    (DateType(), pa.date32(), DAYS),
    (TimestamptzType(), pa.timestamp("us", "UTC"), INSTANTS),
    (StringType(), pa.string(), TEXTS),
    (BinaryType(), pa.binary(), st.binary(max_size=40)),
    (FixedType(3), pa.binary(3), st.binary(min_size=3, max_size=3)),
    (ListType(5, StringType(), False), pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=4)),
    (
        ListType(5, ListType(6, LongType(), False), True),
        pa.list_(pa.list_(pa.int64())),
        st.lists(st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=3),
    ),
    (
        MapType(5, StringType(), 6, LongType(), False),
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(TEXTS, st.none() | st.integers(-9, 9), max_size=4).map(lambda d: list(d.items())),
    ),
    (
        STRUCT,
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.none() | TEXTS}),
    ),
]
# ClickHouse has no Nullable lists and maps, and its Parquet reader no Nullable tuples
_NOT_NULLABLE = (ListType, MapType, StructType)


@pytest.mark.parametrize(("kind", "arrow", "values"), COLUMNS, ids=[str(kind) for kind, _, _ in COLUMNS])
def test_clickhouse_and_arrow_agree_on_every_type(
    child: Child, tmp_path: Path, kind: IcebergType, arrow: Any, values: Any
) -> None:
    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(values if isinstance(kind, _NOT_NULLABLE) else st.none() | values, max_size=30))
    def agree(rows: list[Any]) -> None:
        array = pa.array(rows, arrow)
        path = tmp_path / "x.parquet"
        pq.write_table(pa.table({"c": array}), path)
        source = f"file('{path}', Parquet, 'c {_sql_type(kind)}')"
        (found,) = child.rows(f"SELECT {checksums.sql(kind, 'c')} AS s FROM {source}")
        assert found["s"] == checksums.of_arrow(kind, array)
        # slices and chunks are the same column
        middle = len(array) // 2
        chunked = pa.chunked_array([array.slice(0, middle), array.slice(middle)], arrow)
        assert checksums.of_arrow(kind, chunked) == found["s"]

    agree()


def _edges(bits: int) -> list[int]:
    return [0, 1, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]


@pytest.mark.parametrize(
    ("kind", "source_type", "arrow", "values"),
    [
        *((IntegerType(), f"Int{bits}", pa.int32(), _edges(bits)) for bits in (8, 16, 32)),
        (LongType(), "Int32", pa.int64(), _edges(32)),
        (LongType(), "Int64", pa.int64(), _edges(64)),
        (DoubleType(), "Float64", pa.float64(), [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1 / 3]),
        (StringType(), "String", pa.string(), ["", "a", "\0", "ü" * 40]),
        (BinaryType(), "String", pa.binary(), [b"", b"\xff\0", b"x" * 40]),
    ],
)
def test_a_column_of_a_known_type_is_hashed_by_fewer_functions_and_alike(
    child: Child, tmp_path: Path, kind: IcebergType, source_type: str, arrow: Any, values: list[Any]
) -> None:
    path = tmp_path / "x.parquet"
    array = pa.array(values, arrow)
    pq.write_table(pa.table({"c": array}), path)
    short, general = checksums.sql(kind, "c", source_type), checksums.sql(kind, "c")
    assert len(short) < len(general)
    (found,) = child.rows(
        f"SELECT {short} AS s, {general} AS g FROM file('{path}', Parquet, 'c {source_type}')"
    )
    assert found["s"] == found["g"] == checksums.of_arrow(kind, array)


def _sql_type(kind: IcebergType, *, nullable: bool = True) -> str:
    match kind:
        case ListType():
            return f"Array({_sql_type(kind.element_type)})"
        case MapType():
            return f"Map({_sql_type(kind.key_type, nullable=False)}, {_sql_type(kind.value_type)})"
        case StructType():
            inner = ", ".join(f"{item.name} {_sql_type(item.field_type)}" for item in kind.fields)
            return f"Tuple({inner})"
        case DecimalType():
            text = f"Decimal({kind.precision}, {kind.scale})"
        case FixedType():
            text = f"FixedString({len(kind)})"
        case _:
            names = {BooleanType: "Bool", IntegerType: "Int32", LongType: "Int64", FloatType: "Float32",
                     DoubleType: "Float64", DateType: "Date32", StringType: "String", BinaryType: "String",
                     TimestamptzType: "DateTime64(6, \\'UTC\\')", UUIDType: "UUID"}  # fmt: skip
            text = names[type(kind)]
    return f"Nullable({text})" if nullable else text


def test_uuids_agree_too(child: Child) -> None:
    some = [uuid4() for _ in range(20)]
    array = pa.array([value.bytes for value in some], pa.binary(16))
    listed = ", ".join(f"'{value}'" for value in some)
    source = f"SELECT toUUID(arrayJoin([{listed}])) AS c"
    (found,) = child.rows(f"SELECT {checksums.sql(UUIDType(), 'c')} AS s FROM ({source})")
    assert found["s"] == checksums.of_arrow(UUIDType(), array)
    assert found["s"] == checksums.of_arrow(UUIDType(), pa.ExtensionArray.from_storage(pa.uuid(), array))


DIFFERENT: list[tuple[IcebergType, Any, list[Any], list[Any]]] = [
    (LongType(), pa.int64(), [0], [None]),
    (LongType(), pa.int64(), [0, 0], [0]),
    (LongType(), pa.int64(), [1, 4], [2, 3]),
    (StringType(), pa.string(), [""], [None]),
    (StringType(), pa.string(), ["ab", "c"], ["a", "bc"]),
    (BooleanType(), pa.bool_(), [False], [None]),
    (DoubleType(), pa.float64(), [math.nan], [None]),
    (DoubleType(), pa.float64(), [0.0], [-0.0]),
    (ListType(5, LongType(), False), pa.list_(pa.int64()), [[]], [None]),
    (ListType(5, LongType(), False), pa.list_(pa.int64()), [[]], [[None]]),
    (ListType(5, LongType(), False), pa.list_(pa.int64()), [[1, 2]], [[2, 1]]),
    (ListType(5, LongType(), False), pa.list_(pa.int64()), [[1], [2]], [[1, 2], []]),
    (STRUCT, pa.struct([("a", pa.int64()), ("b", pa.string())]), [None], [{"a": None, "b": None}]),
    (
        MapType(5, StringType(), 6, LongType(), False),
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1), ("b", 2)]],
        [[("a", 2), ("b", 1)]],
    ),
]


@pytest.mark.parametrize(("kind", "arrow", "one", "other"), DIFFERENT)
def test_different_columns_differ(kind: IcebergType, arrow: Any, one: list[Any], other: list[Any]) -> None:
    assert checksums.of_arrow(kind, pa.array(one, arrow)) != checksums.of_arrow(kind, pa.array(other, arrow))


def test_the_order_of_rows_and_of_a_map_s_entries_does_not_matter() -> None:
    numbers = pa.array([1, 2, None, 3], pa.int64())
    assert checksums.of_arrow(LongType(), numbers) == checksums.of_arrow(
        LongType(), numbers.take([3, 0, 2, 1])
    )
    kind, arrow = MapType(5, StringType(), 6, LongType(), False), pa.map_(pa.string(), pa.int64())
    one, other = pa.array([[("a", 1), ("b", 2)]], arrow), pa.array([[("b", 2), ("a", 1)]], arrow)
    assert checksums.of_arrow(kind, one) == checksums.of_arrow(kind, other)


def test_every_nan_is_one_nan() -> None:
    import numpy as np

    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64)
    sums = {checksums.of_arrow(DoubleType(), pa.array(bits[n : n + 1].view(np.float64))) for n in range(3)}
    assert len(sums) == 1


@pytest.mark.parametrize(
    ("before", "after", "narrow", "wide", "values"),
    [
        (IntegerType(), LongType(), pa.int32(), pa.int64(), [1, -7, None]),
        (FloatType(), DoubleType(), pa.float32(), pa.float64(), [1.5, -0.1, None]),
        (
            DecimalType(9, 2),
            DecimalType(30, 2),
            pa.decimal128(9, 2),
            pa.decimal128(30, 2),
            [Decimal("-1.25"), None],
        ),
    ],
)
def test_a_promoted_column_keeps_its_checksum(
    before: IcebergType, after: IcebergType, narrow: Any, wide: Any, values: list[Any]
) -> None:
    array = pa.array(values, narrow)
    assert checksums.of_arrow(before, array) == checksums.of_arrow(after, array.cast(wide))


def test_forms_of_an_arrow_column_do_not_matter() -> None:
    plain = pa.array(["a", None, "b", "a"])
    expected = checksums.of_arrow(StringType(), plain)
    for other in (plain.dictionary_encode(), plain.cast(pa.large_string()), plain.cast(pa.string_view())):
        assert checksums.of_arrow(StringType(), other) == expected
    lists = pa.array([["a"], None, []], pa.large_list(pa.large_string()))
    kind = ListType(5, StringType(), False)
    assert checksums.of_arrow(kind, lists) == checksums.of_arrow(kind, lists.cast(pa.list_(pa.string())))


def test_an_empty_column_has_the_checksum_zero_and_sums_are_added_modulo() -> None:
    assert checksums.of_arrow(LongType(), pa.chunked_array([], pa.int64())) == 0
    assert checksums.add(2**64 - 1, 2) == 1
    assert checksums.text(255) == "00000000000000ff"


def test_a_type_without_a_definition_is_an_error() -> None:
    with pytest.raises(PermanentError):
        checksums.sql(TimeType(), "c")
    with pytest.raises(PermanentError):
        checksums.of_arrow(TimeType(), pa.array([1]))
