"""Entries of manifests, only the columns that health needs, one manifest at a time.

PyIceberg's own reader makes objects of every column's statistics, most of a manifest's bytes; here
they are passed over, so that 100,000 files take seconds.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus, ManifestFile
from pyiceberg.typedef import Record
from pyiceberg.types import MapType, StructType

_STATUS, _SNAPSHOT_ID, _DATA_FILE, _SEQUENCE = 0, 1, 2, 3
_PATH, _PARTITION, _ROWS, _BYTES, _CONTENT = 100, 102, 103, 104, 134
_DATA = int(DataFileContent.DATA)
_DELETED = int(ManifestEntryStatus.DELETED)

# Where a wanted field lands in its record; what is not here is skipped.
_OUTER = {_STATUS: 0, _SNAPSHOT_ID: 1, _DATA_FILE: 2, _SEQUENCE: 3}
_INNER = {_PATH: 0, _PARTITION: 1, _ROWS: 2, _BYTES: 3, _CONTENT: 4}
_THROWN_AWAY = 5  # maps are read natively and skipped in Python, so reading them is the faster skip


class Entry(NamedTuple):
    """One file. A tuple: there are as many as files."""

    snapshot_id: int  # that added it
    sequence: int  # deletes apply to data of a lower one
    content: int  # DataFileContent
    path: str
    partition: tuple[object, ...]
    rows: int
    bytes: int


def read_entries(io: FileIO, manifest: ManifestFile, *, also_deleted: bool = False) -> Iterator[Entry]:
    """The files that a manifest holds; those it marks as deleted only where asked for."""
    if not also_deleted and _only_deleted(manifest):
        return  # as rewrites leave them: all of a manifest would be read for nothing
    with AvroFile[Record](io.new_input(manifest.manifest_path)) as file:
        file.reader = _narrowed(construct_reader(file.schema), _OUTER)
        for record in file:
            status, added_by, found, sequence = (*record._data, None)[:4]
            if status == _DELETED and not also_deleted:
                continue
            path, partition, rows, size, content = (*found._data, None)[:5]
            yield Entry(
                (manifest.added_snapshot_id or 0) if added_by is None else added_by,
                _sequence(manifest) if sequence is None else sequence,
                content or _DATA,  # format v1 has no such column, and data files only
                path,
                tuple(partition._data),
                rows,
                size,
            )


def _only_deleted(manifest: ManifestFile) -> bool:
    """By its counts, which format v1 need not have."""
    return manifest.added_files_count == 0 and manifest.existing_files_count == 0


def _sequence(manifest: ManifestFile) -> int:
    """Entries inherit it from their manifest; format v1 has none."""
    return manifest.sequence_number or 0


def _narrowed(reader: object, wanted: Mapping[int, int]) -> StructReader:
    """The same reader with every field skipped that is not wanted."""
    assert isinstance(reader, StructReader)
    struct: StructType = reader.struct
    return StructReader(
        tuple(
            (
                wanted.get(field.field_id, _THROWN_AWAY if isinstance(field.field_type, MapType) else None),
                _narrowed(inner, _INNER) if field.field_id == _DATA_FILE and wanted is _OUTER else inner,
            )
            for field, (_, inner) in zip(struct.fields, reader.field_readers, strict=True)
        ),
        Record,
        struct,
    )
