"""Whether two places hold the same rows: one sum over all rows, defined on the values that ClickHouse stores,
before any cast.

It has two implementations that must agree: SQL over a MergeTree table, and Arrow over what PyIceberg reads
back. Neither knows how an export casts. The sum does not depend on the order of rows, nor on how they are split
over parts, files and batches, and sums add up. It is made of whole rows, so values that were swapped between two
rows change it, which sums of columns do not see.

    H(row)  mix(SEED + sum of H(value) * (2 * field id + 1)), and once more with other weights
    sums    the number of rows, and the sum of each of the two hashes modulo 2^64

The hash of a value is that of `destination.checksums`, by the class of the value: numbers by their integer,
floats by their bits with one NaN and both zeros, times by their instant, text by its bytes. Enum, IPv4, IPv6 and a
UUID that the lake has as text are compared as the number behind the text. What is not listed in `_leaf` cannot be
compared this way: its lake form is another value (JSON as text, times cut to microseconds).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
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
from calve.destination import checksums
from calve.destination.checksums import NULL_HASH, SEED, STEP, ArrowHashes, Hashes, HashSql

OTHER = 0xD6E8FEB86659FD93  # the hash of a value that the other side cannot hold
_MASK = (1 << 64) - 1
_MICROSECOND_DIGITS = 6
_ALWAYS_LONG = frozenset({"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"})
_ALWAYS_128 = _ALWAYS_LONG | {"UInt64", "Int128"}
_UUID_LENGTH = 36


class IncomparableError(Exception):
    """Values of these two types cannot be compared as they are stored."""


@dataclass(frozen=True, kw_only=True)
class RowSums:
    """What is kept of some rows. Equal sums mean equal rows, as a multiset."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: "RowSums") -> "RowSums":
        return RowSums(
            rows=self.rows + other.rows,
            first=checksums.add(self.first, other.first),
            second=checksums.add(self.second, other.second),
        )

    def __str__(self) -> str:
        """The form in receipts and marks."""
        return f"{self.rows}:{self.first:016x}{self.second:016x}"

    @classmethod
    def parse(cls, text: str) -> "RowSums":
        rows, _, digits = text.partition(":")
        return cls(rows=int(rows), first=int(digits[:16], 16), second=int(digits[16:], 16))


@dataclass(frozen=True, kw_only=True)
class HashedColumn:
    """One column of both sides."""

    field_id: int  # in the lake
    expression: str  # SQL at the source
    type: str  # ClickHouse's type of it
    cast: bool = False  # the expression makes the lake's value, because stored values cannot be compared


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """How a ClickHouse type and a lake type get the same hash for the same value."""

    sql: HashSql
    arrow: ArrowHashes


class RowHash:
    """The hash of rows of these columns, `schema` being the lake's. IncomparableError, for the first column of
    which that is so."""

    def __init__(self, columns: Sequence[HashedColumn], schema: Schema) -> None:
        self._columns = [
            (column, schema.find_field(column.field_id).name, _pair_of(column, schema)) for column in columns
        ]

    def query(self, from_where: str) -> str:
        """One row: rows, first, second. Each level names only what the one below it made."""
        hashed = ", ".join(
            f"{pair.sql(column.expression, 0)} AS h{place}"
            for place, (column, _, pair) in enumerate(self._columns)
        )
        first, second = (
            " + ".join(
                [str(seed), *(f"h{place} * {weights[which]}" for place, weights in enumerate(self._weights))]
            )
            for which, seed in enumerate((SEED, STEP))
        )
        return (
            "SELECT count() AS rows, sum(intHash64(a)) AS first, sum(intHash64(b)) AS second"
            f" FROM (SELECT {first} AS a, {second} AS b FROM (SELECT {hashed} {from_where}))"
        )

    @property
    def _weights(self) -> list[tuple[int, int]]:
        """Odd numbers, so that no bit of a value's hash is lost."""
        ids = [column.field_id for column, _, _ in self._columns]
        return [(2 * field_id + 1, (field_id * STEP | 1) & _MASK) for field_id in ids]

    def of_batch(self, batch: Any) -> RowSums:
        """Of an Arrow record batch or table with the lake's names."""
        if isinstance(batch, pa.Table):
            return sum((self.of_batch(one) for one in batch.to_batches()), RowSums())
        first = np.full(batch.num_rows, SEED, dtype=np.uint64)
        second = np.full(batch.num_rows, STEP, dtype=np.uint64)
        for (_, name, pair), weights in zip(self._columns, self._weights, strict=True):
            hashed = pair.arrow(batch.column(name))
            first += hashed * np.uint64(weights[0])
            second += hashed * np.uint64(weights[1])
        return RowSums(
            rows=batch.num_rows,
            first=int(np.sum(checksums.mix(first), dtype=np.uint64)),
            second=int(np.sum(checksums.mix(second), dtype=np.uint64)),
        )


