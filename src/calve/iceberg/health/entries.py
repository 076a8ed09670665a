"""One pass over a snapshot's manifests: only the columns that health needs, one manifest at a time.

PyIceberg's own reader makes objects of every column's statistics, most of a manifest's bytes; here
they are passed over, so that 100,000 files take seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import MapType, StructType

from calve.iceberg.health.settings import Settings
from calve.iceberg.health.stats import (
    EQUALITY,
    POSITION,
    Deletes,
    PartitionStats,
    Place,
    TableStats,
    size_class,
)
from calve.iceberg.publish.manifests import manifests_of

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


def collect(table: Table, settings: Settings, snapshot: Snapshot | None = None) -> TableStats:
    """Read the manifests of the head, or of another snapshot."""
    metadata = table.metadata
    head = snapshot or metadata.current_snapshot()
    manifests = manifests_of(table, head)
    stats = TableStats(
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        snapshots=len(metadata.snapshots),
        current_spec_id=metadata.default_spec_id,
        unpartitioned_spec_ids=frozenset(
            spec_id for spec_id, spec in metadata.specs().items() if spec.is_unpartitioned()
        ),
    )
    times = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    for manifest in manifests:
        stats.delete_manifests += bool(manifest.content)
        count(stats, manifest.partition_spec_id, read_entries(table.io, manifest), times, settings)
    return stats


def count(
    stats: TableStats,
    spec_id: int,
    entries: Iterable[Entry],
    times: Mapping[int, int],
    settings: Settings,
) -> None:
    """Add one manifest's entries."""
    fragment, undersized, oversized = (
        settings.fragment_bytes,
        settings.undersized_bytes,
        settings.oversized_bytes,
    )
    for entry in entries:
        place = Place(spec_id=spec_id, values=entry.partition)
        part = stats.partitions.get(place)
        if part is None:
            part = stats.partitions[place] = PartitionStats(place=place)
        if entry.content in (POSITION, EQUALITY):
            found = part.deletes.setdefault((entry.content, entry.sequence), Deletes())
            found.files += 1
            found.rows += entry.rows
        else:
            if part.oldest_sequence is None or entry.sequence < part.oldest_sequence:
                part.oldest_sequence = entry.sequence
            part.files += 1
            part.rows += entry.rows
            part.bytes += entry.bytes
            stats.sizes[size_class(entry.bytes)] += 1
            if entry.bytes <= fragment:
                part.fragments += 1
                part.fragment_bytes += entry.bytes
                # A snapshot that is gone was expired, so the file is old.
                added = times.get(entry.snapshot_id, 0)
                if part.oldest_fragment_ms is None or added < part.oldest_fragment_ms:
                    part.oldest_fragment_ms = added
            elif entry.bytes < undersized:
                part.undersized += 1
                part.undersized_bytes += entry.bytes
            elif entry.bytes > oversized:
                part.oversized += 1


def dangling_paths(table: Table, stats: TableStats) -> list[str]:
    """The delete files that no longer delete anything. `stats` must be of the table's current snapshot."""
    return [
        entry.path
        for manifest in manifests_of(table, table.metadata.current_snapshot())
        if manifest.content == ManifestContent.DELETES
        for entry in read_entries(table.io, manifest)
        if not stats.applies(
            Place(spec_id=manifest.partition_spec_id, values=entry.partition), entry.content, entry.sequence
        )
    ]


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
