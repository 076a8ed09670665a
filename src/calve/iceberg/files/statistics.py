"""What a manifest says about a data file's columns, from its footer and from counting (P2).

As Iceberg's own writer does it: sizes for every primitive field; counts and bounds for those
not below a list or map. Row groups without min and max mean no bounds for the file, unless
they hold only nulls (W3). A column with NaNs has a NaN count and no bounds (W4). UUIDs have
no bounds (W5).

How much it says about each column is up to the table's own properties, read as Iceberg does. Bounds are
decoded from Parquet statistics, truncated and encoded as Iceberg does.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
)

from calve.iceberg.files.footer import (
    BYTE_ARRAY,
    CHUNK_META,
    FIXED,
    GROUP_COLUMNS,
    META_COMPRESSED,
    META_DATA_PAGE,
    META_DICTIONARY_PAGE,
    META_STATISTICS,
    META_VALUES,
    Footer,
    FooterLeaf,
)
from calve.iceberg.files.thrift import Struct

_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES, _LAST = 0xD7FF, 0xE000, 0x10FFFF


def decode(kind: IcebergType, physical: int, data: bytes) -> Any:
    """A statistic's value, comparable with others of its column; None if it bounds nothing."""
    match kind:
        case BooleanType():
            return data != b"\x00"
        case IntegerType() | LongType() | DateType() | TimestamptzType():
            return int.from_bytes(data, "little", signed=True)
        case FloatType() | DoubleType():
            number = struct.unpack("<f" if isinstance(kind, FloatType) else "<d", data)[0]
            return None if math.isnan(number) else number
        case DecimalType():
            big = physical in (BYTE_ARRAY, FIXED)
            return int.from_bytes(data, "big" if big else "little", signed=True)
        case StringType() | BinaryType() | FixedType():
            return data
        case _:
            return None


def lower_bound(kind: IcebergType, value: Any, length: int | None) -> bytes | None:
    """Iceberg's single-value form of a lower bound; `length` is what text is truncated to."""
    match kind:
        case StringType():
            text = _text(value)
            return None if text is None else text[:length].encode()
        case BinaryType() | FixedType():
            return bytes(value[:length])
        case FloatType() | DoubleType():
            return _float(kind, -0.0 if value == 0 else value)
        case _:
            return _exact(kind, value)


def upper_bound(kind: IcebergType, value: Any, length: int | None) -> bytes | None:
    """As `lower`; what is cut off is made good by rounding up, None where that cannot be."""
    match kind:
        case StringType():
            text = _text(value)
            return None if text is None else _upper_text(text, length)
        case BinaryType() | FixedType():
            return _upper_bytes(value, length)
        case FloatType() | DoubleType():
            return _float(kind, 0.0 if value == 0 else value)
        case _:
            return _exact(kind, value)


