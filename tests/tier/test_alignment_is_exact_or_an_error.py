"""A value of the lake as a value of the table: the same one, or an error. Asked of the real engine."""

from collections.abc import Iterator

import pytest

from calve.clickhouse.sql import types
from calve.clickhouse.tier.alignment import NotAlignedError, align, throw
from calve.model.errors import CalveError
from support.kept_source import KeptSource

UTC6 = "DateTime64(6, 'UTC')"
WIDE = "115792089237316195423570985008687907853269984665640564039457584007913129639935"  # of UInt256

# The table's type, the lake's, a value that fits, and some that do not.
CASES = [
    ("UInt8", "Int32", "255", ["256", "-1"]),
    ("Int8", "Int32", "-128", ["128"]),
    ("UInt64", "Decimal(20, 0)", "18446744073709551615", ["18446744073709551616", "-1"]),
    ("UInt64", "Int64", "1", ["-1"]),
    ("Int128", "Decimal(38, 0)", "'-99999999999999999999999999999999999999'", []),
    ("UInt256", "String", f"'{WIDE}'", ["'115792089237316195423570985008687907853269984665640564039457584007913129639936'", "'x'"]),
    ("Bool", "Int32", "1", ["2"]),
    ("Float32", "Float64", "0.5", ["0.1"]),
    ("BFloat16", "Float32", "1.5", ["1.1"]),
    ("Decimal(9, 1)", "Decimal(18, 2)", "1.2", ["1.25"]),
    ("Decimal(76, 2)", "String", "'1.25'", ["'1.257'", "'x'"]),
    ("Date", "Date32", "'2149-06-06'", ["'1900-01-01'", "'2149-06-07'"]),
    ("DateTime('UTC')", UTC6, "'2106-02-07 06:28:15'", ["'2106-02-07 06:28:16'", "'2024-01-01 00:00:00.000001'", "'1969-12-31 23:59:59'"]),
    ("DateTime64(3, 'Asia/Tokyo')", UTC6, "'2024-01-01 00:00:00.001'", ["'2024-01-01 00:00:00.0001'"]),
    ("DateTime64(9, 'UTC')", UTC6, "'2024-01-01 00:00:00.000001'", ["'2290-01-01 00:00:00'"]),
    ("FixedString(3)", "String", "'ab'", ["'abcd'"]),
    ("Enum8('a' = 1, 'b' = 2)", "String", "'b'", ["'c'", "'2'"]),
    ("UUID", "String", "'00000000-0000-0000-0000-000000000001'", ["'x'"]),
    ("IPv4", "String", "'1.2.3.4'", ["'1.2.3.400'", "''"]),
    ("IPv6", "String", "'::1'", ["'x'"]),
    ("Time", "String", "'12:00:00'", ["'x'"]),
    ("Array(UInt8)", "Array(Int32)", "[1, 255]", ["[1, 256]"]),
    ("Array(Date)", "Array(Date32)", "[toDate32('2024-01-01')]", ["[toDate32('1900-01-01')]"]),
    ("Map(String, UInt8)", "Map(String, Int32)", "map('a', 1)", ["map('a', 256)"]),
    ("Tuple(a UInt8, b Date)", "Tuple(b Date32, a Int32)", "('2024-01-01', 1)", ["('1900-01-01', 1)", "('2024-01-01', 256)"]),
]  # fmt: skip
NEVER = [
    ("Variant(UInt8, String)", "String"),
    ("Dynamic", "String"),
    ("AggregateFunction(sum, UInt8)", "String"),
    ("Array(UInt8)", "String"),
    ("Map(String, UInt8)", "String"),
    ("Int32", "Decimal(9, 2)"),
    ("Date", UTC6),
    ("Tuple(a UInt8, b UInt8)", "Tuple(a Int32, c Int32)"),
    ("Float32", "String"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("aligned") / "clickhouse") as source:
        yield source


def _made(source: KeptSource, hot: str, cold: str, value: str, shown: str = "toTypeName({})") -> str:
    """By a column and not a literal, which the engine would compute in advance."""
    aligned = align(types.parse(hot), types.parse(cold), "x").guarded
    quoted = cold.replace("'", "\\'")
    [row] = source.select(
        f"SELECT {shown.format(aligned)} AS y FROM (SELECT materialize(CAST({value}, '{quoted}')) AS x)"
    )
    return str(row["y"])


@pytest.mark.parametrize(("hot", "cold", "value", "others"), CASES, ids=[case[0] for case in CASES])
def test_what_fits_is_the_same_and_what_does_not_is_an_error(
    source: KeptSource, hot: str, cold: str, value: str, others: list[str]
) -> None:
    assert types.parse(_made(source, hot, cold, value)) == types.parse(hot)
    given = value if value.startswith(("'", "[", "(", "map")) else f"'{value}'"
    quoted = hot.replace("'", "\\'")
    wanted = source.select(f"SELECT toString(CAST({given}, '{quoted}')) AS y") if "Tuple" not in hot else None
    if wanted is not None and "DateTime" not in hot:
        assert _made(source, hot, cold, value, "toString({})") == wanted[0]["y"]
    for other in others:
        with pytest.raises(CalveError):
            _made(source, hot, cold, other, "toString({})")


@pytest.mark.parametrize(("hot", "cold"), NEVER)
def test_what_has_no_exact_way_is_refused(hot: str, cold: str) -> None:
    with pytest.raises(NotAlignedError):
        align(types.parse(hot), types.parse(cold), "x")


@pytest.mark.parametrize("kind", ["UInt8", "Date", "DateTime", "Enum8('a' = 1)", "LowCardinality(String)"])
def test_a_NULL_stays_one_where_the_table_has_them_and_is_an_error_where_not(
    source: KeptSource, kind: str
) -> None:
    lake = {"UInt8": "Int32", "Date": "Date32", "DateTime": UTC6}.get(kind, "String")
    low = "LowCardinality(Nullable(String))"
    assert (
        _made(
            source, low if "Low" in kind else f"Nullable({kind})", f"Nullable({lake})", "NULL", "isNull({})"
        )
        == "1"
    )
    with pytest.raises(CalveError):
        _made(source, kind, f"Nullable({lake})", "NULL", "toString({})")


def test_an_instant_is_the_same_in_every_zone(source: KeptSource) -> None:
    for hot in ("DateTime('UTC')", "DateTime('Asia/Tokyo')", "DateTime64(0, 'America/St_Johns')"):
        assert _made(source, hot, UTC6, "'2024-03-31 01:00:00'", "toUnixTimestamp({})") == "1711846800"


def test_a_check_of_nothing_holds_for_NULL(source: KeptSource) -> None:
    wrong = throw("materialize(CAST(NULL, 'Nullable(UInt8)')) = 1")
    assert source.select(f"SELECT {wrong} AS y") == [{"y": 0}]
