"""Tables made at random: nested types, values at their edges, source keys, destination specs.

Every value comes with the SQL that makes it in ClickHouse and with what a reader of the Iceberg
table must see, so that nothing of Calve, and no reader, is its own judge.
"""

import datetime as dt
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as some

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = ("UTC", "Asia/Tokyo", "America/St_Johns")
LABELS = ("a", "b c", "é🧊", "/../x")
# Short enough for a folder's name; the long text beside it is beyond what footers keep (W3).
TEXTS = ("", "\0", "a", "é", "漢字", "🧊", "\U0010ffff", "\uffff", "a/../../b?c\nd", "NULL", "null", "x" * 40)
LONG_UNIT, LONG_TIMES = "é漢字🧊", 1500
LONG = LONG_UNIT * LONG_TIMES


@dataclass(frozen=True)
class Value:
    sql: str
    seen: Any  # by a reader: maps are lists of pairs, structs lists of fields


@dataclass(frozen=True)
class Kind:
    """A ClickHouse type and its values."""

    text: str
    edges: tuple[Value, ...]
    more: "some.SearchStrategy[Value] | None" = None
    keys: tuple[str, ...] = ()  # source partition keys over {c}
    specs: tuple[str, ...] = ()  # destination fields over {c}

    @property
    def values(self) -> "some.SearchStrategy[Value]":
        edges = some.sampled_from(self.edges)
        return edges if self.more is None else edges | self.more


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True, repr=False)
class GeneratedTable:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    partition_key: str
    partition_by: str

    def __repr__(self) -> str:
        """Short: the statements that make it are noted where a test fails."""
        return f"<table by {self.partition_key} to {self.partition_by or 'the same'}>"

    def statements(self, table: str) -> list[str]:
        """One part for each row, or more."""
        declared = ", ".join(f"{column.name} {column.kind.text}" for column in self.columns)
        create = (
            f"CREATE TABLE {table} ({declared}) ENGINE = MergeTree PARTITION BY {self.partition_key}"
            " ORDER BY id SETTINGS allow_nullable_key = 1"
        )
        inserts = [
            f"INSERT INTO {table} SELECT "
            + ", ".join(
                f"{value.sql} AS {column.name}" for column, value in zip(self.columns, row, strict=True)
            )
            for row in self.rows
        ]
        return [create, *inserts]


# ---- leaves


def _cast(text: str, kind: str) -> str:
    quoted = kind.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST({text}, '{quoted}')"


def integer(bits: int, *, signed: bool) -> Kind:
    name = f"{'Int' if signed else 'UInt'}{bits}"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def value(number: int) -> Value:
        return Value(_cast(f"'{number}'", name), number)

    edges = tuple(value(number) for number in dict.fromkeys((low, high, 0, 1, low + 1)))
    exact = "icebergTruncate(10, {c})" if bits < 64 else "{c}"
    specs = ("{c}", "bucket(4, {c})", "truncate(10, {c})")
    return Kind(name, edges, some.integers(low, high).map(value), ("{c}", exact), specs)


def boolean() -> Kind:
    return Kind("Bool", (Value("true", True), Value("false", False)), None, ("{c}",), ("{c}",))


def floating(bits: int) -> Kind:
    code, word = ("f", "I") if bits == 32 else ("d", "Q")

    def value(number: float) -> Value:
        raw = struct.unpack(word, struct.pack(code, number))[0]
        made = f"reinterpretAsFloat{bits}(toUInt{bits}({raw}))"
        return Value(made, struct.unpack(code, struct.pack(code, number))[0])

    largest = struct.unpack(code, struct.pack(word, 0x7F7FFFFF if bits == 32 else 0x7FEFFFFFFFFFFFFF))[0]
    numbers = (
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        0.0,
        largest,
        -largest,
        5e-324 if bits == 64 else 1e-45,
        1.5,
    )
    return Kind(f"Float{bits}", tuple(map(value, numbers)), some.floats(width=bits).map(value))


def decimal(precision: int, scale: int) -> Kind:
    name = f"Decimal({precision}, {scale})"

    def value(unscaled: int) -> Value:
        sign, digits = "-" if unscaled < 0 else "", f"{abs(unscaled):0{scale + 1}d}"
        text = f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"
        return Value(_cast(f"'{text}'", name), Decimal(text))

    most = 10**precision - 1
    edges = tuple(value(number) for number in (most, -most, 0, 1, -1))
    specs = ("{c}", "bucket(4, {c})", "truncate(10, {c})")
    return Kind(name, edges, some.integers(-most, most).map(value), ("{c}",), specs)


