"""Values at the edges of every type: written by a task, read by value by three readers."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from exporting import Child, export

from calve.destination import checksums
from calve.export.choices import Choices, StringAs, UInt64As

UTC = dt.UTC
LONG_TEXT = "é漢字🧊" * 2000


def instant(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


# (ClickHouse type, SQL of each value, what a reader of the Iceberg table must see)
CASES: list[tuple[str, list[str], list[Any]]] = [
    ("Bool", ["true", "false"], [True, False]),
    ("Int8", ["-128", "127"], [-128, 127]),
    ("Int16", ["-32768", "32767"], [-32768, 32767]),
    ("Int32", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    ("Int64", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    ("UInt8", ["0", "255"], [0, 255]),
    ("UInt16", ["0", "65535"], [0, 65535]),
    ("UInt32", ["0", "4294967295"], [0, 2**32 - 1]),
    ("UInt64", ["0", "18446744073709551615"], [Decimal(0), Decimal(2**64 - 1)]),
    ("Nullable(UInt64)", ["NULL", "18446744073709551615"], [None, Decimal(2**64 - 1)]),
    ("Float32", ["1.5", "-inf", "inf"], [1.5, -math.inf, math.inf]),
    ("Float64", ["-0.0", "5e-324", "1.7976931348623157e308"], [-0.0, 5e-324, 1.7976931348623157e308]),
    ("BFloat16", ["1.5"], [1.5]),
    ("Decimal(9, 2)", ["'-9999999.99'", "'0.01'"], [Decimal("-9999999.99"), Decimal("0.01")]),
    ("Nullable(Decimal(1, 0))", ["9", "NULL"], [Decimal(9), None]),
    ("Decimal(18, 18)", ["'-0.999999999999999999'"], [Decimal("-0.999999999999999999")]),
    ("Decimal(38, 0)", [f"'{'9' * 38}'", f"'-{'9' * 38}'"], [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    ("Decimal(20, 5)", ["'-123456789012345.00001'"], [Decimal("-123456789012345.00001")]),
    ("String", ["''", "'a\\0b'", "'🧊'", f"'{LONG_TEXT}'"], ["", "a\0b", "🧊", LONG_TEXT]),
    ("Nullable(String)", ["NULL", "''"], [None, ""]),
    ("LowCardinality(String)", ["'a'", "'a'", "''"], ["a", "a", ""]),
    ("LowCardinality(Nullable(String))", ["'a'", "NULL"], ["a", None]),
    ("LowCardinality(UInt16)", ["7", "65535"], [7, 65535]),
    ("FixedString(3)", ["'a'", "'abc'"], [b"a\0\0", b"abc"]),
    ("Nullable(FixedString(2))", ["NULL", "unhex('ff00')"], [None, b"\xff\0"]),
    ("Date", ["'1970-01-01'", "'2149-06-06'"], [dt.date(1970, 1, 1), dt.date(2149, 6, 6)]),
    ("Date32", ["'1900-01-01'", "'2299-12-31'"], [dt.date(1900, 1, 1), dt.date(2299, 12, 31)]),
    (
        "DateTime('Asia/Tokyo')",
        ["toDateTime('2024-06-01 12:00:00', 'UTC')", "0"],
        [instant(2024, 6, 1, 12), instant(1970, 1, 1)],
    ),
    ("DateTime", ["4294967295"], [instant(2106, 2, 7, 6, 28, 15)]),
    (
        "DateTime64(3, 'Asia/Tokyo')",
        ["toDateTime64('1900-01-01 00:00:00.001', 3, 'UTC')", "toDateTime64('1969-12-31 23:59:59.999', 3, 'UTC')"],
        [instant(1900, 1, 1, 0, 0, 0, 1000), instant(1969, 12, 31, 23, 59, 59, 999000)],
    ),
    (
        "Nullable(DateTime64(6, 'UTC'))",
        ["NULL", "'2299-12-31 23:59:59.999999'"],
        [None, instant(2299, 12, 31, 23, 59, 59, 999999)],
    ),
    ("Time", ["'23:59:59'"], ["23:59:59"]),
    (
        "UUID",
        ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
        [UUID(int=0), UUID(int=2**128 - 1)],
    ),
    ("Enum8('a' = -1, 'b c' = 2)", ["'a'", "'b c'"], ["a", "b c"]),
    ("Nullable(Enum16('x' = 1000))", ["'x'", "NULL"], ["x", None]),
    ("IPv4", ["'1.2.3.4'"], ["1.2.3.4"]),
    ("Nullable(IPv6)", ["'::1'", "NULL"], ["::1", None]),
    ("JSON", ["'{\"a\":{\"b\":[1,2]}}'"], ['{"a":{"b":[1,2]}}']),
    ("Variant(String, UInt64)", ["'x'", "toUInt64(7)", "NULL"], ["x", "7", None]),
    ("Dynamic", ["'x'", "toUInt64(7)", "NULL"], ["x", "7", None]),
    ("SimpleAggregateFunction(sum, UInt64)", ["5"], [Decimal(5)]),
    ("Array(Nullable(UInt64))", ["[]", "[1, NULL, 18446744073709551615]"], [[], [1, None, 2**64 - 1]]),
    ("Array(Array(Decimal(5, 1)))", ["[[], [1.5], [2.5, -9999.9]]"], [[[], [Decimal("1.5")], [Decimal("2.5"), Decimal("-9999.9")]]]),
    ("Map(String, Nullable(UInt8))", ["map()", "map('a', 255, '', NULL)"], [[], [("a", 255), ("", None)]]),
    ("Map(UInt8, Array(DateTime('UTC')))", ["map(255, ['2024-01-01 00:00:00'])"], [[(255, [instant(2024, 1, 1)])]]),
    ("Map(String, Decimal(4, 2))", ["map('a', 12.34)"], [[("a", Decimal("12.34"))]]),
    ("Tuple(a UInt64, b Nullable(String))", ["(1, NULL)"], [{"a": Decimal(1), "b": None}]),
    ("Tuple(UInt8, String)", ["(255, 'x')"], [{"_1": 255, "_2": "x"}]),
    ("Tuple(a Decimal(3, 1), b Tuple(c Decimal(12, 2), d UInt8))", ["(1.5, (2.25, 3))"],
     [{"a": Decimal("1.5"), "b": {"c": Decimal("2.25"), "d": 3}}]),
    ("Array(Tuple(a UInt32, b Array(Enum8('q' = 1))))", ["[(4294967295, ['q', 'q']), (0, [])]"],
     [[{"a": 2**32 - 1, "b": ["q", "q"]}, {"a": 0, "b": []}]]),
    ("Ring", ["[(1.5, -2)]"], [[{"_1": 1.5, "_2": -2.0}]]),
    ("Point", ["(1.5, -2)"], [{"_1": 1.5, "_2": -2.0}]),
]  # fmt: skip


def canonical(value: Any) -> Any:
    """Readers differ in what they wrap: maps as pairs, decimals as integers, bytes as text."""
    match value:
        case dict():
            return {key: canonical(inner) for key, inner in value.items()}
        case list() | tuple():
            return [canonical(inner) for inner in value]
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case dt.datetime():
            return value.astimezone(UTC)
        case _:
            return value


def columns() -> str:
    return ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(CASES))


def fills() -> list[str]:
    """As many rows as the longest list of values; short lists start over."""
    most = max(len(values) for _, values, _ in CASES)
    return [
        "SELECT " + ", ".join(f"CAST({values[row % len(values)]} AS {kind})" for kind, values, _ in CASES)
        for row in range(most)
    ]


@pytest.fixture(scope="module")
def done(child: Child, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return export(child, tmp_path_factory.mktemp("types"), columns(), *fills())


def expected(place: int) -> list[Any]:
    most = max(len(values) for _, values, _ in CASES)
    values = CASES[place][2]
    return [canonical(values[row % len(values)]) for row in range(most)]


@pytest.mark.parametrize("place", range(len(CASES)), ids=[kind for kind, _, _ in CASES])
def test_pyarrow_reads_what_was_written(done: Any, place: int) -> None:
    found = [canonical(value) for value in done.arrow().column(f"c{place}").to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected(place)))


def test_pyiceberg_reads_what_was_written(done: Any) -> None:
    table = done.table.scan().to_arrow()
    for place in range(len(CASES)):
        found = [canonical(value) for value in table.column(f"c{place}").to_pylist()]
        assert sorted(map(repr, found)) == sorted(map(repr, expected(place))), CASES[place][0]


def test_clickhouse_reads_the_same_checksums_as_the_tasks_computed(done: Any) -> None:
    fields = done.table.schema().fields
    sums = ", ".join(f"{checksums.sql(field.field_type, field.name)} AS {field.name}" for field in fields)
    (row,) = done.by_clickhouse(f"SELECT count() AS rows, {sums} FROM {{table}}")
    assert row["rows"] == sum(receipt.rows for receipt in done.receipts)
    for place, field in enumerate(fields):
        of_tasks = sum(int(receipt.checksums[field.name], 16) for receipt in done.receipts) % 2**64
        assert row[field.name] == of_tasks, CASES[place][0]


def test_pyiceberg_s_arrow_has_the_same_checksums_too(done: Any) -> None:
    table = done.table.scan().to_arrow()
    for field in done.table.schema().fields:
        of_tasks = sum(int(receipt.checksums[field.name], 16) for receipt in done.receipts) % 2**64
        assert checksums.of_arrow(field.field_type, table.column(field.name)) == of_tasks, field.name


def test_W1_every_timestamp_is_in_microseconds_of_utc(done: Any) -> None:
    schema = pq.ParquetFile(done.paths[0]).schema
    stamps = [column for column in schema if "Timestamp" in str(column.logical_type)]
    assert len(stamps) == sum("DateTime" in kind for kind, _, _ in CASES)
    assert all("timeUnit=microseconds" in str(column.logical_type) for column in stamps)
    assert all("isAdjustedToUTC=true" in str(column.logical_type) for column in stamps)


def test_P3_an_instant_is_unchanged_whatever_the_server_s_zone(child: Child, tmp_path: Path) -> None:
    done = export(
        child,
        tmp_path,
        "a DateTime, b DateTime64(3)",
        "SELECT fromUnixTimestamp(1700000000), fromUnixTimestamp64Milli(1700000000123)",
        settings={"session_timezone": "Pacific/Auckland"},
    )
    (row,) = done.table.scan().to_arrow().to_pylist()
    assert row["a"].timestamp() == 1_700_000_000
    assert row["b"].timestamp() == 1_700_000_000.123


def test_P4_a_uint64_is_never_wrapped_but_fails_naming_column_and_part(child: Child, tmp_path: Path) -> None:
    for choices in (Choices(uint64=UInt64As.LONG), Choices(casts={"big": "long"})):
        done = export(
            child, tmp_path, "id Int8, big UInt64",
            "SELECT 1, 9223372036854775807", "SELECT 2, 9223372036854775808",
            choices=choices, expect_errors=True,
        )  # fmt: skip
        (error,) = done.errors
        assert error.code == "value_unwritable" and not error.retryable
        assert "column big: 1 row holds" in error.message and "all_2_2_0" in error.message
    fits = export(child, tmp_path, "big UInt64", "SELECT 9223372036854775807", choices=choices)
    assert fits.arrow().column("big").to_pylist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("columns", "fill"),
    [
        ("s String", "SELECT unhex('ff')"),
        ("s Array(Nullable(String))", "SELECT [NULL, 'a', unhex('c3')]"),
        ("s Map(String, UInt8)", "SELECT map(unhex('ff'), 1)"),
        ("s Tuple(a Int8, b LowCardinality(String))", "SELECT (1, unhex('ff'))"),
    ],
)
def test_text_that_is_not_utf8_fails_naming_the_column(
    child: Child, tmp_path: Path, columns: str, fill: str
) -> None:
    (error,) = export(child, tmp_path, columns, fill, expect_errors=True).errors
    assert error.code == "value_unwritable"
    assert "column s: 1 row holds bytes that are not UTF-8" in error.message
    assert "binary" in error.hint


def test_strings_as_binary_keep_every_byte_and_carry_no_string_annotation(
    child: Child, tmp_path: Path
) -> None:
    done = export(
        child, tmp_path, "s String, n Nullable(String), f FixedString(2)",
        "SELECT unhex('ff00fe'), NULL, unhex('ff00')",
        choices=Choices(strings=StringAs.BINARY, casts={"f": "binary"}),
    )  # fmt: skip
    row = {"s": b"\xff\x00\xfe", "n": None, "f": b"\xff\x00"}
    assert done.arrow().to_pylist() == [row]
    assert done.table.scan().to_arrow().to_pylist() == [row]
    schema = pq.ParquetFile(done.paths[0]).schema
    assert {str(column.logical_type) for column in schema} == {"None"}


def test_casts_that_were_asked_for_keep_values_exact(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "w Int128, n DateTime64(9, 'UTC'), a Array(UInt8), d Decimal(50, 2), s String, u UUID",
        f"SELECT toInt128('{'9' * 38}'), '2024-01-01 00:00:00.123456', [1, 2], '1.25', '2024-02-29',"
        " '00000000-0000-0000-0000-000000000001'",
        choices=Choices(casts={
            "w": "decimal(38,0)", "n": "timestamptz", "a": "string", "d": "decimal(10,2)", "s": "date",
            "u": "string",
        }),
    )  # fmt: skip
    (row,) = done.table.scan().to_arrow().to_pylist()
    assert row == {
        "w": Decimal("9" * 38),
        "n": instant(2024, 1, 1, 0, 0, 0, 123456),
        "a": "[1,2]",
        "d": Decimal("1.25"),
        "s": dt.date(2024, 2, 29),
        "u": "00000000-0000-0000-0000-000000000001",
    }


def test_a_cast_that_cannot_hold_a_value_fails_naming_it(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "w Int128, s String", f"SELECT toInt128('1{'0' * 38}'), 'x'",
        choices=Choices(casts={"w": "decimal(38,0)"}), expect_errors=True,
    )  # fmt: skip
    assert "column w: 1 row holds values that no decimal(38, 0) can hold" in done.errors[0].message


def test_columns_called_like_keywords_quotes_and_each_other_s_casts(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "`select` UInt8, `a b` UInt32, `q``t` UInt16, `calve_c0` UInt8, `e0` Array(UInt8)",
        "SELECT 1, 2, 3, 4, [5]",
    )  # fmt: skip
    assert done.table.scan().to_arrow().to_pylist() == [
        {"select": 1, "a b": 2, "q`t": 3, "calve_c0": 4, "e0": [5]}
    ]


def test_columns_that_are_read_as_they_are_may_be_called_like_what_is_counted(
    child: Child, tmp_path: Path
) -> None:
    done = export(
        child, tmp_path, "rows Int64, s0 Int64, k0 String, n0 Float64, ordinal Int32, calve_s0 Int64, calve_rows Int64",
        "SELECT number - 3, number, toString(number), number, number, 7, 8 FROM numbers(5)",
        where="rows > -2 AND s0 < 4 AND calve_rows = 8 AND ordinal = 3",
    )  # fmt: skip
    expected = {"rows": 0, "s0": 3, "k0": "3", "n0": 3.0, "ordinal": 3, "calve_s0": 7, "calve_rows": 8}
    assert done.table.scan().to_arrow().to_pylist() == [expected]
    (receipt,) = done.receipts
    assert receipt.rows == 1 and len(receipt.checksums) == 7


def test_flattened_nested_columns_are_one_list_of_structs(child: Child, tmp_path: Path) -> None:
    done = export(child, tmp_path, "n Nested(a UInt64, b Nullable(String))", "SELECT [1, 2], ['x', NULL]")
    expected = [{"n": [{"a": Decimal(1), "b": "x"}, {"a": Decimal(2), "b": None}]}]
    assert done.table.scan().to_arrow().to_pylist() == expected


def test_a_null_tuple_is_a_null_struct_not_a_struct_of_nulls(child: Child, tmp_path: Path) -> None:
    done = export(
        child, tmp_path, "t Nullable(Tuple(a Nullable(UInt64), d Decimal(4, 1), s String))",
        "SELECT NULL", "SELECT (NULL, 1.5, 'x')", settings={"allow_experimental_nullable_tuple_type": "1"},
    )  # fmt: skip
    table = done.table.scan().to_arrow()
    rows = sorted(table.column("t").to_pylist(), key=str)
    assert rows == [None, {"a": None, "d": Decimal("1.5"), "s": "x"}]
    field = done.table.schema().find_field("t")
    total = sum(int(receipt.checksums["t"], 16) for receipt in done.receipts) % 2**64
    assert checksums.of_arrow(field.field_type, table.column("t")) == total
