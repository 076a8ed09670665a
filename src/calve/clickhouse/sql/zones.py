"""Explicit time zones: a DateTime without a zone means its server's, and executors run elsewhere.

Values are moments and are the same everywhere; but a filter that asks for an hour or a day must
ask in the zone that the table's owner means (P3). A type keeps the zone it was made with, so a
setting of the session comes too late.
"""

from calve.clickhouse.sql.types import (
    Array,
    DateTime,
    DateTime64,
    Element,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    SimpleAggregateFunction,
    Tuple,
    Type,
    parse,
)


def explicit(text: str, zone: str) -> str:
    """The type with its zone named; as it was where none is meant."""
    kind = parse(text)
    said = _said(kind, zone)
    return text if said == kind else str(said)


def _said(kind: Type, zone: str) -> Type:
    match kind:
        case DateTime(None):
            return DateTime(zone)
        case DateTime64(precision, None):
            return DateTime64(precision, zone)
        case Nullable(inner):
            return Nullable(_said(inner, zone))
        case LowCardinality(inner):
            return LowCardinality(_said(inner, zone))
        case SimpleAggregateFunction(function, inner):
            return SimpleAggregateFunction(function, _said(inner, zone))
        case Array(inner):
            return Array(_said(inner, zone))
        case Map(key, value):
            return Map(_said(key, zone), _said(value, zone))
        case Tuple(elements):
            return Tuple(_elements(elements, zone))
        case Nested(elements):
            return Nested(_elements(elements, zone))
        case _:
            return kind


def _elements(elements: tuple[Element, ...], zone: str) -> tuple[Element, ...]:
    return tuple(Element(element.name, _said(element.type, zone)) for element in elements)
