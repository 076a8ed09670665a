"""Whether a cast changes a value: found by casting back, value by value (T4). Pure SQL text.

Text is compared as what it says: `1.50` and `1.5` are one number, `2024-01-01T00:00:00Z` and
`2024-01-01 00:00:00` one time. Everything else is cast back to its own type and compared there.
"""

from collections.abc import Iterable, Sequence

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import string as literal

_MICROSECOND_DIGITS = 6
_ALWAYS_A_FLOAT = frozenset({"Int8", "UInt8", "Int16", "UInt16", "BFloat16", "Float32"})
_ALWAYS_A_DOUBLE = _ALWAYS_A_FLOAT | {"Int32", "UInt32", "Float64"}
_NUMBER = r"^([+-]?)0*([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]+))?$"  # sign, digits, decimals, exponent
_TIME = (
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[tT]", r"\1 "),
    (r"[zZ]$", ""),
    (r"(\.[0-9]*?)0+$", r"\1"),
    (r"\.$", ""),
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$", r"\1"),
)


def changes(kind: types.Type, target: IcebergType, value: str, made: str) -> str:
    """SQL that is true where `made`, the cast `value`, is not the same value; "" where that cannot be.
    Neither is NULL where it is asked."""
    match kind, target:
        case types.Simple("String"), _:
            return _of_text(target, value, made)
        case types.Decimal(precision, scale), DecimalType() if (
            scale <= target.scale and precision - scale <= target.precision - target.scale
        ):
            return ""
        case types.Decimal(), IntegerType() | LongType() | DecimalType() | FloatType() | DoubleType():
            # by way of text: the shortest text of a float is the decimal that it stands for
            return _differs(f"accurateCastOrNull(toString({made}), {literal(str(kind))})", value)
        case types.Simple(name), IntegerType() | LongType() if name in types.FLOATS:
            minus_zero = f"({value} = 0 AND startsWith(toString({value}), '-'))"
            return f"({_differs(f'accurateCastOrNull({made}, {literal(name)})', value)} OR {minus_zero})"
        case types.Simple(name), FloatType() if name not in _ALWAYS_A_FLOAT:
            return _back_from_float(name, value, made)
        case types.Simple(name), DoubleType() if name not in _ALWAYS_A_DOUBLE:
            return _back_from_float(name, value, made)
        case types.Simple("UInt8"), BooleanType():
            return f"({value} > 1)"
        case types.DateTime(), DateType():
            return f"({_time_of_day(value)} != 0)"
        case types.DateTime64(), DateType():
            return f"({_time_of_day(value)} != 0 OR toStartOfSecond({value}) != {value})"
        case types.DateTime64(precision), TimestamptzType() if precision > _MICROSECOND_DIGITS:
            return f"(toDateTime64({made}, {precision}, 'UTC') != {value})"
        case types.Array() | types.Map() | types.Tuple(), StringType():
            return _not_json(kind, value)
        case types.DateTime() | types.DateTime64(), StringType():
            # the hour that comes twice in autumn has one text for two times
            digits = kind.precision if isinstance(kind, types.DateTime64) else 0
            return f"(toDateTime64({made}, {digits}, timezoneOf({value})) != {value})"
        case _:
            return ""


def _of_text(target: IcebergType, value: str, made: str) -> str:
    match target:
        case IntegerType() | LongType() | DecimalType() | FloatType() | DoubleType():
            return f"({_number(value)} != {_number(f'toString({made})')})"
        case TimestamptzType() | DateType():
            return f"({_as(_TIME, value)} != {_as(_TIME, f'toString({made})')})"
        case BooleanType():
            return f"(lower({value}) NOT IN (toString({made}), toString(toUInt8({made}))))"
        case UUIDType():
            return f"(replaceAll(lower({value}), '-', '') != replaceAll(toString({made}), '-', ''))"
        case _:
            return ""


def _number(text: str) -> str:
    """A number's text in one form, `<digits>e<exponent>`: `1E5`, `100000.0` and `+1e+05` are one number."""
    digits = "replaceRegexpOne(concat(n[2], n[3]), '^0+', '')"
    bare = f"replaceRegexpOne({digits}, '0+$', '')"
    exponent = f"toInt64OrZero(n[4]) - length(n[3]) + length({digits}) - length({bare})"
    form = f"if({bare} = '', '0', concat(replaceOne(n[1], '+', ''), {bare}, 'e', toString({exponent})))"
    return f"arrayMap(n -> if(empty(n), lower({text}), {form}), [extractGroups(lower({text}), {literal(_NUMBER)})])[1]"


def _not_json(kind: types.Type, value: str, depth: int = 0) -> str:
    """Whether somewhere inside there is a number that JSON has no text for, and writes as null; "" if it cannot."""
    each = f"j{depth}"
    match types.stored(kind):
        case types.Simple(name) if name in types.FLOATS:
            return f"ifNull(NOT isFinite({value}), 0)"
        case types.Array(inner):
            within = _not_json(inner, each, depth + 1)
            return within and f"arrayExists({each} -> {within}, {value})"
        case types.Map(key, inner):
            sides = [(key, f"mapKeys({value})"), (inner, f"mapValues({value})")]
            found = [(_not_json(side, each, depth + 1), array) for side, array in sides]
            return _any(f"arrayExists({each} -> {within}, {array})" for within, array in found if within)
        case types.Tuple(elements):
            whole = f"assumeNotNull({value})" if types.is_nullable(kind) else value
            places = enumerate(elements, start=1)
            return _any(
                _not_json(one.type, f"tupleElement({whole}, {place})", depth) for place, one in places
            )
        case _:
            return ""


def _any(conditions: Iterable[str]) -> str:
    given = [condition for condition in conditions if condition]
    return f"({' OR '.join(given)})" if given else ""


def _as(rules: Sequence[tuple[str, str]], text: str) -> str:
    """Text in one form of several that mean the same."""
    made = f"lower({text})"
    for pattern, written in rules:
        made = f"replaceRegexpOne({made}, {literal(pattern)}, {literal(written)})"
    return made


def _back_from_float(name: str, value: str, made: str) -> str:
    if name in types.FLOATS:
        return f"(toFloat64({made}) != {value} AND NOT (isNaN({made}) AND isNaN({value})))"
    return _differs(f"accurateCastOrNull({made}, {literal(name)})", value)


def _differs(back: str, value: str) -> str:
    """True too where nothing comes back."""
    return f"(NOT ifNull({back} = {value}, 0))"


def _time_of_day(value: str) -> str:
    return f"(toHour({value}) * 3600 + toMinute({value}) * 60 + toSecond({value}))"
