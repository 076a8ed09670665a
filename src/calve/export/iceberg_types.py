"""Which Iceberg type a ClickHouse type becomes. What has no home is refused with a way out.

Field ids of nested types are placeholders here: the table gives the real ones.
"""

import re
from dataclasses import dataclass
from functools import partial

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql import types
from calve.export.choices import Choices, NanosecondsAs, StringAs, UInt64As, UuidAs, WideIntegersAs

PLACEHOLDER_ID = -1
MOST_DIGITS = 38
_TO_STRING = "--cast {column}=string"

_PLAIN: dict[str, IcebergType] = {
    "Bool": BooleanType(),
    "Int8": IntegerType(),
    "Int16": IntegerType(),
    "Int32": IntegerType(),
    "UInt8": IntegerType(),
    "UInt16": IntegerType(),
    "UInt32": LongType(),
    "Int64": LongType(),
    "BFloat16": FloatType(),
    "Float32": FloatType(),
    "Float64": DoubleType(),
    "Date": DateType(),
    "Date32": DateType(),
    "Time": StringType(),  # Spark cannot load a table that has a column of Iceberg's `time`
    "IPv4": StringType(),
    "IPv6": StringType(),
    "Geometry": StringType(),
}
_WIDE = frozenset({"Int128", "UInt128", "Int256", "UInt256"})


LOSSY = "lossy"


class UnmappedError(Exception):
    """A type without a home; the caller collects it. `hint` may hold {column}."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class TypeTarget:
    """An Iceberg type and whether NULL is never a value of it."""

    type: IcebergType
    required: bool


def derive(kind: types.Type, choices: Choices) -> TypeTarget:
    """The type a new table gets. UnmappedError where there is none."""
    return TypeTarget(type=_type(types.stored(kind), choices), required=not types.is_nullable(kind))


def _type(kind: types.Type, choices: Choices) -> IcebergType:
    match kind:
        case types.Simple(name):
            return _simple(name, choices)
        case types.FixedString(length):
            return FixedType(length)
        case types.Decimal(precision, scale):
            return _decimal(precision, scale)
        case types.DateTime():
            return TimestamptzType()
        case types.DateTime64(precision):
            return _timestamp(precision, choices)
        case types.Enum() | types.Time64() | types.Json() | types.Variant() | types.Dynamic():
            return StringType()
        case types.Array(inner):
            element = derive(inner, choices)
            return ListType(PLACEHOLDER_ID, element.type, element.required)
        case types.Map(key, value):
            return _map(key, value, choices)
        case types.Tuple():
            return _struct(kind, choices)
        case _:
            raise _homeless(kind)


def _simple(name: str, choices: Choices) -> IcebergType:
    if name in _PLAIN:
        return _PLAIN[name]
    match name:
        case "UInt64":
            return LongType() if choices.uint64 is UInt64As.LONG else DecimalType(20, 0)
        case "String":
            return BinaryType() if choices.strings is StringAs.BINARY else StringType()
        case "UUID":
            return StringType() if choices.uuid is UuidAs.STRING else UUIDType()
        case _ if name in _WIDE:
            return _wide(name, choices)
        case _:
            raise _homeless(types.Simple(name))


def _wide(name: str, choices: Choices) -> IcebergType:
    match choices.wide_integers:
        case WideIntegersAs.DECIMAL:
            return DecimalType(MOST_DIGITS, 0)
        case WideIntegersAs.STRING:
            return StringType()
        case WideIntegersAs.REFUSE:
            raise UnmappedError(
                f"{name} is wider than any Iceberg integer",
                "--cast {column}='decimal(38,0)' (fails on values of more digits), or --cast {column}=string",
            )


def _decimal(precision: int, scale: int) -> IcebergType:
    if precision > MOST_DIGITS:
        raise UnmappedError(
            f"Decimal({precision}, {scale}) has more digits than Iceberg's 38",
            f"--cast {{column}}='decimal(38,{min(scale, MOST_DIGITS)})' (fails on values of more digits),"
            " or --cast {column}=string",
        )
    return DecimalType(precision, scale)


def _timestamp(precision: int, choices: Choices) -> IcebergType:
    if precision > 6 and choices.nanoseconds is not NanosecondsAs.TRUNCATE:
        raise UnmappedError(
            f"DateTime64({precision}) is finer than Iceberg's microseconds",
            "--cast {column}='timestamptz lossy' cuts the rest off; --cast {column}=string keeps it",
        )
    return TimestamptzType()


def _map(key: types.Type, value: types.Type, choices: Choices) -> IcebergType:
    keys, values = derive(key, choices), derive(value, choices)
    if not keys.required:
        raise UnmappedError("a map's keys may not be NULL in Iceberg", _TO_STRING)
    return MapType(PLACEHOLDER_ID, keys.type, PLACEHOLDER_ID, values.type, values.required)


def _struct(kind: types.Tuple, choices: Choices) -> IcebergType:
    names = types.struct_names(kind)
    if not names:
        raise UnmappedError("an empty Tuple holds nothing", "--exclude {column}")
    if len(set(names)) < len(names):
        raise UnmappedError(f"its fields would share names: {', '.join(names)}", _TO_STRING)
    targets = [derive(element.type, choices) for element in kind.elements]
    return StructType(
        *(
            NestedField(PLACEHOLDER_ID, name, target.type, required=target.required)
            for name, target in zip(names, targets, strict=True)
        )
    )


def _homeless(kind: types.Type) -> UnmappedError:
    exclude = "--exclude {column}"
    refused = partial(UnmappedError, hint=exclude)
    match kind:
        case types.AggregateFunction():
            return UnmappedError(
                f"{kind} holds intermediate states that only ClickHouse can read",
                f"{exclude}, or export a table that holds finalizeAggregation({{column}})",
            )
        case types.Interval():
            return UnmappedError(f"{kind} has no Iceberg type", "--cast {column}=long")
        case types.Simple("Nothing"):
            return refused("Nothing has no values")
        case types.Object():
            return refused(f"{kind} is no longer read by ClickHouse's engine")
        case types.QBit():
            return refused(f"{kind} has no Iceberg type")
        case _:
            return refused(f"the type {kind} is not known to this version")


def parse_iceberg(text: str) -> IcebergType:
    """A primitive Iceberg type from its text: `long`, `decimal(20,0)`. ValueError otherwise."""
    plain = text.strip().lower()
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    if (found := _DECIMAL_TEXT.fullmatch(plain)) and 0 < int(found[1]) <= MOST_DIGITS >= int(found[2]):
        return DecimalType(int(found[1]), int(found[2]))
    if (found := _FIXED_TEXT.fullmatch(plain)) and int(found[1]):
        return FixedType(int(found[1]))
    raise ValueError(f"{text!r} is not a type that a column can be cast to")


def parse_cast(text: str) -> tuple[IcebergType, bool]:
    """`--cast`'s type, and whether values may change: `int lossy`. ValueError otherwise."""
    words = text.split()
    lossy = len(words) > 1 and words[-1].lower() == LOSSY
    return parse_iceberg(" ".join(words[:-1]) if lossy else text), lossy


_DECIMAL_TEXT = re.compile(r"decimal\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED_TEXT = re.compile(r"fixed\s*\[\s*(\d+)\s*\]")
_BY_NAME: dict[str, IcebergType] = {
    str(kind): kind
    for kind in (
        BooleanType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        DateType(),
        TimestamptzType(),
        StringType(),
        UUIDType(),
        BinaryType(),
    )
}
CASTABLE = (*_BY_NAME, "decimal(P,S)", "fixed[N]")