def is_comparable(source: types.Type, lake: IcebergType) -> bool:
    try:
        _pair(source, lake)
    except IncomparableError:
        return False
    return True


def _pair_of(column: HashedColumn, schema: Schema) -> _Pair:
    lake = schema.find_field(column.field_id).field_type
    return _same(lake) if column.cast else _pair(types.parse(column.type), lake)


def _pair(source: types.Type, lake: IcebergType) -> _Pair:
    kind = types.stored(source)
    match kind, lake:
        case types.Array(inner), ListType():
            element = _pair(inner, lake.element_type)
            return _nested(
                partial(checksums.list_sql, element.sql), partial(checksums.list_hashes, element.arrow)
            )
        case types.Map(), MapType():
            key, value = _pair(kind.key, lake.key_type), _pair(kind.value, lake.value_type)
            return _nested(
                partial(checksums.map_sql, key.sql, value.sql),
                partial(checksums.map_hashes, key.arrow, value.arrow),
            )
        case types.Tuple(), StructType():
            return _struct(kind, lake)
        case _:
            return _leaf(kind, lake)


def _struct(kind: types.Tuple, lake: StructType) -> _Pair:
    """Fields are found by name, as everywhere."""
    places = {name: place for place, name in enumerate(types.struct_names(kind), start=1)}
    if places.keys() != {field.name for field in lake.fields}:
        raise _incomparable(kind, lake)
    fields = [
        (field, places[field.name], _pair(kind.elements[places[field.name] - 1].type, field.field_type))
        for field in lake.fields
    ]

    def sql(value: str, depth: int) -> str:
        hashed = [
            (field.field_id, pair.sql(f"tupleElement({value}, {place})", depth))
            for field, place, pair in fields
        ]
        return checksums.struct_sql(hashed, value)

    def arrow(array: Any) -> Hashes:
        hashed = [(field.field_id, pair.arrow(array.field(field.name))) for field, _, pair in fields]
        return checksums.struct_hashes(hashed, len(array))

    return _nested(sql, arrow)


def _nested(sql: HashSql, arrow: ArrowHashes) -> _Pair:
    return _Pair(sql=sql, arrow=lambda array: checksums.with_nulls(checksums.plain(array), arrow))


def _leaf(kind: types.Type, lake: IcebergType) -> _Pair:
    """The classes of values. `checksums` has the hash of each lake type."""
    match kind, lake:
        case types.Simple("Bool"), BooleanType():
            return _same(lake)
        case types.Simple("Date" | "Date32"), DateType():
            return _same(lake)
        case types.Simple(name), FloatType() | DoubleType() if name in types.FLOATS:
            return _same(lake)
        case types.Simple("String"), StringType() | BinaryType():
            return _same(lake)
        case types.FixedString(length), FixedType() if length == len(lake):
            return _same(lake)
        case types.FixedString(), BinaryType():
            return _same(lake)
        case types.Simple("UUID"), UUIDType():
            return _same(lake)
        case types.Simple(name), IntegerType() | LongType() if name in types.INTEGERS:
            return _number(_or_other("toInt64", name in _ALWAYS_LONG), lake)
        case types.Simple(name), DecimalType() if name in types.INTEGERS and lake.scale == 0:
            return _number(_or_other("toInt128", name in _ALWAYS_128), lake)
        case types.Decimal(precision, scale), DecimalType() if precision <= 38 and scale <= lake.scale:
            return _number(partial(_unscaled, precision, lake.scale - scale), lake)
        case types.DateTime(), TimestamptzType():
            return _number(lambda value: _sixty_four(f"toInt64({value}) * 1000000"), lake)
        case types.DateTime64(precision), TimestamptzType() if precision <= _MICROSECOND_DIGITS:
            ticks = 10 ** (_MICROSECOND_DIGITS - precision)
            return _number(lambda value: _sixty_four(f"reinterpretAsInt64({value}) * {ticks}"), lake)
        case types.Simple("UUID"), StringType():
            return _text("toUInt128({})", _uuid)
        case types.Simple("IPv4"), StringType():
            return _text("toUInt128(toUInt32({}))", lambda text: int(IPv4Address(text)))
        case types.Simple("IPv6"), StringType():
            return _text("toUInt128({})", _ipv6)
        case types.Enum(_, values), StringType():
            return _text("toInt128(toInt64({}))", dict(values).__getitem__)
    raise _incomparable(kind, lake)


