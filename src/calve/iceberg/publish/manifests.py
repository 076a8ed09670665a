"""Manifests and manifest lists: written on given metadata, from receipts, without reading a data file; and
deleted where they belong to attempts that lost."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from calve.destination.description import record
from calve.destination.names import manifest_list_name, manifest_name
from calve.destination.plan import ExportPlan
from calve.destination.receipt import FileReceipt, Receipt
from calve.iceberg.publish.marks import Sent, head_of

_log = getLogger(__name__)
FILES_PER_MANIFEST = 5_000  # a few megabytes each
MERGED_AT_ONCE = 10  # so many manifests of about one size become one
_MERGE = TableProperties.MANIFEST_MERGE_ENABLED  # for PyIceberg off by default, for Iceberg's Java on
_LARGE = 1_000  # files; larger manifests stay as they are


@dataclass(kw_only=True)
class ManifestFiles:
    """Writes the metadata files of one attempt under names that carry its process and snapshot, so
    that no two attempts share a name and an undo knows them without a listing."""

    table: Table
    process_id: str
    snapshot_id: int
    written: list[ManifestFile] = field(default_factory=list)

    @contextmanager
    def writer(self, spec_id: int) -> Iterator[ManifestWriter]:
        """Of one more manifest, which is written once the block is left."""
        number = len(self.written)
        path = self.table.location_provider().new_metadata_location(
            manifest_name(self.process_id, self.snapshot_id, number)
        )
        # If we die here, a manifest that nothing refers to is left, under a name undo knows.
        spec = self.table.metadata.specs()[spec_id]
        with write_manifest(
            format_version=self.table.metadata.format_version,
            spec=spec,
            schema=_void_is_null(self.table.schema(), spec),
            output_file=self.table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            avro_compression=self._codec(),
        ) as writer:
            yield writer
        self.written.append(writer.to_manifest_file())

    def add(self, files: Sequence[DataFile], spec_id: int) -> None:
        """New manifests in which every entry is ADDED; sequence numbers are inherited from the list."""
        for chunk in _chunks(files):
            with self.writer(spec_id) as writer:
                for file in chunk:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self.snapshot_id,
                            sequence_number=None,
                            file_sequence_number=None,
                            data_file=file,
                        )
                    )

    def merge(self, manifests: Sequence[ManifestFile], spec_id: int) -> list[ManifestFile]:
        """Write ten manifests of about one size anew as one, which `written` then has, and return the others.
        Every append leaves a manifest, and every commit reads and writes the list of them: so it grows with the
        logarithm of the appends, and the entry of a file is written again three times at most."""
        if self.table.properties.get(_MERGE, "true").lower() == "false":
            return list(manifests)
        sizes: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            if (manifest.content, manifest.partition_spec_id) == (ManifestContent.DATA, spec_id) and (
                0 < files < _LARGE
            ):
                sizes.setdefault(len(str(files)), []).append(manifest)
        going = next((group for group in sizes.values() if len(group) >= MERGED_AT_ONCE), [])
        try:
            entries = [entry for manifest in going for entry in manifest.fetch_manifest_entry(self.table.io)]
        except (OSError, ValueError, EOFError) as cause:
            _log.warning("table %s: manifests are not merged: %s", ".".join(self.table.name()), cause)
            return list(manifests)
        for chunk in _chunks(entries):
            with self.writer(spec_id) as writer:
                for entry in chunk:
                    writer.existing(entry)
        paths = {manifest.manifest_path for manifest in going}
        return [manifest for manifest in manifests if manifest.manifest_path not in paths]

    def list(self, manifests: Sequence[ManifestFile], parent: Snapshot | None) -> str:
        path = self.table.location_provider().new_metadata_location(
            manifest_list_name(self.process_id, self.snapshot_id)
        )
        # If we die here, a manifest list that nothing refers to is left, under a name undo knows.
        with write_manifest_list(
            format_version=self.table.metadata.format_version,
            output_file=self.table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=self.table.metadata.next_sequence_number(),
            avro_compression=self._codec(),
        ) as writer:
            if manifests:  # an Avro block of no records is not something every reader has met
                writer.add_manifests(list(manifests))
        return path

    def _codec(self) -> AvroCompressionCodec:
        codec: AvroCompressionCodec = self.table.metadata.properties.get(  # type: ignore[assignment]
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
        return codec


def manifests_of(table: Table, snapshot: Snapshot | None) -> list[ManifestFile]:
    """The manifests of a snapshot, read now: PyIceberg's cache would serve what it read before."""
    if snapshot is None:
        return []
    return list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))


