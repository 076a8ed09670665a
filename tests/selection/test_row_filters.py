"""`--where`: only conditions that mean the same at the source and in every task (T3)."""

from collections.abc import Iterator

import pytest

from calve.clickhouse.embedded.parser import Parser, parser
from calve.clickhouse.sql import create_table, filters
from calve.clickhouse.sql.filters import LASTING
from calve.clickhouse.tables import Column, TableInfo
from calve.model.errors import UsageError
from support.place import Place

COLUMNS = {
    "id": "UInt64", "day": "Date", "at": "DateTime", "s": "String", "t": "Tuple(a Int32, b String)",
    "tags": "Array(String)", "n.x": "Array(Int32)", "j": "JSON", "a b": "String", "_row": "UInt8", "price": "Decimal(9, 2)",
}  # fmt: skip
ALIASES = {"double": "id * 2", "late": "at > now()", "quadruple": "double * 2"}
TABLE = TableInfo(
    source="main",
    database="db",
    name="events",
    uuid="",
    identity="test",
    engine="MergeTree",
    clause=create_table.parse("MergeTree ORDER BY id"),
    columns=tuple(Column(name=name, type=kind) for name, kind in COLUMNS.items())
    + tuple(
        Column(name=name, type="UInt64", default_kind="ALIAS", default_expression=text)
        for name, text in ALIASES.items()
    ),
    partition_key="",
    sorting_key="id",
    primary_key="id",
    sampling_key="",
    create_query="",
    storage_policy="",
    data_paths=(),
    timezone="UTC",
    version="26.9",
    user_functions=frozenset({"length"}),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Parser]:
    with parser() as one:
        yield one


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("id<5", "id < 5"),
        ("id < 5 -- few", "id < 5"),
        ("/* some */ id < 5", "id < 5"),
        ("id BETWEEN 1 AND 2 OR NOT s IN ('a', 'b')", "((id >= 1) AND (id <= 2)) OR (NOT (s IN ('a', 'b')))"),
        ("day = '2024-01-01'", "day = '2024-01-01'"),
        ("day >= DATE '2024-01-01' - INTERVAL 1 DAY", "day >= (toDate('2024-01-01') - toIntervalDay(1))"),
        ("s = 'x) OR (id = 1 -- c'", "s = 'x) OR (id = 1 -- c'"),
        ("`a b` LIKE 'x%' AND s IS NOT NULL", "(`a b` LIKE 'x%') AND (s IS NOT NULL)"),
        ("t.a = 1 AND t.b = 'x'", "(t.a = 1) AND (t.b = 'x')"),
        ("tags.size0 > 1 AND has(tags, 'x') AND has(n.x, 1)", "(tags.size0 > 1) AND has(tags, 'x') AND has(n.x, 1)"),
        ("arrayExists(id -> id = 'x', tags)", "arrayExists(id -> (id = 'x'), tags)"),
        ("arrayExists((x, y) -> x = y, tags, tags)", "arrayExists((x, y) -> (x = y), tags, tags)"),
        ("cityHash64(id) % 10 = 3", "(cityHash64(id) % 10) = 3"),
        ("price > 1.50::Decimal(9, 2)", "price > CAST('1.50', 'Decimal(9, 2)')"),
        ("CASE WHEN id > 1 THEN s = 'a' ELSE s = 'b' END", "multiIf(id > 1, s = 'a', s = 'b')"),
        ("_row = 1", "_row = 1"),
        ("quadruple > 8", "quadruple > 8"),
        ("LOWER(s) = 'x'", "LOWER(s) = 'x'"),
    ],
)  # fmt: skip
def test_T3_a_condition_is_kept_as_the_parser_writes_it(engine: Parser, where: str, kept: str) -> None:
    assert filters.checked(engine, TABLE, where) == kept
    assert filters.checked(engine, TABLE, kept) == kept, "and that text is its own"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("id < 5) OR (id = 59000", r"syntax error at character 7"),
        ("(id < 5", "syntax error|ends too early"),
        ("id <", "ends too early|syntax error"),
        ("id < 5 /* open", "syntax error|ends too early"),
        ("s = 'open", "syntax error|ends too early"),
        ("id < 5; SELECT 1", "syntax error|follows"),
        ("id < 5 SETTINGS max_threads = 1", "follows"),
        ("id < 5 FORMAT Null", "follows"),
        ("id < 5 INTO OUTFILE '/tmp/x'", "follows"),
        ("id < 5 GROUP BY ALL", "follows"),
        ("id < 5 LIMIT 1", "follows"),
        ("1 FROM db.other WHERE 1", "follows"),
        ("DISTINCT id < 5", "follows|not one|not allowed|the same"),
        ("id < 5, 1", "not one condition|gives no names|syntax"),
        ("id < 5 AS x", "gives no names"),
        ("_part = 'all_1_1_0'", "character 1: .*no column _part .virtual"),
        ("id = 1 AND _block_number = 3", "character 12: .*_block_number"),
        ("`_part_offset` < 3", "_part_offset"),
        ("_partition_id = '1'", "_partition_id"),
        ("_row_exists = 1", "_row_exists"),
        ("events.id = 1", "no column events.id"),
        ("db.events.id = 1", "no column db.events.id"),
        ("ide < 5", "no column ide"),
        ("arrayExists(x -> y = 'x', tags)", "no column y"),
        ("id IN (SELECT id FROM db.keyless)", "sub-query"),
        ("id = (SELECT 1)", "sub-query"),
        ("EXISTS(SELECT 1)", "sub-query|not allowed"),
        ("id IN other", "IN takes a list"),
        ("id IN tags", "IN takes a list"),
        ("day < today() - 90", r"character 7: today\(\) is not allowed"),
        ("rand() % 2", "rand"),
        ("randExponential(1) > 1", "randExponential"),
        ("NOW() > at", "NOW"),
        ("id < dictGet('d', 'x', id)", "dictGet"),
        ("currentDatabase() = 'x'", "currentDatabase"),
        ("getSetting('max_threads') = id", "getSetting"),
        ("rowNumberInAllBlocks() < 5", "rowNumberInAllBlocks"),
        ("count() > 1", "count"),
        ("sum(id) OVER () > 1", "sum"),
        ("arrayJoin(tags) = 'x'", "arrayJoin"),
        ("arrayReduce('any', [id]) = 1", "arrayReduce"),
        ("length(s) = 1", "length"),  # a function of the source's own, here
        ("late", "now.* .by way of the ALIAS column late"),
        ("id = {x:UInt8}", "parameter|not allowed|follows"),
        ("* = 1", "not a condition|not allowed"),
        ("COLUMNS('i') = 1", "not allowed"),
    ],
)
def test_T3_what_is_not_known_to_be_safe_is_refused(engine: Parser, where: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        filters.checked(engine, TABLE, where)
    assert caught.value.code == "where" and "--where" in caught.value.hint


def test_T3_the_engine_knows_every_allowed_function_and_calls_none_changing(place: Place) -> None:
    known = {
        row["name"]: row["deterministic"]
        for row in place.select("SELECT name, deterministic FROM system.functions WHERE NOT is_aggregate")
    }
    assert sorted(name for name in LASTING - {"lambda"} if known.get(name) != 1) == []


def test_T3_the_rows_of_a_condition_are_those_of_the_source(place: Place) -> None:
    [process] = place.export(
        "db.events", "202401", where="id % 3 = 0 -- every third", to="lake.ns.third", exclude=("wide",)
    )
    [row] = place.select("SELECT count() AS n FROM db.events WHERE toYYYYMM(day) = 202401 AND id % 3 = 0")
    assert process.rows == row["n"] > 0