def text_sql(content: str) -> str:
    """Any text; the long one is repeated by the engine, since a statement's length has a limit."""
    if content.startswith(LONG):
        unit = LONG_UNIT.encode().hex()
        return f"concat(repeat(unhex('{unit}'), {LONG_TIMES}), {text_sql(content[len(LONG) :])})"
    return f"unhex('{content.encode().hex()}')"


def text(name: str = "String", *, long: bool = False) -> Kind:
    def value(content: str) -> Value:
        return Value(_cast(text_sql(content), name), content)

    characters = some.characters(exclude_categories=("Cs",))
    edges = tuple(map(value, (*TEXTS, LONG, LONG + "z") if long else TEXTS))
    truncated = ("bucket(4, {c})", "truncate(2, {c})")
    return Kind(
        name,
        edges,
        some.text(characters, max_size=12).map(value),
        () if long else ("{c}",) if name != "String" else ("{c}", "icebergTruncate(2, {c})"),
        ("{c}", *truncated),
    )


def fixed(length: int) -> Kind:
    def value(content: bytes) -> Value:
        return Value(_cast(f"unhex('{content.hex()}')", f"FixedString({length})"), content)

    edges = (b"\0" * length, b"\xff" * length, (b"a" + b"\0" * length)[:length])
    more = some.binary(min_size=length, max_size=length).map(value)
    return Kind(f"FixedString({length})", tuple(map(value, edges)), more, ("{c}",), ("bucket(4, {c})",))


def date(name: str) -> Kind:
    low, high = {
        "Date": (dt.date(1970, 1, 1), dt.date(2149, 6, 6)),
        "Date32": (dt.date(1900, 1, 1), dt.date(2299, 12, 31)),
    }[name]

    def value(day: dt.date) -> Value:
        return Value(_cast(f"'{day.isoformat()}'", name), day)

    # One day before 1970, where floors and cuts differ.
    edges = tuple(value(day) for day in (low, high, max(low, dt.date(1969, 12, 31)), dt.date(2024, 2, 29)))
    keys = ("toYYYYMM({c})", "{c}", "toYear({c})", "toYYYYMMDD({c})")
    specs = ("{c}", "day({c})", "month({c})", "year({c})", "bucket(4, {c})")
    return Kind(name, edges, some.dates(low, high).map(value), keys, specs)


