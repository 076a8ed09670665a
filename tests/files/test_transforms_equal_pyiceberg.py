"""Partition values computed in SQL are those that PyIceberg computes."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from exporting import Child
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from calve.export.transforms import transform_sql

DAYS = [-25567, -366, -365, -32, -31, -1, 0, 1, 30, 31, 364, 365, 19723, 47482]
INSTANTS = [day * 86_400_000_000 + extra for day in DAYS for extra in (0, 1, 3_599_999_999, 86_399_999_999)]
DATES = [f"toDate32({day})" if day >= 0 else f"toDate32('1970-01-01') - {-day}" for day in DAYS]
TIMES = [f"fromUnixTimestamp64Micro(toInt64({micros}), 'UTC')" for micros in INSTANTS]
INTS = [0, 1, -1, 9, 10, -10, -11, 34, 2**31 - 1, -(2**31) + 8]
LONGS = [*INTS, 2**62, -(2**62), 2**63 - 1]
TEXTS = ["", "a", "iceberg", "é漢字🧊x", "🧊🧊🧊🧊", "\x00/../x?"]
DECIMALS = ["0", "14.20", "-10.65", "-0.01", "9999999.99", "-9999999.99"]
WIDE = ["0", "-12345678901234567890.12", "170141183460469231731687303715884105.72", "-0.01"]


def literal(text: str) -> str:
    return f"unhex('{text.encode().hex()}')"


def cases() -> list[Any]:
    days: list[Transform[Any, Any]] = [YearTransform(), MonthTransform(), DayTransform()]
    sevens: list[Transform[Any, Any]] = [BucketTransform(7), BucketTransform(2**31 - 1)]
    lots: list[tuple[IcebergType, list[str], list[Any], list[Transform[Any, Any]]]] = [
        (DateType(), DATES, DAYS, [*days, *sevens]),
        (TimestamptzType(), TIMES, INSTANTS, [*days, HourTransform(), *sevens]),
        (IntegerType(), [f"toInt32({n})" for n in INTS], INTS, [*sevens, TruncateTransform(10)]),
        (LongType(), [f"toInt64('{n}')" for n in LONGS], LONGS, [*sevens, TruncateTransform(10)]),
        (StringType(), [literal(text) for text in TEXTS], TEXTS, [*sevens, TruncateTransform(3)]),
        (
            BinaryType(),
            [f"unhex('{value}')" for value in ("", "ff00", "00ff00ff00")],
            [b"", b"\xff\x00", b"\x00\xff\x00\xff\x00"],
            [*sevens, TruncateTransform(3)],
        ),
        (FixedType(4), ["toFixedString('ab', 4)"], [b"ab\0\0"], sevens),
        (
            UUIDType(),
            ["toUUID('f79c3e09-677c-4bbd-a479-3f349cb785e7')"],
            [UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")],
            sevens,
        ),
        (
            DecimalType(9, 2),
            [f"CAST('{n}', 'Decimal(9, 2)')" for n in DECIMALS],
            [Decimal(n).quantize(Decimal("0.01")) for n in DECIMALS],
            [*sevens, TruncateTransform(50)],
        ),
        (
            DecimalType(38, 2),
            [f"CAST('{n}', 'Decimal(38, 2)')" for n in WIDE],
            [Decimal(n) if "." in n else Decimal(n + ".00") for n in WIDE],
            [*sevens, TruncateTransform(50)],
        ),
    ]
    return [
        pytest.param(kind, sources, values, transform, id=f"{transform}-{kind}")
        for kind, sources, values, transforms in lots
        for transform in transforms
    ]


@pytest.mark.parametrize(("kind", "sources", "values", "transform"), cases())
def test_transforms_equal_pyiceberg_s_also_before_1970_and_below_zero(
    child: Child, kind: IcebergType, sources: list[str], values: list[Any], transform: Transform[Any, Any]
) -> None:
    expected = [transform.transform(kind)(value) for value in values]
    select = transform_sql(transform, kind, "c")
    if isinstance(kind, BinaryType) and isinstance(transform, TruncateTransform):
        select, expected = f"lower(hex({select}))", [value.hex() for value in expected]
    union = " UNION ALL ".join(
        f"SELECT {place} AS n, CAST({source} AS Nullable({_sql_type(kind)})) AS c"
        for place, source in enumerate(sources)
    )
    found = child.rows(f"SELECT {select} AS v FROM ({union}) ORDER BY n")
    assert [row["v"] for row in found] == expected
    (null,) = child.rows(
        f"SELECT {select} AS v FROM (SELECT materialize(NULL)::Nullable({_sql_type(kind)}) AS c)"
    )
    assert null["v"] is None


def _sql_type(kind: IcebergType) -> str:
    match kind:
        case DecimalType():
            return f"Decimal({kind.precision}, {kind.scale})"
        case FixedType():
            return f"FixedString({len(kind)})"
    return {
        DateType: "Date32",
        TimestamptzType: "DateTime64(6, 'UTC')",
        IntegerType: "Int32",
        LongType: "Int64",
        StringType: "String",
        BinaryType: "String",
        UUIDType: "UUID",
    }[type(kind)]


def test_the_days_of_a_timestamp_are_utc_s_whatever_the_session_s_zone(child: Child) -> None:
    select = transform_sql(DayTransform(), TimestamptzType(), "c")
    source = "SELECT toDateTime64('2024-01-01 23:30:00', 6, 'UTC') AS c"
    (row,) = child.rows(f"SELECT {select} AS v FROM ({source}) SETTINGS session_timezone = 'Asia/Tokyo'")
    assert row["v"] == (dt.date(2024, 1, 1) - dt.date(1970, 1, 1)).days