def _incomparable(kind: types.Type, lake: IcebergType) -> IncomparableError:
    return IncomparableError(f"{kind} as {lake}")


def _same(lake: IcebergType) -> _Pair:
    """ClickHouse's value is hashed as the lake's type is."""
    return _Pair(sql=partial(checksums.hash_sql, lake), arrow=partial(checksums.hashes, lake))


def _number(sql: Callable[[str], str], lake: IcebergType) -> _Pair:
    return _Pair(
        sql=lambda value, _: f"ifNull({sql(value)}, {NULL_HASH})", arrow=partial(checksums.hashes, lake)
    )


def _sixty_four(number: str) -> str:
    return f"intHash64(toUInt64({number}) + {SEED})"


def _or_other(convert: str, always: bool) -> Callable[[str], str]:
    """An integer as 64 or 128 bits. A wider one would wrap around to a value that the lake may have."""

    def sql(value: str) -> str:
        number = f"{convert}({value})"
        hashed = _sixty_four(number) if convert == "toInt64" else checksums.wide_sql(number)
        # a NULL is no difference, and its hash stays NULL
        return hashed if always else f"if({number} != {value}, {OTHER}, {hashed})"

    return sql


def _unscaled(precision: int, more_digits: int, value: str) -> str:
    bits = next(bits for bits, most in ((32, 9), (64, 18), (128, 38)) if precision <= most)
    return checksums.wide_sql(f"(toInt128(reinterpretAsInt{bits}({value})) * toInt128('{10**more_digits}'))")


def _text(number: str, parse: Callable[[str], int]) -> _Pair:
    """The lake has the text of a number."""
    return _Pair(
        sql=lambda value, _: f"ifNull({checksums.wide_sql(number.format(value))}, {NULL_HASH})",
        arrow=lambda array: checksums.with_nulls(checksums.plain(array), partial(_parsed, parse)),
    )


def _parsed(parse: Callable[[str], int], array: Any) -> Hashes:
    """Each distinct text once. One that means nothing is a value of its own."""
    encoded = array.dictionary_encode()
    numbers = [_number_of(parse, text) for text in encoded.dictionary.to_pylist()]
    if not numbers:
        return np.zeros(len(array), dtype=np.uint64)
    halves = np.array([_halves(number or 0) for number in numbers], dtype=np.uint64)
    by_code = checksums.wide_hashes(halves, low=0, high=1)
    by_code[[number is None for number in numbers]] = np.uint64(OTHER)
    hashed: Hashes = by_code[np.asarray(pc.fill_null(encoded.indices, 0))]
    return hashed


def _halves(number: int) -> tuple[int, int]:
    return number & _MASK, number >> 64 & _MASK


def _number_of(parse: Callable[[str], int], text: str | None) -> int | None:
    try:
        return None if text is None else parse(text)
    except (ValueError, KeyError):
        return None


def _uuid(text: str) -> int:
    found = bytes.fromhex(text.replace("-", ""))
    if len(text) != _UUID_LENGTH or len(found) != 16:
        raise ValueError(text)
    return int.from_bytes(found, "big")


def _ipv6(text: str) -> int:
    if "%" in text:  # a zone, which the number would not have
        raise ValueError(text)
    return int(IPv6Address(text))
