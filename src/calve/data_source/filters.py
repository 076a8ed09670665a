"""Spark's simple filters as conditions of ClickHouse, so that granules that cannot match are not read.

Spark evaluates every filter again: a condition here may let too many rows through, never too few.
Filters that ClickHouse might match more narrowly than Spark (NaN is above everything in Spark alone) are
left to Spark.
"""

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Any

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)
from pyspark.sql import datasource as spark

from calve.clickhouse.sql import types
from calve.export.columns import MappedColumn

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARED: Mapping[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_SAME_EVERYWHERE = frozenset(
    {"Bool", "String", "Date", "Date32"}
    | {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
)


def same_at_a_server(one: spark.Filter, columns: Mapping[str, MappedColumn]) -> bool:
    """Whether a server of another version, with its user's own settings, surely takes a condition as our
    engine does: not where the compared value is a text made from another type (JSON has settings for it)."""
    column = columns.get(getattr(one, "attribute", ("",))[0])
    if column is None:
        return False
    match types.strip_wrappers(column.source_type):
        case types.Simple(name):
            return name in _SAME_EVERYWHERE
        case types.Decimal() | types.DateTime() | types.DateTime64() | types.Enum():
            return True
        case _:
            return False


def condition(one: spark.Filter, columns: Mapping[str, MappedColumn]) -> str | None:
    """The SQL of a filter; None where it is left to Spark alone."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    column = columns.get(attribute[0]) if len(attribute) == 1 else None
    if column is None:
        return None
    match one:
        case spark.IsNull():
            return f"isNull({column.cast.sql})"
        case spark.IsNotNull():
            return f"isNotNull({column.cast.sql})"
        case spark.In():
            literals = [_literal(column.type, value) for value in one.value if value is not None]
            if not literals or None in literals:
                return None
            return f"{column.cast.sql} IN ({', '.join(text for text in literals if text is not None)})"
        case _ if type(one) in _COMPARED:
            literal = _literal(column.type, one.value)
            return None if literal is None else f"{column.cast.sql} {_COMPARED[type(one)]} {literal}"
        case _:
            return None


def _literal(kind: IcebergType, value: Any) -> str | None:
    match kind, value:
        case BooleanType(), bool():
            return "true" if value else "false"
        case ((IntegerType() | LongType()), int()):
            return f"toInt64('{value}')"
        case DecimalType(), (int() | decimal.Decimal()):
            return f"CAST('{decimal.Decimal(value):f}', 'Decimal({kind.precision}, {kind.scale})')"
        case StringType(), str():
            return f"unhex('{value.encode().hex()}')"
        case DateType(), dt.date():
            return f"toDate32('{value.isoformat()}')"
        case TimestamptzType(), dt.datetime():
            moment = value if value.tzinfo else value.astimezone()
            micros = (moment - _EPOCH) // dt.timedelta(microseconds=1)
            return f"fromUnixTimestamp64Micro(toInt64({micros}), 'UTC')"
        case _:
            return None
