"""T4: `--cast` is exact or refused, value by value; a lossy cast has its own word."""

import pytest

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import Column
from calve.export.casts import cast
from calve.export.choices import Choices
from calve.export.columns import map_columns
from calve.export.iceberg_types import parse_cast
from calve.export.request import ExportRequest
from support.place import Place

EXACT = [
    ("Decimal(9, 4)", "long", ["1", "-3.0000"], ["1.2345", "-0.5"]),
    ("Decimal(38, 10)", "decimal(38,2)", ["1.25", "-7"], ["1.2345", "0.001"]),
    ("Decimal(18, 2)", "decimal(9,2)", ["1.25"], ["12345678.91"]),
    ("Decimal(12, 2)", "decimal(12,2)", ["9999999999.99", "-0.01"], ["10000000000.00", "-1234567890123456.78"]),
    ("Decimal(12, 2)", "decimal(14,3)", ["12345678901.23"], ["123456789012.34"]),
    ("Decimal(12, 2)", "decimal(24,2)", ["1234567890123456.78"], []),
    ("Decimal(20, 0)", "decimal(20,0)", ["99999999999999999999"], ["100000000000000000000"]),
    ("Decimal(9, 2)", "double", ["0.1", "1234567.89"], []),
    ("Decimal(9, 2)", "float", ["0.1", "0.5"], ["1234567.89"]),
    ("Decimal(38, 0)", "double", ["100000000000000000000000"], ["100000000000000000000001"]),
    ("String", "decimal(9,2)", ["1.23", "1.2", "1.20", "+1.5", "007", ".5", "-0.5"], ["1.239", "1e300", "x", ""]),
    ("String", "int", ["5", "-5", "+5", "005"], ["5.5", "99999999999", " 5", "5e0", ""]),
    ("String", "long", ["9223372036854775807"], ["9223372036854775808"]),
    ("String", "double",
     ["0.1", "1.5e-7", "-0", "inf", "nan", "0.10", "1E5", "1e+05", "100000.0", "12.5E-1", "-1e22", "0e9", "1e300"],
     ["0.12345678901234567891", "x", "1e400", "123456789012345678", "1.0000000000000000001e5"]),
    ("String", "float", ["0.1", "16777216"], ["16777217", "1e300", "0.123456789"]),
    ("String", "date", ["2024-01-01", "1969-12-31"], ["2024-01-01 12:34:56", "2024-13-01", "x"]),
    ("String", "timestamptz",
     ["2024-01-01 12:34:56", "2024-01-01 12:34:56.123456", "2024-01-01 12:34:56.1200000", "2024-01-01T12:34:56Z"],
     ["2024-01-01 12:34:56.1234567", "2024-01-01 25:00:00", "x"]),
    ("String", "boolean", ["true", "false", "1", "0", "TRUE"], ["2", "yes", "x"]),
    ("String", "uuid", ["61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61F0C404-5CB3-11E7-907B-A6006AD3DBA0"], ["x", "61f0"]),
    ("UInt8", "boolean", ["0", "1"], ["2", "255"]),
    ("UInt64", "long", ["9223372036854775807"], ["9223372036854775808"]),
    ("UInt64", "int", ["5"], ["4294967296"]),
    ("Int32", "float", ["16777216"], ["16777217"]),
    ("Int64", "double", ["9007199254740992"], ["9007199254740993", "9223372036854775807"]),
    ("Float64", "float", ["0.5", "nan", "inf", "-0."], ["0.1", "1e300"]),
    ("Float64", "long", ["5", "-5"], ["1.5", "nan", "inf", "1e300", "-0."]),
    ("Float32", "int", ["5"], ["1.5", "3000000000"]),
    ("DateTime('UTC')", "date", ["2024-01-01 00:00:00"], ["2024-01-01 12:34:56"]),
    ("DateTime64(3, 'Asia/Tokyo')", "date", ["2024-01-01 00:00:00"], ["2024-01-01 00:00:00.001"]),
    ("DateTime64(9, 'UTC')", "timestamptz", ["2024-01-01 00:00:00.123456000"], ["2024-01-01 00:00:00.123456789"]),
    ("DateTime('UTC')", "string", ["2024-01-01 00:00:00"], []),
    ("DateTime('Europe/Berlin')", "string", ["2024-06-01 00:00:00"], []),
    ("Int128", "decimal(38,0)", ["12345678901234567890123456789012345678"], ["170141183460469231731687303715884105727"]),
    ("Enum8('a b' = 1)", "string", ["a b"], []),
    ("IPv6", "string", ["::1"], []),
    ("UUID", "string", ["61f0c404-5cb3-11e7-907b-a6006ad3dba0"], []),
    ("FixedString(4)", "string", ["ab"], []),
    ("Array(Float64)", "string", ["[1.5,-0.1]", "[]", "[1e300]"], ["[nan]", "[1,inf]", "[-inf]"]),
    ("Array(Array(Nullable(Float32)))", "string", ["[[1.5,NULL],[]]"], ["[[1],[NULL,nan]]"]),
    ("Tuple(a String, b Tuple(Float64, Int8))", "string", ["('nan',(1,2))"], ["('x',(inf,2))"]),
    ("Array(String)", "string", ["['nan']"], []),
]  # fmt: skip


