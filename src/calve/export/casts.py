"""The SQL that makes, of a ClickHouse value, the value of an Iceberg type, at any depth.

A cast is exact or refused (T4). What can fail never fails inside the engine, whose errors name no
column: it comes with checks, true for a value that cannot be written or would become another one,
which the task counts. Only a cast that was asked for as `lossy` may change a value.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import string as literal
from calve.export.exactness import changes
from calve.export.iceberg_types import UnmappedError

UTC_MICROSECONDS = "DateTime64(6, 'UTC')"
NOT_UTF8 = "bytes that are not UTF-8"
_DIGITS = {
    "UInt8": 3,
    "Int8": 3,
    "UInt16": 5,
    "Int16": 5,
    "UInt32": 10,
    "Int32": 10,
    "UInt64": 20,
    "Int64": 19,
}
_FITS_INT = frozenset({"Int8", "Int16", "Int32", "UInt8", "UInt16"})
_FITS_LONG = _FITS_INT | {"UInt32", "Int64"}
_NUMBERS = types.INTEGERS | types.FLOATS


@dataclass(frozen=True, kw_only=True)
class Check:
    sql: str  # true or 1 for a value that cannot be written; NULL counts as false
    reason: str  # "3 rows hold <reason>"


@dataclass(frozen=True, kw_only=True)
class Cast:
    sql: str
    type: str  # ClickHouse's type of the result
    checks: tuple[Check, ...] = ()


def cast(
    source: types.Type, target: IcebergType, expression: str, depth: int = 0, *, lossy: bool = False
) -> Cast:
    """UnmappedError where no cast makes one of the other."""
    kind, nullable = types.stored(source), types.is_nullable(source)
    match kind, target:
        case types.Array(inner), ListType():
            return _list(inner, target, expression, depth, lossy=lossy)
        case types.Map(), MapType():
            return _map(kind, target, expression, depth, lossy=lossy)
        case types.Tuple(), StructType():
            return _struct(kind, target, expression, depth, nullable=nullable, lossy=lossy)
        case _ if lossy and _is_float(kind) and isinstance(target, IntegerType | LongType):
            return _scalar(kind, target, f"trunc({expression})", nullable=nullable)
        case _:
            made = _scalar(kind, target, expression, nullable=nullable)
            changed = "" if lossy else changes(kind, target, expression, made.sql)
            if not changed:
                return made
            check = Check(
                sql=f"(isNotNull({expression}) AND {changed})",
                reason=f"values that the cast to {target} would change",
            )
            return replace(made, checks=(*made.checks, check))


def _list(inner: types.Type, target: ListType, expression: str, depth: int, *, lossy: bool) -> Cast:
    each = f"e{depth}"
    element = cast(inner, target.element_type, each, depth + 1, lossy=lossy)
    return Cast(
        sql=expression if element.sql == each else f"arrayMap({each} -> {element.sql}, {expression})",
        type=f"Array({element.type})",
        checks=_within(element.checks, each, expression),
    )


def _within(checks: Iterable[Check], each: str, array: str) -> tuple[Check, ...]:
    """A check of elements as a check of the array that holds them."""
    return tuple(
        Check(sql=f"arrayExists({each} -> ifNull({check.sql}, 0), {array})", reason=check.reason)
        for check in checks
    )


def _map(kind: types.Map, target: MapType, expression: str, depth: int, *, lossy: bool) -> Cast:
    each_key, each_value = f"k{depth}", f"v{depth}"
    key = cast(kind.key, target.key_type, each_key, depth + 1, lossy=lossy)
    value = cast(kind.value, target.value_type, each_value, depth + 1, lossy=lossy)
    keys, values = f"mapKeys({expression})", f"mapValues({expression})"
    whole = f"Map({key.type}, {value.type})"
    unchanged = key.sql == each_key and value.sql == each_value
    arrays = f"(arrayMap({each_key} -> {key.sql}, {keys}), arrayMap({each_value} -> {value.sql}, {values}))"
    return Cast(
        sql=expression if unchanged else f"CAST({arrays}, {literal(whole)})",
        type=whole,
        checks=_within(key.checks, each_key, keys) + _within(value.checks, each_value, values),
    )


def _struct(
    kind: types.Tuple, target: StructType, expression: str, depth: int, *, nullable: bool, lossy: bool
) -> Cast:
    """Fields are found by name, never by place (P5), and put in the target's order."""
    names = types.struct_names(kind)
    wanted = tuple(field.name for field in target.fields)
    if set(names) != set(wanted):
        raise UnmappedError(
            f"its fields are {', '.join(names)}, those of the table {', '.join(wanted)}",
            "--exclude {column}",
        )
    base = f"assumeNotNull({expression})" if nullable else expression
    sources = {name: place for place, name in enumerate(names)}
    given = [f"tupleElement({base}, {sources[name] + 1})" for name in wanted]
    fields = [
        cast(kind.elements[sources[field.name]].type, field.field_type, one, depth, lossy=lossy)
        for field, one in zip(target.fields, given, strict=True)
    ]
    elements = ", ".join(
        f"{types.element_name(name)} {field.type}" for name, field in zip(wanted, fields, strict=True)
    )
    whole = _nullable(f"Tuple({elements})", nullable)
    unchanged = kind.named and names == wanted and [field.sql for field in fields] == given
    built = f"CAST(tuple({', '.join(field.sql for field in fields)}), {literal(whole)})"
    if nullable:
        built = f"if(isNull({expression}), NULL, {built})"
    return Cast(
        sql=expression if unchanged else built,
        type=whole,
        checks=tuple(check for field in fields for check in field.checks),
    )


