"""The sums of rows: ClickHouse over what it stores and Arrow over what PyIceberg reads agree for every type at its
edges, and one value, one row or one swap between rows changes them."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from generated_tables import (
    ID,
    LEAVES,
    Column,
    GeneratedTable,
    Kind,
    Value,
    array,
    mapping,
    nullable,
    struct_of,
    text,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql import types
from calve.destination import checksums
from calve.model.states import ProcessState
from calve.policy.row_hash import HashedColumn, IncomparableError, RowHash, RowSums, is_comparable
from support.local_runner import LocalRunner
from support.place import Place, kept_place

ROWS = max(len(kind.edges) for kind in LEAVES) + 1


def _held(kind: Kind) -> Kind:
    return array(struct_of(nullable(kind), mapping(text(), array(nullable(kind))), named=True))


KINDS = [*LEAVES, *map(nullable, LEAVES), *map(_held, LEAVES)]
COLUMNS = (ID, *(Column(f"c{place}", kind) for place, kind in enumerate(KINDS, 1)))
TABLE = GeneratedTable(
    COLUMNS,
    tuple(
        (Value(str(row), row), *(kind.edges[row % len(kind.edges)] for kind in KINDS)) for row in range(ROWS)
    ),
    "intDiv(id, 100)",
    "none",
)
# Types and choices that the generated tables lack. All of their values fit.
MORE = (
    "CREATE TABLE db.more (id Int32, wide Int128, unsigned UInt128, widest Int256, long UInt64, b BFloat16,"
    " p Point, ring Ring, agg SimpleAggregateFunction(max, UInt32), n Nested(a Int8, b Nullable(String)),"
    " u UUID, bytes String, cut FixedString(4), late DateTime64(6, 'Europe/Berlin'), none Array(Nullable(UUID)),"
    " mapped Map(LowCardinality(String), Enum8('x' = -1, 'y' = 2)))"
    " ENGINE = MergeTree ORDER BY id",
    "INSERT INTO db.more SELECT number, -number * toInt128('100000000000000000000000'), number, -number,"
    " number * 1000000007, number / 4, (number, -0.0), [(1, number), (nan, 2)], number, range(number % 3),"
    " arrayMap(x -> if(x = 1, NULL, toString(x)), range(number % 3)), generateUUIDv4(), unhex('ff00'), 'ab',"
    " '2024-10-27 02:30:00.123456', [NULL, generateUUIDv4()], map('k', 'x', 'l', if(number % 2, 'x', 'y'))"
    " FROM numbers(40)",
)
MORE_CASTS = {
    **dict.fromkeys(("wide", "unsigned", "widest"), "decimal(38,0)"),
    "long": "long",
    "u": "string",
    "bytes": "binary",
    "cut": "binary",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    with kept_place(tmp_path_factory.mktemp("row-sums"), runner) as place:
        place.execute("CREATE DATABASE db", *TABLE.statements("db.every"), *MORE)
        with place.app() as app:
            ids = place.submit(app, "db.every", "lake.ns.every", partition_by="none")
            ids += place.submit(app, "db.more", "lake.ns.more", casts=MORE_CASTS)
            for process in place.finish(app, ids):
                assert process.state is ProcessState.COMPLETED, process.error
        yield place


def _row_hash(place: Place, name: str) -> RowHash:
    """Over all columns, by what ClickHouse says they are and by the lake's schema."""
    schema = place.table(f"lake.ns.{name}").schema()
    described = place.select(
        f"SELECT name, type FROM system.columns WHERE database = 'db' AND table = '{name}'"
    )
    found = {row["name"]: row["type"] for row in described if not row["name"].startswith("n.")}
    columns = [
        HashedColumn(field_id=schema.find_field(one).field_id, expression=one, type=kind)
        for one, kind in found.items()
    ]
    if name == "more":  # a Nested column lies there as arrays
        whole = "Array(Tuple(a Int8, b Nullable(String)))"
        columns.append(
            HashedColumn(
                field_id=schema.find_field("n").field_id, expression="arrayZip(n.a, n.b)", type=whole
            )
        )
    return RowHash(columns, schema)


