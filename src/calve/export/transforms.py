"""The SQL that computes an Iceberg partition value of a row exactly as Iceberg does.

Times count from 1970 and are floored, so that the day before is -1. Buckets use
ClickHouse's own `icebergHash`; a test holds all of them equal to PyIceberg's. NULL gives NULL.
"""

from typing import Any

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from calve.model.errors import UsageError

_MICROSECONDS_A_HOUR = 3_600_000_000


def transform_sql(transform: Transform[Any, Any], kind: IcebergType, select: str) -> str:
    """The partition value of the row, given the SQL of the column's value as it is written."""
    if not transform.can_transform(kind):
        raise unfit(transform, kind)
    match transform:
        case VoidTransform():
            return "NULL"
        case IdentityTransform() if isinstance(kind, FloatType | DoubleType):
            raise unfit(transform, kind)  # NaN, and zeros of both signs, are no one place for a row
        case IdentityTransform():
            return select
        case BucketTransform():
            return _bucket(transform.num_buckets, kind, select)
        case TruncateTransform():
            return _truncate(transform.width, kind, select)
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform():
            return _time(transform, kind, select)
        case _:
            raise unfit(transform, kind)


def unfit(transform: object, kind: IcebergType) -> UsageError:
    return UsageError(
        f"the partition transform {transform} does not take a column of type {kind}",
        code="partition_transform",
        hint="choose another with --partition-by",
    )


def _time(transform: Transform[Any, Any], kind: IcebergType, select: str) -> str:
    if not isinstance(kind, DateType | TimestamptzType):
        raise unfit(transform, kind)
    match transform:
        case YearTransform():
            return f"(toInt32(toYear({select})) - 1970)"
        case MonthTransform():
            return f"((toInt32(toYear({select})) - 1970) * 12 + toInt32(toMonth({select})) - 1)"
        case DayTransform():
            return f"toInt32(toDate32({select}))"
        case _:
            micros = f"toUnixTimestamp64Micro({select})"
            # intDiv cuts towards zero: before 1970 an hour too late
            floored = f"{micros} - positiveModulo({micros}, {_MICROSECONDS_A_HOUR})"
            return f"toInt32(intDiv({floored}, {_MICROSECONDS_A_HOUR}))"


def _bucket(buckets: int, kind: IcebergType, select: str) -> str:
    match kind:
        case IntegerType() | DateType():
            value = f"toInt64({select})"
        case BinaryType() | FixedType():
            value = f"concat({select}, '')"
        case _:
            value = select
    return f"toInt32(modulo(bitAnd(icebergHash({value}), 2147483647), {buckets}))"


def _truncate(width: int, kind: IcebergType, select: str) -> str:
    match kind:
        case IntegerType() | LongType():
            # the engine's own function would widen or narrow the type
            wide = f"toInt64({select})"
            floored = f"{wide} - positiveModulo({wide}, {width})"
            return f"toInt32({floored})" if isinstance(kind, IntegerType) else f"({floored})"
        case DecimalType():
            unscaled = f"reinterpretAsInt128(toDecimal128({select}, {kind.scale}))"
            remainder = f"toInt128(positiveModulo({unscaled}, toInt128({width})))"
            return f"reinterpret({unscaled} - {remainder}, 'Decimal(38, {kind.scale})')"
        case StringType():
            return f"substringUTF8({select}, 1, {width})"
        case BinaryType():
            return f"substring({select}, 1, {width})"
        case _:
            raise unfit(f"truncate[{width}]", kind)
