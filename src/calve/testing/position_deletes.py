"""Merge-on-read deletes as Spark writes them, which PyIceberg reads and does not write."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from calve.lake.publish.manifests import manifests_of
from calve.lake.storage import Storage

PATH_FIELD_ID, POSITION_FIELD_ID = 2147483546, 2147483545


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_rows(catalog: Catalog, identifier: tuple[str, ...], path: str, positions: list[int]) -> None:
    """Commit one position delete file against one data file."""
    table = catalog.load_table(identifier)
    (target,) = (task.file for task in table.scan().plan_files() if task.file.file_path == path)
    snapshot_id = table.metadata.new_snapshot_id()
    manifest = _manifest(table, snapshot_id, _delete_file(table, target, positions, snapshot_id))
    snapshot = _snapshot(table, snapshot_id, manifest, len(positions))
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main))
    )


def _delete_file(table: Table, target: DataFile, positions: list[int], snapshot_id: int) -> DataFile:
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_FIELD_ID)}),
    ]
    data: Any = pa.table(
        {"file_path": [target.file_path] * len(positions), "pos": positions}, schema=pa.schema(fields)
    )
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    location = f"{table.location()}/data/deletes-{snapshot_id}.parquet"
    Storage().put_if_absent(location, buffer.getvalue())
    bounds = {PATH_FIELD_ID: target.file_path.encode()}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=target.partition,
        record_count=len(positions),
        file_size_in_bytes=buffer.tell(),
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = target.spec_id
    return file


def _manifest(table: Table, snapshot_id: int, file: DataFile) -> ManifestFile:
    path = f"{table.location()}/metadata/deletes-{snapshot_id}-m0.avro"
    spec = table.metadata.specs()[file.spec_id]
    with _DeleteManifestWriter(
        spec, table.schema(), table.io.new_output(path), snapshot_id, "deflate"
    ) as writer:
        writer.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=None,
                data_file=file,
            )
        )
    return writer.to_manifest_file()


def _snapshot(table: Table, snapshot_id: int, manifest: ManifestFile, rows: int) -> Snapshot:
    metadata = table.metadata
    head = metadata.current_snapshot()
    parent = None if head is None else head.snapshot_id
    path = f"{table.location()}/metadata/snap-{snapshot_id}-deletes.avro"
    sequence_number = metadata.next_sequence_number()
    with write_manifest_list(
        2, table.io.new_output(path), snapshot_id, parent, sequence_number, "deflate"
    ) as writer:
        writer.add_manifests([manifest, *manifests_of(table, head)])
    deleted = {"added-delete-files": "1", "added-position-deletes": str(rows)}
    return Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent,
            "sequence-number": sequence_number,
            "manifest-list": path,
            "summary": Summary(operation=Operation.DELETE, **deleted),
            "schema-id": metadata.current_schema_id,
        }
    )
