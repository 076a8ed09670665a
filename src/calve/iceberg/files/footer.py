"""The footer of a Parquet file: read, given Iceberg's field ids (P1), and written back in place.

Only the footer, which is at the end, is read and rewritten; pages are untouched and nothing
of them is held in memory. Annotations are set right where ClickHouse's differ from Iceberg's:
bytes are not STRING, small decimals are integers, UUIDs carry no statistics (W5).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StructType,
)

from calve.iceberg.files import physical_types, thrift
from calve.iceberg.files.thrift import Struct
from calve.model.errors import PermanentError

MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length and the magic

# Field numbers of parquet.thrift.
FILE_SCHEMA, FILE_ROWS, FILE_GROUPS, FILE_COLUMN_ORDERS = 2, 3, 4, 7
GROUP_COLUMNS, GROUP_BYTES, GROUP_COMPRESSED = 1, 2, 6
CHUNK_META = 3
META_VALUES, META_UNCOMPRESSED, META_COMPRESSED = 5, 6, 7
META_DATA_PAGE, META_DICTIONARY_PAGE, META_STATISTICS = 9, 11, 12
(
    ELEMENT_TYPE, ELEMENT_REPETITION, ELEMENT_NAME, ELEMENT_CHILDREN, ELEMENT_CONVERTED,
    ELEMENT_SCALE, ELEMENT_PRECISION, ELEMENT_ID, ELEMENT_LOGICAL,
) = (1, 3, 4, 5, 6, 7, 8, 9, 10)  # fmt: skip
_LOGICAL_DECIMAL, _CONVERTED_DECIMAL = 5, 5
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)


@dataclass(frozen=True, kw_only=True)
class FooterLeaf:
    """One primitive column of the file and the Iceberg field it holds."""

    place: int  # among the column chunks of every row group
    field_id: int
    type: IcebergType
    physical: int
    repeated: bool  # below a list or map
    optional: bool  # it or a struct around it may be null
    path: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Footer:
    meta: Struct
    leaves: tuple[FooterLeaf, ...]

    @property
    def rows(self) -> int:
        return int(self.meta[FILE_ROWS].data)

    @property
    def groups(self) -> list[Struct]:
        """Row groups."""
        groups: list[Struct] = self.meta[FILE_GROUPS].data.items if FILE_GROUPS in self.meta else []
        return groups

    def chunks(self, leaf: FooterLeaf) -> Iterator[Struct]:
        """The leaf's column metadata in every row group."""
        for group in self.groups:
            yield group[GROUP_COLUMNS].data.items[leaf.place][CHUNK_META].data


def annotate(path: Path, schema: StructType, *, drop_last: bool = False) -> Footer:
    """Write the field ids of `schema` into a file's footer; columns are found by name.

    `drop_last` takes the last column out of the footer: one that only says to the engine which
    file a row belongs to. Its few bytes of pages stay, unreferenced.
    If we die here, the file is broken, local and temporary.
    """
    with path.open("r+b") as file:
        start, meta = _read(file, path)
        if drop_last:
            _drop_last(meta)
        leaves = tuple(_annotated(meta, schema, path))
        physical_types.strip_uuid_statistics(meta, leaves)
        physical_types.fix_zeros(meta, leaves)
        footer = thrift.encode(meta)
        file.seek(start)
        file.write(footer)
        file.write(len(footer).to_bytes(4, "little"))
        file.write(MAGIC)
        file.truncate()
    return Footer(meta=meta, leaves=leaves)


def read_footer(path: Path) -> Struct:
    """The footer as it is."""
    with path.open("rb") as file:
        return _read(file, path)[1]


def _read(file: BinaryIO, path: Path) -> tuple[int, Struct]:
    size = file.seek(0, os.SEEK_END)
    if size < len(MAGIC) + _TAIL_BYTES:
        raise _damaged(path, "it is too short")
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL_BYTES - length
    if tail[4:] != MAGIC or start < len(MAGIC):
        raise _damaged(path, "it has no footer")
    file.seek(start)
    return start, thrift.decode(file.read(length))


