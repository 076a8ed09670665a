"""Rows out of the engine, exact: `JSONCompactEachRowWithNamesAndTypes` and its decoding.

Integers of any width, decimals, NaN and infinities, bytes that are no UTF-8 (as surrogate
escapes): nothing is rounded or replaced. Dates, times, UUIDs and enums stay text.
"""

import decimal
import json
from collections.abc import Callable
from typing import Any

from calve.clickhouse.sql import types

FORMAT = "JSONCompactEachRowWithNamesAndTypes"
# Without it NaN and infinities are written as null.
SETTINGS = {"output_format_json_quote_denormals": "1"}

Convert = Callable[[Any], Any]


def decode(data: bytes) -> list[dict[str, Any]]:
    """The rows of one answer, each a dict by column name. No data: a statement without rows."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) < 2 or not lines[0]:
        return []
    names: list[str] = json.loads(lines[0])
    converts = [_convert(types.parse(text)) for text in json.loads(lines[1])]
    return [
        {
            name: convert(value) if convert is not None else value
            for name, convert, value in zip(names, converts, _row(line), strict=True)
        }
        for line in lines[2:]
        if line
    ]


def _row(line: str) -> list[Any]:
    row: list[Any] = json.loads(line, parse_float=decimal.Decimal, parse_int=_integer)
    return row


def _integer(text: str) -> int | decimal.Decimal:
    """The engine writes a float of -0.0 as `-0`, and no integer has that sign."""
    return decimal.Decimal(text) if text == "-0" else int(text)


def _convert(kind: types.Type) -> Convert | None:
    """None where JSON's own value is the right one already."""
    match kind:
        case types.Nullable(inner) | types.LowCardinality(inner) | types.SimpleAggregateFunction(_, inner):
            return _or_null(_convert(inner))
        case types.Simple(name) if name in types.INTEGERS:
            return int
        case types.Simple(name) if name in types.FLOATS:
            return float
        case types.Decimal():
            return _decimal
        case types.Array(inner):
            convert = _convert(inner)
            return None if convert is None else lambda values: [convert(value) for value in values]
        case types.Tuple(elements):
            return _tuple(elements)
        case types.Map(key, value):
            return _map(_convert(key), _convert(value))
        case _:
            return None


def _or_null(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(value)


def _tuple(elements: tuple[types.Element, ...]) -> Convert:
    converts = [_convert(element.type) or (lambda value: value) for element in elements]

    def apply(values: Any) -> Any:
        if isinstance(values, dict):
            return {
                key: convert(value) for convert, (key, value) in zip(converts, values.items(), strict=True)
            }
        return [convert(value) for convert, value in zip(converts, values, strict=True)]

    return apply


def _map(key: Convert | None, value: Convert | None) -> Convert:
    def apply(entries: dict[str, Any]) -> dict[Any, Any]:
        return {
            key(name) if key is not None else name: value(item) if value is not None else item
            for name, item in entries.items()
        }

    return apply