def moment(precision: int | None, zone: str) -> Kind:
    """DateTime (no precision) or DateTime64."""
    name = f"DateTime('{zone}')" if precision is None else f"DateTime64({precision}, '{zone}')"
    step = 10 ** (6 - (precision or 0))
    last = (2**32 - 1) * 1_000_000
    if precision is not None:
        last = (dt.datetime(2299, 12, 31, tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)
    first = (
        0
        if precision is None
        else -((EPOCH - dt.datetime(1900, 1, 2, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))
    )

    def value(steps: int) -> Value:
        micros = steps * step
        made = f"fromUnixTimestamp64Micro(toInt64({micros}), 'UTC')"
        return Value(_cast(made, name), EPOCH + dt.timedelta(microseconds=micros))

    low, high = -(-first // step), last // step
    edges = tuple(
        value(steps) for steps in dict.fromkeys((low, high, max(low, -1), 0, 1_709_164_800_000_000 // step))
    )
    keys = ("toYYYYMM({c})", "toDate({c})", "toStartOfHour({c})", "toYear({c})")
    specs = ("day({c})", "month({c})", "year({c})", "hour({c})", "{c}", "bucket(4, {c})")
    return Kind(name, edges, some.integers(low, high).map(value), keys, specs)


def uuid() -> Kind:
    def value(one: UUID) -> Value:
        return Value(_cast(f"'{one}'", "UUID"), one)

    edges = (UUID(int=0), UUID(int=2**128 - 1), UUID(int=2**127), UUID(int=2**63), UUID(int=2**127 - 1))
    return Kind(
        "UUID", tuple(map(value, edges)), some.uuids().map(value), ("{c}",), ("{c}", "bucket(4, {c})")
    )


def enum() -> Kind:
    labels = ", ".join(f"'{label}' = {place - 2}" for place, label in enumerate(LABELS))
    name = f"Enum8({labels})"
    return Kind(
        name, tuple(Value(_cast(f"'{label}'", name), label) for label in LABELS), None, ("{c}",), ("{c}",)
    )


def address(name: str) -> Kind:
    texts = {"IPv4": ("0.0.0.0", "255.255.255.255", "1.2.3.4"), "IPv6": ("::", "::1", "2001:db8::1")}[name]
    return Kind(name, tuple(Value(_cast(f"'{one}'", name), one) for one in texts), None, (), ("{c}",))


LEAVES: tuple[Kind, ...] = (
    boolean(),
    *(integer(bits, signed=signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    floating(32),
    floating(64),
    *(
        decimal(precision, scale)
        for precision, scale in ((1, 0), (9, 9), (10, 2), (18, 0), (19, 4), (20, 0), (38, 37))
    ),
    text(),
    text(long=True),
    text("LowCardinality(String)"),
    fixed(1),
    fixed(5),
    date("Date"),
    date("Date32"),
    *(moment(precision, zone) for precision, zone in ((None, "UTC"), (None, "Asia/Tokyo"))),
    *(moment(precision, ZONES[precision % 3]) for precision in (0, 1, 3, 6)),
    uuid(),
    enum(),
    address("IPv4"),
    address("IPv6"),
)
_MAP_KEYS = tuple(
    kind
    for kind in LEAVES
    if kind.text in {"Int8", "UInt32", "UInt64", "String", "LowCardinality(String)", "Date", "UUID", "Int64"}
)


# ---- what holds them


def nullable(inner: Kind) -> Kind:
    low = "LowCardinality("
    name = (
        f"{low}Nullable({inner.text[len(low) : -1]}))"
        if inner.text.startswith(low)
        else f"Nullable({inner.text})"
    )
    wrapped = tuple(Value(_cast(value.sql, name), value.seen) for value in inner.edges)
    more = None
    if inner.more is not None:
        more = inner.more.map(lambda value: Value(_cast(value.sql, name), value.seen))
    return Kind(name, (Value(_cast("NULL", name), None), *wrapped), more, inner.keys, inner.specs)


def array(inner: Kind) -> Kind:
    name = f"Array({inner.text})"

    def value(items: Sequence[Value]) -> Value:
        return Value(_cast(f"[{', '.join(item.sql for item in items)}]", name), [item.seen for item in items])

    return Kind(name, (value(()), value(inner.edges)), some.lists(inner.values, max_size=3).map(value))


def mapping(key: Kind, inner: Kind) -> Kind:
    name = f"Map({key.text}, {inner.text})"

    def value(pairs: Sequence[tuple[Value, Value]]) -> Value:
        made = ", ".join(f"{one.sql}, {other.sql}" for one, other in pairs)
        return Value(_cast(f"map({made})", name), [[one.seen, other.seen] for one, other in pairs])

    whole = tuple(zip(key.edges, inner.edges, strict=False))
    pairs = some.lists(some.tuples(key.values, inner.values), max_size=3, unique_by=lambda pair: pair[0].seen)
    return Kind(name, (value(()), value(whole)), pairs.map(value))


def struct_of(*inner: Kind, named: bool) -> Kind:
    elements = ", ".join(f"f{place} {kind.text}" if named else kind.text for place, kind in enumerate(inner))
    name = f"Tuple({elements})"

    def value(items: Sequence[Value]) -> Value:
        return Value(
            _cast(f"tuple({', '.join(item.sql for item in items)})", name), [item.seen for item in items]
        )

    most = max(len(kind.edges) for kind in inner)
    edges = tuple(value([kind.edges[place % len(kind.edges)] for kind in inner]) for place in range(most))
    return Kind(name, edges, some.tuples(*(kind.values for kind in inner)).map(value))


leaves = some.sampled_from(LEAVES)
optional = leaves | leaves.map(nullable)


def _deeper(inner: "some.SearchStrategy[Kind]") -> "some.SearchStrategy[Kind]":
    return (
        inner.map(array)
        | some.builds(mapping, some.sampled_from(_MAP_KEYS), inner)
        | some.builds(
            lambda kinds, named: struct_of(*kinds, named=named),
            some.lists(inner, min_size=1, max_size=3),
            some.booleans(),
        )
    )


kinds = optional | some.recursive(optional, _deeper, max_leaves=4)
ID = Column("id", integer(32, signed=True))


@some.composite
def tables(draw: Any) -> GeneratedTable:
    """A table of a few columns and rows, a key of the source and a spec of the destination."""
    flat = draw(some.lists(optional, min_size=1, max_size=3))
    deep = draw(some.lists(kinds, min_size=1, max_size=3))
    columns = (ID, *(Column(f"c{place}", kind) for place, kind in enumerate((*flat, *deep), 1)))
    count = draw(some.integers(2, 6))
    rows = tuple(
        (Value(str(number), number), *(draw(column.kind.values) for column in columns[1:]))
        for number in range(count)
    )
    keys = ["tuple()", "id % 2", "intDiv(id, 2)"]
    keys += [key.format(c=column.name) for column in columns[1:] for key in column.kind.keys]
    specs = ["", "none", "bucket(3, id)"]
    for column in columns[1:]:
        fields = [field.format(c=column.name) for field in column.kind.specs]
        specs += fields + [f"bucket(2, id), {field}" for field in fields]
    return GeneratedTable(columns, rows, draw(some.sampled_from(keys)), draw(some.sampled_from(specs)))
