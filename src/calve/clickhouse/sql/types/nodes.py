"""The nodes: one frozen class for each kind of type. `str()` of one is ClickHouse's text."""

import re
from dataclasses import dataclass

from calve.clickhouse.sql.tokens import name, string

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Type:
    """The root of all nodes. `str()` of one is ClickHouse's text."""

    __slots__ = ()


@dataclass(frozen=True)
class Simple(Type):
    """A type without arguments: Bool, Int8 … UInt256, Float32, String, Date, UUID, IPv4, Point …"""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FixedString(Type):
    length: int

    def __str__(self) -> str:
        return f"FixedString({self.length})"


@dataclass(frozen=True)
class Decimal(Type):
    """All of Decimal, Decimal32, Decimal64, Decimal128, Decimal256."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"


@dataclass(frozen=True)
class DateTime(Type):
    zone: str | None = None  # None: the server's

    def __str__(self) -> str:
        return "DateTime" if self.zone is None else f"DateTime({string(self.zone)})"


@dataclass(frozen=True)
class DateTime64(Type):
    precision: int
    zone: str | None = None

    def __str__(self) -> str:
        zone = "" if self.zone is None else f", {string(self.zone)}"
        return f"DateTime64({self.precision}{zone})"


@dataclass(frozen=True)
class Time64(Type):
    precision: int

    def __str__(self) -> str:
        return f"Time64({self.precision})"


@dataclass(frozen=True)
class Enum(Type):
    bits: int
    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"Enum{self.bits}({', '.join(f'{string(key)} = {number}' for key, number in self.values)})"


@dataclass(frozen=True)
class Nullable(Type):
    inner: Type

    def __str__(self) -> str:
        return f"Nullable({self.inner})"


@dataclass(frozen=True)
class LowCardinality(Type):
    inner: Type

    def __str__(self) -> str:
        return f"LowCardinality({self.inner})"


@dataclass(frozen=True)
class Array(Type):
    inner: Type

    def __str__(self) -> str:
        return f"Array({self.inner})"


@dataclass(frozen=True)
class Map(Type):
    key: Type
    value: Type

    def __str__(self) -> str:
        return f"Map({self.key}, {self.value})"


@dataclass(frozen=True)
class Element:
    """One element of a Tuple or Nested; unnamed tuples have no names."""

    name: str | None
    type: Type

    def __str__(self) -> str:
        return str(self.type) if self.name is None else f"{element_name(self.name)} {self.type}"


@dataclass(frozen=True)
class Tuple(Type):
    elements: tuple[Element, ...]

    @property
    def named(self) -> bool:
        return all(element.name is not None for element in self.elements) and bool(self.elements)

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.elements))})"


@dataclass(frozen=True)
class Nested(Type):
    elements: tuple[Element, ...]

    def __str__(self) -> str:
        return f"Nested({', '.join(map(str, self.elements))})"


@dataclass(frozen=True)
class SimpleAggregateFunction(Type):
    """Stored as `inner`; `function` says how merges combine it."""

    function: str
    inner: Type

    def __str__(self) -> str:
        return f"SimpleAggregateFunction({self.function}, {self.inner})"


@dataclass(frozen=True)
class AggregateFunction(Type):
    """An intermediate state: bytes that only ClickHouse can read."""

    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"AggregateFunction({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Variant(Type):
    alternatives: tuple[Type, ...]

    def __str__(self) -> str:
        return f"Variant({', '.join(map(str, self.alternatives))})"


@dataclass(frozen=True)
class Dynamic(Type):
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"Dynamic({', '.join(self.arguments)})" if self.arguments else "Dynamic"


@dataclass(frozen=True)
class Json(Type):
    """JSON with its path hints as they were written."""

    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"JSON({', '.join(self.arguments)})" if self.arguments else "JSON"


@dataclass(frozen=True)
class Object(Type):
    """The old `Object('json')`, which today's engine no longer reads."""

    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"Object({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Interval(Type):
    unit: str  # "Day", "Month", …

    def __str__(self) -> str:
        return f"Interval{self.unit}"


@dataclass(frozen=True)
class QBit(Type):
    element: Type
    dimension: int
    rest: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"QBit({', '.join([str(self.element), str(self.dimension), *self.rest])})"


@dataclass(frozen=True)
class Other(Type):
    """A type that this version does not know."""

    text: str

    def __str__(self) -> str:
        return self.text


INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256))
FLOATS = frozenset({"BFloat16", "Float32", "Float64"})
GEO = frozenset(
    {"Point", "Ring", "Polygon", "MultiPolygon", "LineString", "MultiLineString", "MultiPoint", "Geometry"}
)
SIMPLE = (
    INTEGERS
    | FLOATS
    | GEO
    | frozenset({"Bool", "String", "Date", "Date32", "Time", "UUID", "IPv4", "IPv6", "Nothing"})
)


def element_name(value: str) -> str:
    """A tuple element's name as ClickHouse shows it: quoted only where it must be."""
    return value if _PLAIN_NAME.fullmatch(value) else name(value)


def strip_wrappers(kind: Type) -> Type:
    """What is stored, seen through LowCardinality, Nullable and SimpleAggregateFunction."""
    while isinstance(kind, LowCardinality | Nullable | SimpleAggregateFunction):
        kind = kind.inner
    return kind


def is_nullable(kind: Type) -> bool:
    """Whether NULL is a value of the type: outermost, or just below a see-through wrapper."""
    match kind:
        case Nullable():
            return True
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return is_nullable(inner)
        case Variant() | Dynamic():
            return True
        case _:
            return False


# Without names, as ClickHouse has them: so they are always rebuilt, and not written as WKB.
_POINT = Tuple((Element(None, Simple("Float64")),) * 2)
_RING = Array(_POINT)
_GEO: dict[str, Type] = {
    "Point": _POINT,
    "Ring": _RING,
    "LineString": _RING,
    "MultiPoint": _RING,
    "Polygon": Array(_RING),
    "MultiLineString": Array(_RING),
    "MultiPolygon": Array(Array(_RING)),
}


def stored(kind: Type) -> Type:
    """What the values are, seen through wrappers that change nothing: one level."""
    kind = strip_wrappers(kind)
    if isinstance(kind, Simple) and kind.name in _GEO:
        return _GEO[kind.name]
    if isinstance(kind, Nested):
        return Array(Tuple(kind.elements))
    return kind


def struct_names(kind: Tuple) -> tuple[str, ...]:
    """Names of a struct's fields: a tuple's own, without dots; `_1`, `_2` where it has none."""
    return tuple(
        (element.name if element.name is not None else f"_{place}").replace(".", "_")
        for place, element in enumerate(kind.elements, start=1)
    )
