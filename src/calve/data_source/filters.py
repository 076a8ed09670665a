"""Spark's simple filters as conditions of ClickHouse, so that granules that cannot match are not read.

Spark evaluates every filter again: a condition here may let too many rows through, never too few.
What could mean less to ClickHouse than to Spark (NaN is above everything in Spark alone) stays away.
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

from calve.kinds.export.mapping import MappedColumn

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARED: Mapping[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


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
