"""From text to nodes: recursive descent over the words of one type."""

import re

from calve.clickhouse.sql.tokens import Sort, Token, tokens
from calve.clickhouse.sql.types.nodes import (
    SIMPLE,
    AggregateFunction,
    Array,
    DateTime,
    DateTime64,
    Decimal,
    Dynamic,
    Element,
    Enum,
    FixedString,
    Interval,
    Json,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    Object,
    Other,
    QBit,
    Simple,
    SimpleAggregateFunction,
    Time64,
    Tuple,
    Type,
    Variant,
)

_INTERVAL = re.compile(r"Interval([A-Z][a-z]+)")
_DECIMAL_DIGITS = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_ENUM_BITS = {"Enum8": 8, "Enum16": 16, "Enum": 8}


class _Unreadable(Exception):
    """This parser does not know the type."""


def parse(text: str) -> Type:
    """The tree of a type's text; what cannot be read is `Other`."""
    try:
        return _Parser(text).whole()
    except _Unreadable:
        return Other(text.strip())


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
