"""The SQL that computes an Iceberg partition value of a row exactly as Iceberg does.

Times count from 1970 and are floored, so that the day before is -1. Buckets use
ClickHouse's own `icebergHash`; a test holds all of them equal to PyIceberg's. NULL gives NULL.

Small expressions as a tree: partition keys, sorting keys, `--partition-by`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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

from calve.clickhouse.sql.tokens import Sort, Token, split_arguments, tokens
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


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple["Expression | None", ...]


Expression = Name | Number | Text | Call


def members(key: str) -> list[str]:
    """The members of a key: of a tuple, or of a list without brackets, or the key alone."""
    text = key.strip()
    words = list(tokens(text))
    if words and words[0].text == "(" and _closes_last(words, 0):
        text = text[words[0].end : words[-1].start]
    elif len(words) > 1 and words[0].text == "tuple" and words[1].text == "(" and _closes_last(words, 1):
        text = text[words[1].end : words[-1].start]
    return [member for member in split_arguments(text) if member]


def parse(text: str) -> Expression | None:
    """The tree of one member; None if it is anything else than names, numbers and calls."""
    words = list(tokens(text))
    match words:
        case []:
            return None
        case [Token(sort=Sort.NUMBER, text=digits)] if digits.isdigit():
            return Number(int(digits))
        case [Token(sort=Sort.STRING) as word]:
            return Text(word.value)
        case [Token(sort=Sort.NAME | Sort.QUOTED) as word]:
            return Name(word.value)
        case [Token(sort=Sort.NAME) as word, Token(text="("), *_] if _closes_last(words, 1):
            inner = text[words[1].end : words[-1].start]
            return Call(word.text, tuple(parse(argument) for argument in split_arguments(inner)))
        case [Token(text="("), *_] if _closes_last(words, 0):
            return parse(text[words[0].end : words[-1].start])
        case _:
            return _dotted(words)


def _dotted(words: Sequence[Token]) -> Expression | None:
    """`n.a`, the name of a flattened column."""
    names, dots = words[::2], words[1::2]
    if all(word.sort in (Sort.NAME, Sort.QUOTED) for word in names) and all(dot.text == "." for dot in dots):
        return Name(".".join(word.value for word in names)) if len(names) == len(dots) + 1 else None
    return None


def _closes_last(words: Sequence[Token], opening: int) -> bool:
    """Whether the bracket at `opening` is closed by the very last word."""
    depth = 0
    for place in range(opening, len(words)):
        if words[place].sort is Sort.SIGN:
            depth += (words[place].text == "(") - (words[place].text == ")")
        if depth == 0:
            return place == len(words) - 1
    return False
