"""What Iceberg's Java readers would misunderstand of a footer, taken out of it. Pages stay untouched.

Both make Spark skip row groups with rows that match, silently.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from pyiceberg.types import DoubleType, FloatType, IcebergType, UUIDType

from calve.iceberg.files.thrift import Struct

FILE_GROUPS, GROUP_COLUMNS = 4, 1
CHUNK_META, CHUNK_INDEX_OFFSET, CHUNK_INDEX_LENGTH = 3, 6, 7
META_STATISTICS, META_ENCODING_STATS = 12, 13
_MAXIMA, _MINIMA = (1, 5), (2, 6)  # the deprecated and today's fields
_EXACTNESS = (7, 8)


class PlacedLeaf(Protocol):
    @property
    def place(self) -> int: ...
    @property
    def type(self) -> IcebergType: ...


def strip_uuid_statistics(meta: Struct, leaves: Sequence[PlacedLeaf]) -> None:
    """Iceberg's Java compares UUIDs as signed numbers, so any bounds make it skip rows (W5)."""
    for chunk in _chunks(meta, [leaf.place for leaf in leaves if isinstance(leaf.type, UUIDType)]):
        statistics = chunk[CHUNK_META].data.get(META_STATISTICS)
        if statistics is not None:
            for number in (*_MAXIMA, *_MINIMA, *_EXACTNESS):  # counts stay
                statistics.data.pop(number, None)
        _forget_page_index(chunk)


def fix_zeros(meta: Struct, leaves: Sequence[PlacedLeaf]) -> None:
    """To Java -0.0 is below 0.0; to SQL they are equal (W3). So a maximum is never -0.0 and a minimum
    never 0.0, as Parquet asks of writers. And without encoding statistics Iceberg does not look a value
    up in a column's dictionary, where it would not find the zero of the other sign."""
    for leaf in leaves:
        if not isinstance(leaf.type, FloatType | DoubleType):
            continue
        positive = bytes(4 if isinstance(leaf.type, FloatType) else 8)
        negative = positive[:-1] + b"\x80"
        for chunk in _chunks(meta, [leaf.place]):
            chunk[CHUNK_META].data.pop(META_ENCODING_STATS, None)
            statistics = chunk[CHUNK_META].data.get(META_STATISTICS)
            if statistics is None:
                continue
            fixed = _replace(statistics.data, _MAXIMA, negative, positive)
            fixed |= _replace(statistics.data, _MINIMA, positive, negative)
            if fixed:
                _forget_page_index(chunk)


def _replace(statistics: Struct, numbers: Sequence[int], old: bytes, new: bytes) -> bool:
    found = [number for number in numbers if number in statistics and statistics[number].data == old]
    for number in found:
        statistics[number].data = new
    return bool(found)


def _chunks(meta: Struct, places: Sequence[int]) -> Iterator[Struct]:
    for group in meta[FILE_GROUPS].data.items if FILE_GROUPS in meta and places else ():
        for place in places:
            yield group[GROUP_COLUMNS].data.items[place]


def _forget_page_index(chunk: Struct) -> None:
    """The index of the pages holds min and max too; its bytes stay, unreferenced."""
    chunk.pop(CHUNK_INDEX_OFFSET, None)
    chunk.pop(CHUNK_INDEX_LENGTH, None)