def data_files(table: Table, plan: ExportPlan, receipts: Iterable[Receipt]) -> list[DataFile]:
    """The receipts' files as manifests know them, those of one partition side by side."""
    files = [
        data_file(table, plan.destination.spec_id, item) for receipt in receipts for item in receipt.files
    ]
    return sorted(files, key=lambda file: (repr(file.partition), file.file_path))


def data_file(table: Table, spec_id: int, item: FileReceipt) -> DataFile:
    """All that a manifest needs of a file is in its receipt."""
    metadata = table.metadata
    known_order = any(order.order_id == item.sort_order_id for order in metadata.sort_orders)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=item.path,
        file_format=FileFormat.PARQUET,
        partition=record(metadata.specs()[spec_id], metadata.schema(), item.partition),
        record_count=item.rows,
        file_size_in_bytes=item.bytes,
        column_sizes=dict(item.column_sizes) or None,
        value_counts=dict(item.value_counts) or None,
        null_value_counts=dict(item.null_counts) or None,
        nan_value_counts=dict(item.nan_counts) or None,
        lower_bounds={key: bytes.fromhex(value) for key, value in item.lower_bounds.items()} or None,
        upper_bounds={key: bytes.fromhex(value) for key, value in item.upper_bounds.items()} or None,
        key_metadata=None,
        split_offsets=list(item.split_offsets) or None,
        equality_ids=None,
        sort_order_id=item.sort_order_id if known_order else None,
    )
    file.spec_id = spec_id
    return file


def _chunks(files: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (files[start : start + FILES_PER_MANIFEST] for start in range(0, len(files), FILES_PER_MANIFEST))


def attempt_files(table: Table, process_id: str, sent: Sequence[Sent]) -> list[str]:
    """The metadata files written for those attempts, by name: no listing is needed."""
    provider = table.location_provider()
    return [
        provider.new_metadata_location(name)
        for item in sent
        for name in (
            manifest_list_name(process_id, item.snapshot_id),
            *(manifest_name(process_id, item.snapshot_id, number) for number in range(item.manifests)),
        )
    ]


def delete_unused(table: Table, process_id: str, sent: Sequence[Sent], landed: str) -> None:
    """Delete the metadata files of attempts that lost their race. Only one commit of a process can land,
    since each asserts that the tag is absent: nothing can ever refer to the files of the others. Never
    fails a publish: what cannot be deleted now is an orphan that maintenance finds."""
    if all(item.snapshot_id == landed for item in sent):
        return
    known = {str(snapshot.snapshot_id) for snapshot in table.metadata.snapshots} | {landed}
    for path in attempt_files(table, process_id, [item for item in sent if item.snapshot_id not in known]):
        try:
            # If we die here, a file that nothing refers to is left.
            table.io.delete(path)
        except OSError as cause:
            _log.info("could not delete %s, which nothing refers to: %s", path, cause)


def _void_is_null(schema: Schema, spec: PartitionSpec) -> Schema:
    """A void field is NULL whatever its column is, but PyIceberg's writer takes it for required where the
    column is, and fails on every publish (T15)."""
    void = {field.source_id for field in spec.fields if isinstance(field.transform, VoidTransform)}
    if not void:
        return schema
    fields = (
        field.model_copy(update={"required": False}) if field.field_id in void else field
        for field in schema.fields
    )
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The files that go, by path."""

    files: frozenset[str] = frozenset()
    rows: int = 0
    bytes: int = 0
    partitions: frozenset[str] = frozenset()

    def rewrite(self, table: Table, output: ManifestFiles) -> list[ManifestFile]:
        """The head's manifests, those with files that go written anew: what goes is DELETED, what
        stays EXISTING, each with the sequence numbers it has. Rewritten ones are in `output`."""
        kept = []
        for manifest in manifests_of(table, head_of(table.metadata)):
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue  # only says what an earlier snapshot deleted
            if manifest.content != ManifestContent.DATA or not self.files:
                kept.append(manifest)
                continue
            entries = manifest.fetch_manifest_entry(table.io)
            if not any(entry.data_file.file_path in self.files for entry in entries):
                kept.append(manifest)
                continue
            with output.writer(manifest.partition_spec_id) as writer:
                for entry in entries:
                    if entry.data_file.file_path in self.files:
                        writer.delete(entry)
                    else:
                        writer.existing(entry)
        return kept


NOTHING = Removal()