def _exact(kind: IcebergType, value: Any) -> bytes:
    match kind:
        case BooleanType():
            return b"\x01" if value else b"\x00"
        case IntegerType() | DateType():
            return int(value).to_bytes(4, "little", signed=True)
        case LongType() | TimestamptzType():
            return int(value).to_bytes(8, "little", signed=True)
        case DecimalType():
            # the fewest bytes that hold the sign too
            length = ((value + 1 if value < 0 else value).bit_length() // 8) + 1
            return int(value).to_bytes(length, "big", signed=True)
    raise AssertionError(kind)


def _float(kind: IcebergType, value: float) -> bytes:
    return struct.pack("<f" if isinstance(kind, FloatType) else "<d", value)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _upper_text(text: str, length: int | None) -> bytes | None:
    if length is None or len(text) <= length:
        return text.encode()
    for place in range(length - 1, -1, -1):
        point = ord(text[place])
        if point < _LAST:
            following = _FIRST_AFTER_SURROGATES if point == _LAST_BEFORE_SURROGATES else point + 1
            return (text[:place] + chr(following)).encode()
    return None


def _upper_bytes(value: bytes, length: int | None) -> bytes | None:
    if length is None or len(value) <= length:
        return bytes(value)
    for place in range(length - 1, -1, -1):
        if value[place] < 0xFF:
            return bytes(value[:place]) + bytes([value[place] + 1])
    return None


_DEFAULT_PROPERTY = "write.metadata.metrics.default"
_COLUMN_PROPERTY = "write.metadata.metrics.column."
_MOST_PROPERTY = "write.metadata.metrics.max-inferred-column-defaults"
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_USUAL_LENGTH = 16
_USUAL_MOST = 100


@dataclass(frozen=True, kw_only=True)
class Mode:
    counts: bool = True
    bounds: bool = True
    length: int | None = _USUAL_LENGTH  # None: whole values


NONE = Mode(counts=False, bounds=False)
COUNTS = Mode(bounds=False)
USUAL = Mode()


def metrics_modes(schema: StructType, properties: Mapping[str, str]) -> dict[int, Mode]:
    """The mode of every primitive field, by field id."""
    leaves = list(_leaves(schema, ""))
    default = _mode(properties.get(_DEFAULT_PROPERTY, ""))
    most = int(properties.get(_MOST_PROPERTY, _USUAL_MOST))
    modes = {}
    for place, (field_id, name) in enumerate(leaves):
        own = _mode(properties.get(_COLUMN_PROPERTY + name, ""))
        inferred = USUAL if place < most else NONE  # very wide tables would have huge manifests
        modes[field_id] = own or default or inferred
    return modes


def _mode(text: str) -> Mode | None:
    match text.strip().lower():
        case "none":
            return NONE
        case "counts":
            return COUNTS
        case "full":
            return Mode(length=None)
        case plain if (found := _TRUNCATE.fullmatch(plain)) and int(found[1]):
            return Mode(length=int(found[1]))
        case _:
            return None


def _leaves(kind: IcebergType, prefix: str, field_id: int = 0) -> Iterator[tuple[int, str]]:
    match kind:
        case StructType():
            for item in kind.fields:
                yield from _leaves(
                    item.field_type, f"{prefix}.{item.name}" if prefix else item.name, item.field_id
                )
        case ListType():
            yield from _leaves(kind.element_type, f"{prefix}.element", kind.element_id)
        case MapType():
            yield from _leaves(kind.key_type, f"{prefix}.key", kind.key_id)
            yield from _leaves(kind.value_type, f"{prefix}.value", kind.value_id)
        case _:
            yield field_id, prefix


_NULLS, _MAX, _MIN = 3, 5, 6


@dataclass(frozen=True, kw_only=True)
class FileStatistics:
    """By field id; bounds in hex. The fields of a `FileReceipt`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_counts: dict[int, int] = field(default_factory=dict)
    nan_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, str] = field(default_factory=dict)
    upper_bounds: dict[int, str] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ValueCounts:
    """What no footer says, counted while reading: by field id."""

    nans: Mapping[int, int] = field(default_factory=dict)
    nulls: Mapping[int, int] = field(default_factory=dict)  # of fields inside structs


def file_statistics(
    footer: Footer, schema: StructType, counted: ValueCounts, properties: Mapping[str, str]
) -> FileStatistics:
    modes = metrics_modes(schema, properties)
    made = FileStatistics(split_offsets=_split_offsets(footer))
    for leaf in footer.leaves:
        chunks = list(footer.chunks(leaf))
        made.column_sizes[leaf.field_id] = sum(chunk[META_COMPRESSED].data for chunk in chunks)
        mode = modes.get(leaf.field_id, NONE)
        if mode.counts and not leaf.repeated:
            _add_counts(made, leaf, chunks, counted)
        if mode.bounds and not leaf.repeated:
            _add_bounds(made, leaf, chunks, mode, counted)
    return made


def _add_counts(made: FileStatistics, leaf: FooterLeaf, chunks: list[Struct], counted: ValueCounts) -> None:
    made.value_counts[leaf.field_id] = sum(chunk[META_VALUES].data for chunk in chunks)
    nulls = [_nulls(leaf, chunk) for chunk in chunks]
    if leaf.field_id in counted.nulls:
        made.null_counts[leaf.field_id] = counted.nulls[leaf.field_id]
    elif None not in nulls:
        made.null_counts[leaf.field_id] = sum(count or 0 for count in nulls)
    if leaf.field_id in counted.nans:
        made.nan_counts[leaf.field_id] = counted.nans[leaf.field_id]


def _add_bounds(
    made: FileStatistics, leaf: FooterLeaf, chunks: list[Struct], mode: Mode, counted: ValueCounts
) -> None:
    if isinstance(leaf.type, FloatType | DoubleType) and counted.nans.get(leaf.field_id, 1):
        return  # NaNs, or not counted
    ranges = []
    for chunk in chunks:
        if _nulls(leaf, chunk) == chunk[META_VALUES].data:
            continue
        found = _range(leaf, chunk)
        if found is None:
            return
        ranges.append(found)
    if not ranges:
        return
    low = lower_bound(leaf.type, min(least for least, _ in ranges), mode.length)
    high = upper_bound(leaf.type, max(most for _, most in ranges), mode.length)
    if low is not None:
        made.lower_bounds[leaf.field_id] = low.hex()
    if high is not None:
        made.upper_bounds[leaf.field_id] = high.hex()


def _nulls(leaf: FooterLeaf, chunk: Struct) -> int | None:
    """Nulls of one row group; None where the footer does not say."""
    statistics = chunk[META_STATISTICS].data if META_STATISTICS in chunk else {}
    if _NULLS in statistics:
        return int(statistics[_NULLS].data)
    return None if leaf.optional else 0


def _range(leaf: FooterLeaf, chunk: Struct) -> tuple[Any, Any] | None:
    statistics = chunk[META_STATISTICS].data if META_STATISTICS in chunk else {}
    if _MIN not in statistics or _MAX not in statistics:
        return None
    least = decode(leaf.type, leaf.physical, statistics[_MIN].data)
    most = decode(leaf.type, leaf.physical, statistics[_MAX].data)
    return None if least is None or most is None else (least, most)


def _split_offsets(footer: Footer) -> tuple[int, ...]:
    """Where each row group starts."""
    offsets = []
    for group in footer.groups:
        first = group[GROUP_COLUMNS].data.items[0][CHUNK_META].data
        pages = [first[number].data for number in (META_DATA_PAGE, META_DICTIONARY_PAGE) if number in first]
        offsets.append(min(page for page in pages if page > 0))
    return tuple(sorted(offsets))