def _scalar(kind: types.Type, target: IcebergType, expression: str, *, nullable: bool) -> Cast:
    match target:
        case StringType():
            return _to_string(kind, expression, nullable=nullable)
        case BinaryType() | FixedType():
            return _to_bytes(kind, target, expression, nullable=nullable)
        case IntegerType() | LongType():
            return _to_integer(kind, target, expression, nullable=nullable)
        case FloatType() | DoubleType():
            return _to_float(kind, target, expression, nullable=nullable)
        case DecimalType():
            return _to_decimal(kind, target, expression, nullable=nullable)
        case TimestamptzType():
            return _to_timestamp(kind, expression, nullable=nullable)
        case DateType():
            return _to_date(kind, expression, nullable=nullable)
        case BooleanType():
            return _same_or_parsed(kind, "Bool", target, expression, nullable=nullable)
        case UUIDType():
            return _same_or_parsed(kind, "UUID", target, expression, nullable=nullable)
        case _:
            raise _impossible(kind, target)


def _to_string(kind: types.Type, expression: str, *, nullable: bool) -> Cast:
    result = _nullable("String", nullable)
    match kind:
        case types.Simple("String"):
            return Cast(sql=expression, type=result, checks=(_utf8(expression),))
        case types.Variant() | types.Dynamic() | types.Simple("Geometry"):
            text = f"CAST({expression}, 'Nullable(String)')"
            return Cast(sql=text, type="Nullable(String)", checks=(_utf8(text),))
        case types.Json() | types.Array() | types.Map() | types.Tuple():
            text = f"toJSONString({f'assumeNotNull({expression})' if nullable else expression})"
            text = f"if(isNull({expression}), NULL, {text})" if nullable else text
            return Cast(sql=text, type=result, checks=(_utf8(text),))
        case types.FixedString():
            text = f"CAST({expression}, {literal(result)})"
            return Cast(sql=text, type=result, checks=(_utf8(text),))
        case types.AggregateFunction() | types.Object() | types.QBit() | types.Other():
            raise _impossible(kind, StringType())
        case types.Simple("Nothing"):
            raise _impossible(kind, StringType())
        case _:
            return _plain(expression, "String", nullable=nullable)


def _to_bytes(kind: types.Type, target: IcebergType, expression: str, *, nullable: bool) -> Cast:
    match kind, target:
        case types.Simple("String"), BinaryType():
            return Cast(sql=expression, type=_nullable("String", nullable))
        case types.FixedString(length), FixedType() if length == len(target):
            return Cast(sql=expression, type=_nullable(str(kind), nullable))
        case types.FixedString(length), BinaryType():
            # a plain cast drops the zero bytes at the end
            return Cast(sql=f"concat({expression}, '')", type=_nullable("String", nullable))
        case _:
            raise _impossible(kind, target)


def _to_integer(kind: types.Type, target: IcebergType, expression: str, *, nullable: bool) -> Cast:
    result, fitting = ("Int32", _FITS_INT) if isinstance(target, IntegerType) else ("Int64", _FITS_LONG)
    match kind:
        case types.Simple(name) if name == result:
            return Cast(sql=expression, type=_nullable(result, nullable))
        case types.Simple(name) if name in fitting:
            return _plain(expression, result, nullable=nullable)
        case types.Interval() if result == "Int64":
            return _plain(expression, result, nullable=nullable)
        case types.Simple(name) if name in _NUMBERS or name in {"Bool", "String"}:
            return _checked(expression, result, target, nullable=nullable)
        case types.Decimal():
            return _checked(expression, result, target, nullable=nullable)
        case _:
            raise _impossible(kind, target)


def _to_float(kind: types.Type, target: IcebergType, expression: str, *, nullable: bool) -> Cast:
    result = "Float32" if isinstance(target, FloatType) else "Float64"
    match kind:
        case types.Simple(name) if name == result:
            return Cast(sql=expression, type=_nullable(result, nullable))
        case types.Simple(name) if name in types.FLOATS:
            return _plain(expression, result, nullable=nullable)
        case types.Simple(name) if name in types.INTEGERS or name == "String":
            return _checked(expression, result, target, nullable=nullable)
        case types.Decimal():
            return _plain(expression, result, nullable=nullable)
        case _:
            raise _impossible(kind, target)


