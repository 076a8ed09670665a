"""Thrift's compact protocol, read into a tree and written back without loss.

Generic on purpose: it knows no Parquet, so fields that a newer writer adds survive. A struct
is a dict from field id to `Value`, which keeps the wire type beside what it holds.
"""

from dataclasses import dataclass
from typing import Any

from calve.model.errors import PermanentError

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_MOST_DEPTH = 64

Struct = dict[int, "Value"]


@dataclass(slots=True)
class Value:
    kind: int
    data: Any


@dataclass(slots=True)
class Items:
    """A list or set: the wire type of its elements, and they."""

    kind: int
    items: list[Any]


@dataclass(slots=True)
class Pairs:
    key_kind: int
    value_kind: int
    pairs: list[tuple[Any, Any]]


def i32(value: int) -> Value:
    return Value(I32, value)


def struct(fields: Struct | None = None) -> Value:
    return Value(STRUCT, fields if fields is not None else {})


def decode(data: bytes) -> Struct:
    """The struct that `data` holds. PermanentError if it is not compact Thrift."""
    reader = _Reader(data)
    try:
        return reader.struct(0)
    except (IndexError, ValueError) as error:
        raise PermanentError(f"the footer is damaged: {error}", code="parquet_footer") from error


def encode(fields: Struct) -> bytes:
    writer = _Writer()
    writer.struct(fields)
    return bytes(writer.out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> Struct:
        if depth > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        fields: Struct = {}
        number = 0
        while header := self._byte():
            kind = header & 0x0F
            number = number + (header >> 4) if header >> 4 else self._signed()
            fields[number] = Value(kind, self._value(kind, depth))
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # booleans of a field are in its header
                return kind == TRUE
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10:
                return self._items(depth)
            case 11:
                return self._pairs(depth)
            case 12:
                return self.struct(depth + 1)
            case _:
                raise ValueError(f"wire type {kind} is unknown")

    def _items(self, depth: int) -> Items:
        header = self._byte()
        count = header >> 4
        if count == 15:
            count = self._unsigned()
        kind = header & 0x0F
        return Items(kind, [self._element(kind, depth) for _ in range(count)])

    def _pairs(self, depth: int) -> Pairs:
        count = self._unsigned()
        if not count:
            return Pairs(0, 0, [])
        kinds = self._byte()
        key, value = kinds >> 4, kinds & 0x0F
        return Pairs(
            key, value, [(self._element(key, depth), self._element(value, depth)) for _ in range(count)]
        )

    def _element(self, kind: int, depth: int) -> Any:
        return self._byte() if kind in (TRUE, FALSE) else self._value(kind, depth)

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _bytes(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError("it ends in the middle of a value")
        value = self._data[self._at : self._at + length]
        self._at += length
        return value

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()

    def struct(self, fields: Struct) -> None:
        last = 0
        for number in sorted(fields):
            value = fields[number]
            kind = (TRUE if value.data else FALSE) if value.kind in (TRUE, FALSE) else value.kind
            if 0 < number - last <= 15:
                self.out.append((number - last) << 4 | kind)
            else:
                self.out.append(kind)
                self._signed(number)
            if value.kind not in (TRUE, FALSE):
                self._value(value.kind, value.data)
            last = number
        self.out.append(0)

    def _value(self, kind: int, data: Any) -> None:
        match kind:
            case 3:
                self.out.append(data)
            case 4 | 5 | 6:
                self._signed(data)
            case 7:
                self.out += data
            case 8:
                self._unsigned(len(data))
                self.out += data
            case 9 | 10:
                self._items(data)
            case 11:
                self._pairs(data)
            case 12:
                self.struct(data)
            case _:
                raise AssertionError(kind)

    def _items(self, data: Items) -> None:
        count = len(data.items)
        self.out.append((count if count < 15 else 15) << 4 | data.kind)
        if count >= 15:
            self._unsigned(count)
        for item in data.items:
            self._element(data.kind, item)

    def _pairs(self, data: Pairs) -> None:
        self._unsigned(len(data.pairs))
        if not data.pairs:
            return
        self.out.append(data.key_kind << 4 | data.value_kind)
        for key, value in data.pairs:
            self._element(data.key_kind, key)
            self._element(data.value_kind, value)

    def _element(self, kind: int, data: Any) -> None:
        if kind in (TRUE, FALSE):
            self.out.append(data)
        else:
            self._value(kind, data)

    def _unsigned(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def _signed(self, value: int) -> None:
        self._unsigned(value << 1 if value >= 0 else ((-value) << 1) - 1)