def _drop_last(meta: Struct) -> None:
    """Take a primitive last column out of the schema and of every row group."""
    elements = meta[FILE_SCHEMA].data.items
    elements.pop()
    elements[0][ELEMENT_CHILDREN].data -= 1
    if FILE_COLUMN_ORDERS in meta:
        meta[FILE_COLUMN_ORDERS].data.items.pop()
    for group in meta[FILE_GROUPS].data.items:
        chunk = group[GROUP_COLUMNS].data.items.pop()[CHUNK_META].data
        group[GROUP_BYTES].data -= chunk[META_UNCOMPRESSED].data
        if GROUP_COMPRESSED in group:
            group[GROUP_COMPRESSED].data -= chunk[META_COMPRESSED].data


def _damaged(path: Path, why: str) -> PermanentError:
    return PermanentError(f"{path.name} is not a Parquet file: {why}", code="parquet_footer")


@dataclass
class _Node:
    element: Struct
    children: list["_Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.element[ELEMENT_NAME].data.decode())

    @property
    def repetition(self) -> int:
        return int(self.element[ELEMENT_REPETITION].data) if ELEMENT_REPETITION in self.element else REQUIRED


@dataclass(frozen=True)
class _Above:
    """What lies between the root and a node."""

    path: tuple[str, ...] = ()
    repeated: bool = False
    optional: bool = False

    def below(self, node: _Node) -> "_Above":
        return _Above(
            (*self.path, node.name),
            self.repeated or node.repetition == REPEATED,
            self.optional or node.repetition == OPTIONAL,
        )


def _annotated(meta: Struct, schema: StructType, path: Path) -> Iterator[FooterLeaf]:
    elements = iter(meta[FILE_SCHEMA].data.items)
    root = _tree(elements)
    places = {id(node.element): place for place, node in enumerate(_leaves(root))}
    yield from _struct(root, schema, _Above(), places, path)


def _tree(elements: Iterator[Struct]) -> _Node:
    element = next(elements)
    count = element[ELEMENT_CHILDREN].data if ELEMENT_CHILDREN in element else 0
    return _Node(element, [_tree(elements) for _ in range(count)])


def _leaves(node: _Node) -> Iterator[_Node]:
    if not node.children:
        yield node
    for child in node.children:
        yield from _leaves(child)


def _struct(
    node: _Node, kind: StructType, above: _Above, places: dict[int, int], path: Path
) -> Iterator[FooterLeaf]:
    fields = {item.name: item for item in kind.fields}
    if unknown := [child.name for child in node.children if child.name not in fields]:
        raise _damaged(path, f"the table has no columns {', '.join(unknown)}")
    for child in node.children:
        item = fields[child.name]
        yield from _field(child, item.field_id, item.field_type, above, places, path)


def _field(
    node: _Node, field_id: int, kind: IcebergType, above: _Above, places: dict[int, int], path: Path
) -> Iterator[FooterLeaf]:
    node.element[ELEMENT_ID] = thrift.i32(field_id)
    below = above.below(node)
    match kind:
        case StructType():
            yield from _struct(node, kind, below, places, path)
        case ListType():
            (middle,) = node.children
            (element,) = middle.children
            inner = below.below(middle)
            yield from _field(element, kind.element_id, kind.element_type, inner, places, path)
        case MapType():
            (middle,) = node.children
            key, value = middle.children
            inner = below.below(middle)
            yield from _field(key, kind.key_id, kind.key_type, inner, places, path)
            yield from _field(value, kind.value_id, kind.value_type, inner, places, path)
        case _:
            _set_annotation(node.element, kind)
            yield FooterLeaf(
                place=places[id(node.element)],
                field_id=field_id,
                type=kind,
                physical=node.element[ELEMENT_TYPE].data,
                repeated=below.repeated,
                optional=below.optional,
                path=below.path,
            )


def _set_annotation(element: Struct, kind: IcebergType) -> None:
    physical = element[ELEMENT_TYPE].data
    match kind:
        case BinaryType() | FixedType():
            element.pop(ELEMENT_CONVERTED, None)
            element.pop(ELEMENT_LOGICAL, None)
        case DecimalType() if physical in (INT32, INT64):
            scale, precision = thrift.i32(kind.scale), thrift.i32(kind.precision)
            element[ELEMENT_CONVERTED] = thrift.i32(_CONVERTED_DECIMAL)
            element[ELEMENT_SCALE] = scale
            element[ELEMENT_PRECISION] = precision
            decimal = thrift.struct({1: scale, 2: precision})
            element[ELEMENT_LOGICAL] = thrift.struct({_LOGICAL_DECIMAL: decimal})
        case _:
            pass