CASES = [
    pytest.param(*case, nullable, id=f"{case[0]}-{case[1]}{'-nullable' if nullable else ''}")
    for case in EXACT
    for nullable in (False, True)
    if not (nullable and case[0].startswith(("Array", "Tuple")))  # ClickHouse has no Nullable of these
]


@pytest.mark.parametrize(("kind", "target", "exact", "refused", "nullable"), CASES)
def test_T4_a_cast_is_exact_or_counted(
    place: Place, kind: str, target: str, exact: list[str], refused: list[str], nullable: bool
) -> None:
    whole = f"Nullable({kind})" if nullable else kind
    made = cast(types.parse(whole), parse_cast(target)[0], "c")
    check = " OR ".join(one.sql for one in made.checks) or "0"
    given = [*exact, *refused]
    rows = place.select(
        f"SELECT text, ifNull(({check}), 0) AS bad, toTypeName({made.sql}) AS type FROM"
        f" (SELECT arrayJoin([{', '.join(map(string, given))}]) AS text, CAST(text, {string(whole)}) AS c) ORDER BY text"
    )
    assert {row["text"]: bool(row["bad"]) for row in rows} == {text: text in refused for text in given}
    if nullable:
        [row] = place.select(
            f"SELECT ifNull(({check}), 0) AS bad FROM (SELECT CAST(NULL, {string(whole)}) AS c)"
        )
        assert not row["bad"], "NULL stays NULL"


@pytest.mark.parametrize(("value", "bad"), [("1.5", False), ("nan", True), ("-inf", True)])
def test_T4_a_map_is_written_as_json_only_with_numbers_that_json_has(
    place: Place, value: str, bad: bool
) -> None:
    made = cast(types.parse("Map(String, Float64)"), parse_cast("string")[0], "c")
    check = " OR ".join(one.sql for one in made.checks)
    [row] = place.select(f"SELECT ({check}) AS bad FROM (SELECT map('a', toFloat64('{value}')) AS c)")
    assert bool(row["bad"]) is bad


def test_T4_the_hour_that_comes_twice_is_not_one_text(place: Place) -> None:
    kind = "DateTime('Europe/Berlin')"
    made = cast(types.parse(kind), parse_cast("string")[0], "c")
    check = " OR ".join(one.sql for one in made.checks)
    rows = place.select(
        f"SELECT ({check}) AS bad FROM (SELECT toDateTime(arrayJoin([1729990800, 1729994400]), 'Europe/Berlin') AS c)"
    )
    assert sum(bool(row["bad"]) for row in rows) == 1


@pytest.mark.parametrize(
    ("kind", "target", "value", "becomes"),
    [
        ("Decimal(9, 4)", "long lossy", "1.9", 1),
        ("Float64", "int lossy", "-1.9", -1),
        ("String", "decimal(9,2) lossy", "1.239", "1.23"),
        ("DateTime('UTC')", "date lossy", "2024-01-01 12:34:56", "2024-01-01"),
        ("UInt8", "boolean LOSSY", "2", True),
    ],
)
def test_T4_a_lossy_cast_is_made_where_it_is_asked_for(
    place: Place, kind: str, target: str, value: str, becomes: object
) -> None:
    wanted, lossy = parse_cast(target)
    made = cast(types.parse(kind), wanted, "c", lossy=lossy)
    check = " OR ".join(one.sql for one in made.checks) or "0"
    [row] = place.select(
        f"SELECT {made.sql} AS made, ifNull(({check}), 0) AS bad FROM (SELECT CAST({string(value)}, {string(kind)}) AS c)"
    )
    assert not row["bad"] and str(row["made"]) == str(becomes)


def test_T4_lossy_is_in_the_key_and_in_the_notes() -> None:
    request = ExportRequest(
        source="main", database="db", table="t", catalog="lake", identifier=("ns", "t"), partitions=(),
        casts={"a": "int lossy", "b": "long"},
    )  # fmt: skip
    assert request.selection == '{"lossy": {"a": "int lossy"}}'
    mapping = map_columns(
        [Column(name="a", type="Float64"), Column(name="b", type="Int8")], Choices(casts=request.casts)
    )
    assert any("column a is cast to int with loss" in note for note in mapping.notes)
    assert not any("column b" in note for note in mapping.notes)


def test_T4_an_error_names_column_rows_and_a_value(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.priced (id UInt64, price Decimal(9, 4)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.priced SELECT number, if(number < 3, 1.2345, 2) FROM numbers(10)",
    )
    [process] = place.export("db.priced", "all", to="lake.ns.priced", casts={"price": "long"})
    assert process.error is not None and process.error.code == "value_unwritable"
    assert "column price: 3 rows" in process.error.message and "1.2345" in process.error.message
    assert "--cast 'price=long lossy'" in process.error.hint
    [process] = place.export("db.priced", "all", to="lake.ns.priced", casts={"price": "long lossy"})
    assert (
        process.error is None
        and sorted(place.read("lake.ns.priced")["price"].to_pylist()) == [1] * 3 + [2] * 7
    )
