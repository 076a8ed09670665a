"""ClickHouse's types as a tree: parsed from the text that `system.columns` shows, and back.

Every type that the engine knows has a node here; a text that cannot be understood becomes
`Other` with the text kept, so that a table with a type of tomorrow is refused by name at
planning and never by a crash.
"""

import re
from dataclasses import dataclass

from calve.source.tokens import Sort, Token, name, string, tokens

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
_INTERVAL = re.compile(r"Interval([A-Z][a-z]+)")
_DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_ENUM_BITS = {"Enum8": 8, "Enum16": 16, "Enum": 8}


class _Unreadable(Exception):
    """The text is no type that this parser knows."""


def parse(text: str) -> Type:
    """The tree of a type's text; what cannot be read is `Other`."""
    try:
        return _Parser(text).whole()
    except _Unreadable:
        return Other(text.strip())


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


class _Parser:
    """Recursive descent over the words of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(tokens(text))
        self._at = 0

    def whole(self) -> Type:
        kind = self._type()
        if self._at != len(self._words):
            raise _Unreadable
        return kind

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else None

    def _sees(self, sign: str, ahead: int = 0) -> bool:
        word = self._peek(ahead)
        return word is not None and word.sort is Sort.SIGN and word.text == sign

    def _next(self, sort: Sort | None = None) -> Token:
        word = self._peek()
        if word is None or (sort is not None and word.sort is not sort):
            raise _Unreadable
        self._at += 1
        return word

    def _take(self, sign: str) -> None:
        if not self._sees(sign):
            raise _Unreadable
        self._at += 1

    def _integer(self) -> int:
        negative = self._sees("-")
        if negative:
            self._at += 1
        word = self._next(Sort.NUMBER)
        if not word.text.isdigit():
            raise _Unreadable
        return -int(word.text) if negative else int(word.text)

    def _type(self) -> Type:
        word = self._next(Sort.NAME)
        if not self._sees("("):
            return self._bare(word.text)
        self._at += 1
        kind = self._with_arguments(word)
        self._take(")")
        return kind

    def _bare(self, word: str) -> Type:
        interval = _INTERVAL.fullmatch(word)
        match word:
            case "DateTime":
                return DateTime()
            case "DateTime64":
                return DateTime64(3)
            case "Time64":
                return Time64(3)
            case "Decimal":
                return Decimal(10, 0)
            case "JSON":
                return Json()
            case "Dynamic":
                return Dynamic()
            case _ if word in SIMPLE:
                return Simple(word)
            case _ if interval:
                return Interval(interval.group(1))
            case _:
                raise _Unreadable

    def _with_arguments(self, word: Token) -> Type:
        match word.text:
            case "Nullable":
                return Nullable(self._type())
            case "LowCardinality":
                return LowCardinality(self._type())
            case "Array":
                return Array(self._type())
            case "Map":
                key = self._type()
                self._take(",")
                return Map(key, self._type())
            case "Tuple":
                return Tuple(self._elements(names_required=False))
            case "Nested":
                return Nested(self._elements(names_required=True))
            case "Variant":
                return Variant(self._types())
            case "SimpleAggregateFunction":
                function = self._raw()
                self._take(",")
                return SimpleAggregateFunction(function, self._type())
            case "AggregateFunction":
                return AggregateFunction(self._raws())
            case "JSON":
                return Json(self._raws())
            case "Dynamic":
                return Dynamic(self._raws())
            case "Object":
                return Object(self._raws())
            case _:
                return self._with_numbers(word.text)

    def _with_numbers(self, word: str) -> Type:
        match word:
            case "FixedString":
                return FixedString(self._integer())
            case "Decimal":
                return Decimal(self._integer(), self._after_comma(0))
            case _ if word in _DECIMAL_DIGITS:
                return Decimal(_DECIMAL_DIGITS[word], self._integer())
            case "DateTime":
                return DateTime(self._next(Sort.STRING).value)
            case "DateTime64":
                precision = self._integer()
                if self._sees(","):
                    self._at += 1
                    return DateTime64(precision, self._next(Sort.STRING).value)
                return DateTime64(precision)
            case "Time64":
                return Time64(self._integer())
            case _ if word in _ENUM_BITS:
                return self._enum(word)
            case "QBit":
                return self._qbit()
            case _:
                raise _Unreadable

    def _after_comma(self, default: int) -> int:
        if not self._sees(","):
            return default
        self._at += 1
        return self._integer()

    def _enum(self, word: str) -> Enum:
        values: list[tuple[str, int]] = []
        number = 0
        while True:
            key = self._next(Sort.STRING).value
            if self._sees("="):
                self._at += 1
                number = self._integer()
            else:
                number += 1  # 'a', 'b': numbered from one, or on from the last number given
            values.append((key, number))
            if not self._sees(","):
                break
            self._at += 1
        bits = _ENUM_BITS[word]
        if word == "Enum" and any(not -128 <= value <= 127 for _, value in values):
            bits = 16
        return Enum(bits, tuple(values))

    def _qbit(self) -> QBit:
        element = self._type()
        self._take(",")
        dimension = self._integer()
        if not self._sees(","):
            return QBit(element, dimension)
        self._at += 1
        return QBit(element, dimension, self._raws())

    def _types(self) -> tuple[Type, ...]:
        if self._sees(")"):
            return ()
        found = [self._type()]
        while self._sees(","):
            self._at += 1
            found.append(self._type())
        return tuple(found)

    def _elements(self, *, names_required: bool) -> tuple[Element, ...]:
        if self._sees(")"):
            return ()
        found = [self._element(names_required=names_required)]
        while self._sees(","):
            self._at += 1
            found.append(self._element(names_required=names_required))
        return tuple(found)

    def _element(self, *, names_required: bool) -> Element:
        first, second = self._peek(), self._peek(1)
        named = (
            first is not None
            and second is not None
            and first.sort in (Sort.NAME, Sort.QUOTED)
            and second.sort is Sort.NAME
        )
        if not named:
            if names_required:
                raise _Unreadable
            return Element(None, self._type())
        label = self._next().value
        return Element(label, self._type())

    def _raws(self) -> tuple[str, ...]:
        if self._sees(")"):
            return ()
        found = [self._raw()]
        while self._sees(","):
            self._at += 1
            found.append(self._raw())
        return tuple(found)

    def _raw(self) -> str:
        """One argument as it was written, up to a comma or bracket of its own level."""
        first = self._peek()
        if first is None:
            raise _Unreadable
        depth = 0
        end = first.start
        while (word := self._peek()) is not None:
            if word.sort is Sort.SIGN and depth == 0 and word.text in "),":
                break
            if word.sort is Sort.SIGN and word.text in "()":
                depth += 1 if word.text == "(" else -1
            end = word.end
            self._at += 1
        if end == first.start:
            raise _Unreadable
        return self._text[first.start : end]