def _at_source(place: Place, row_hash: RowHash, name: str, condition: str = "1") -> RowSums:
    [row] = place.select(row_hash.query(f"FROM db.{name} WHERE {condition}"))
    return RowSums(**row)


@pytest.mark.parametrize("name", ["every", "more"])
def test_clickhouse_and_pyiceberg_agree_and_neither_order_nor_batches_matter(place: Place, name: str) -> None:
    row_hash, read = _row_hash(place, name), place.read(f"lake.ns.{name}")
    sums = _at_source(place, row_hash, name)
    assert sums.rows == read.num_rows > 0
    assert row_hash.of_batch(read) == sums
    backwards = read.take(list(range(read.num_rows))[::-1])
    assert row_hash.of_batch(backwards) == sums
    parts = [row_hash.of_batch(read.slice(start, 4)) for start in range(0, read.num_rows, 4)]
    assert sum(parts, RowSums()) == sums
    assert RowSums.parse(str(sums)) == sums
    halves = [_at_source(place, row_hash, name, f"id % 2 = {rest}") for rest in (0, 1)]
    assert halves[0] + halves[1] == sums != halves[0]


def test_one_value_of_any_type_changes_the_sums(place: Place) -> None:
    """The first value of every column, replaced by each other value of that column."""
    schema, read = place.table("lake.ns.every").schema(), place.read("lake.ns.every").sort_by("id")
    for column in COLUMNS[1:]:
        field_id = schema.find_field(column.name).field_id
        row_hash = RowHash([HashedColumn(field_id=field_id, expression="", type=column.kind.text)], schema)
        edges, values = column.kind.edges, read.select([column.name]).combine_chunks()
        sums = row_hash.of_batch(values)
        for to in range(1, len(edges)):
            changed = row_hash.of_batch(values.take([to, *range(1, ROWS)]))
            assert (changed == sums) is _are_one(edges[0], edges[to]), (edges[0].sql, edges[to].sql)


def _are_one(first: Value, second: Value) -> bool:
    """A float's edges have 0.0 and -0.0, which are two values; some types have an edge twice."""
    return repr(first.seen) == repr(second.seen)


def test_rows_that_are_gone_added_doubled_or_mixed_change_the_sums(place: Place) -> None:
    row_hash, read = _row_hash(place, "every"), place.read("lake.ns.every").sort_by("id").combine_chunks()
    sums, order = row_hash.of_batch(read), list(range(ROWS))
    others = [order[1:], [*order, 0], [0, *order[:-1]], [1, *order[1:]]]
    seen = {str(row_hash.of_batch(read.take(rows))) for rows in others}
    assert len(seen) == len(others)
    assert str(sums) not in seen
    assert row_hash.of_batch(read.take([*order, *order])).first != 0  # and a row twice does not cancel itself
    for name in ("id", "c1", "c40"):  # values of one column swapped between two rows: its own sum is the same
        place_of, field = read.schema.get_field_index(name), read.schema.field(name)
        swapped = read.column(name).combine_chunks().take(pa.array([1, 0, *order[2:]]))
        if swapped.equals(read.column(name).combine_chunks()):
            continue
        kind = place.table("lake.ns.every").schema().find_field(name).field_type
        assert checksums.of_arrow(kind, swapped) == checksums.of_arrow(kind, read.column(name))
        assert row_hash.of_batch(read.set_column(place_of, field, swapped)) != sums, name