def _to_decimal(kind: types.Type, target: DecimalType, expression: str, *, nullable: bool) -> Cast:
    result = f"Decimal({target.precision}, {target.scale})"
    room = target.precision - target.scale
    match kind:
        case types.Decimal(precision, scale) if (precision, scale) == (target.precision, target.scale):
            made = Cast(sql=expression, type=_nullable(result, nullable))
            return replace(made, checks=_digits(kind, target, expression))
        case types.Decimal(precision, scale) if scale <= target.scale and precision - scale <= room:
            made = _plain(expression, result, nullable=nullable)
            return replace(made, checks=_digits(kind, target, expression))
        case types.Simple(name) if _DIGITS.get(name, room + 1) <= room:
            return _plain(expression, result, nullable=nullable)
        case types.Decimal() | types.Simple("String"):
            return _checked(f"toString({expression})", result, target, nullable=nullable)
        case types.Simple(name) if name in types.INTEGERS:
            # by way of text: the engine's own check of wide integers refuses values that fit
            return _checked(f"toString({expression})", result, target, nullable=nullable)
        case _:
            raise _impossible(kind, target)


def _digits(kind: types.Decimal, target: DecimalType, expression: str) -> tuple[Check, ...]:
    """The engine bounds a decimal by the integer that holds it, not by its digits: casts and sums leave more
    (tried: 1234567890123456.78 in a Decimal(12, 2)), which a type of Iceberg does not allow. Compared as that
    integer, which costs next to nothing."""
    bits, most = next(pair for pair in ((32, 9), (64, 18), (128, 38)) if kind.precision <= pair[1])
    digits = target.precision - target.scale + kind.scale
    if digits > most:
        return ()
    limit = f"toInt{bits}({literal('9' * digits)})"
    return (
        Check(
            sql=f"(NOT (reinterpretAsInt{bits}({expression}) BETWEEN -{limit} AND {limit}))",
            reason=f"values with more digits than {target} has",
        ),
    )


def _to_timestamp(kind: types.Type, expression: str, *, nullable: bool) -> Cast:
    """Always microseconds in UTC (W1): the instant, whatever the column's or server's zone (P3)."""
    match kind:
        case types.DateTime() | types.DateTime64() | types.Simple("Date" | "Date32"):
            return Cast(
                sql=f"toDateTime64({expression}, 6, 'UTC')", type=_nullable(UTC_MICROSECONDS, nullable)
            )
        case types.Simple("String"):
            return _checked(expression, UTC_MICROSECONDS, TimestamptzType(), nullable=nullable)
        case _:
            raise _impossible(kind, TimestamptzType())


def _to_date(kind: types.Type, expression: str, *, nullable: bool) -> Cast:
    match kind:
        case types.Simple("Date32"):
            return Cast(sql=expression, type=_nullable("Date32", nullable))
        case types.Simple("Date") | types.DateTime() | types.DateTime64():
            return Cast(sql=f"toDate32({expression})", type=_nullable("Date32", nullable))
        case types.Simple("String"):
            return _checked(expression, "Date32", DateType(), nullable=nullable)
        case _:
            raise _impossible(kind, DateType())


def _same_or_parsed(
    kind: types.Type, result: str, target: IcebergType, expression: str, *, nullable: bool
) -> Cast:
    if kind == types.Simple(result):
        return Cast(sql=expression, type=_nullable(result, nullable))
    if kind == types.Simple("String") or (result == "Bool" and kind in (types.Simple("UInt8"),)):
        return _checked(expression, result, target, nullable=nullable)
    raise _impossible(kind, target)


def _plain(expression: str, result: str, *, nullable: bool) -> Cast:
    whole = _nullable(result, nullable)
    return Cast(sql=f"CAST({expression}, {literal(whole)})", type=whole)


def _checked(expression: str, result: str, target: IcebergType, *, nullable: bool) -> Cast:
    tried = f"accurateCastOrNull({expression}, {literal(result)})"
    return Cast(
        sql=tried if nullable else f"assumeNotNull({tried})",
        type=_nullable(result, nullable),
        checks=(
            Check(
                sql=f"(isNotNull({expression}) AND isNull({tried}))",
                reason=f"values that no {target} can hold",
            ),
        ),
    )


def _is_float(kind: types.Type) -> bool:
    return isinstance(kind, types.Simple) and kind.name in types.FLOATS


def _utf8(expression: str) -> Check:
    return Check(sql=f"(NOT isValidUTF8({expression}))", reason=NOT_UTF8)


def _nullable(text: str, nullable: bool) -> str:
    return f"Nullable({text})" if nullable else text


def _impossible(kind: types.Type, target: IcebergType) -> UnmappedError:
    return UnmappedError(f"{kind} cannot be written as {target}", "--exclude {column}")