def test_values_that_the_lake_cannot_hold_are_not_taken_for_those_that_they_wrap_to(place: Place) -> None:
    wrapping: list[tuple[str, int, IcebergType, int]] = [
        ("UInt64", 2**64 - 1, LongType(), -1),
        ("Int128", 2**64 + 5, LongType(), 5),
        ("UInt256", 2**128 + 5, DecimalType(38, 0), 5),
        ("Int256", -(2**128) + 5, DecimalType(38, 0), 5),
    ]
    for kind, value, lake, wrapped in wrapping:
        schema = Schema(NestedField(1, "c", lake, required=False))
        row_hash = RowHash([HashedColumn(field_id=1, expression="c", type=f"Nullable({kind})")], schema)
        arrow = pa.decimal128(38, 0) if isinstance(lake, DecimalType) else pa.int64()
        for stored, seen in ((value, wrapped), (7, 7), (None, None)):
            sql = "NULL" if stored is None else f"'{stored}'"
            [row] = place.select(row_hash.query(f"FROM (SELECT CAST({sql}, 'Nullable({kind})') AS c)"))
            read = pa.table({"c": pa.array([seen], arrow)})
            assert (row_hash.of_batch(read) == RowSums(**row)) is (stored == seen), (kind, stored)


@pytest.mark.parametrize(
    "bad", ["not one", "", "1.2.3", "fe80::1%eth0", "00000000-0000-0000-0000-0000000000 0"]
)
def test_text_that_stands_for_no_number_is_a_difference(place: Place, bad: str) -> None:
    for kind, good in (("UUID", "00000000-0000-0000-0000-000000000000"), ("IPv4", "0.0.0.0"), ("IPv6", "::"),
                       ("Enum8('a' = 0)", "a")):  # fmt: skip
        schema = Schema(NestedField(1, "c", StringType(), required=False))
        row_hash = RowHash([HashedColumn(field_id=1, expression="c", type=kind)], schema)
        quoted = kind.replace("'", "\\'")
        [row] = place.select(row_hash.query(f"FROM (SELECT CAST('{good}', '{quoted}') AS c)"))
        assert row_hash.of_batch(pa.table({"c": [good]})) == RowSums(**row)
        assert row_hash.of_batch(pa.table({"c": [bad]})) != RowSums(**row)
        assert row_hash.of_batch(pa.table({"c": pa.array([None], pa.string())})) != RowSums(**row)


def test_what_is_another_value_in_the_lake_is_not_compared() -> None:
    refused: list[tuple[str, IcebergType]] = [
        ("JSON", StringType()), ("Variant(Int8, String)", StringType()), ("Dynamic", StringType()),
        ("Time", StringType()), ("Time64(3)", StringType()), ("Int128", StringType()),
        ("DateTime64(9)", TimestamptzType()), ("Array(Int8)", StringType()), ("Float64", LongType()),
        ("Decimal(10, 4)", DecimalType(10, 2)), ("Int32", StringType()), ("DateTime", StringType()),
        ("Tuple(a Int8)", StructType(NestedField(1, "b", LongType()))), ("Date", TimestamptzType()),
        ("Array(JSON)", StringType()), ("String", UUIDType()), ("FixedString(4)", StringType()),
    ]  # fmt: skip
    for kind, lake in refused:
        assert not is_comparable(types.parse(kind), lake), kind
        with pytest.raises(IncomparableError):
            RowHash([HashedColumn(field_id=1, expression="c", type=kind)], Schema(NestedField(1, "c", lake)))
    assert is_comparable(types.parse("BFloat16"), DoubleType())
    assert is_comparable(types.parse("String"), BinaryType())


def test_a_column_by_its_cast_is_compared_as_the_lake_has_it(place: Place) -> None:
    schema = Schema(NestedField(1, "c", StringType(), required=False))
    column = HashedColumn(field_id=1, expression="toString(c)", type="Time", cast=True)
    row_hash = RowHash([column], schema)
    [row] = place.select(row_hash.query("FROM (SELECT arrayJoin([1, 22]) AS c)"))
    assert row_hash.of_batch(pa.table({"c": ["22", "1"]})) == RowSums(**row)
