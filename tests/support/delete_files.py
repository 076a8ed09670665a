"""A delete file, committed as engines that write them do: PyIceberg reads them and writes none."""

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
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

from calve.iceberg.publish.manifests import manifests_of


class DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def commit_delete_file(
    catalog: Catalog,
    table: Table,
    snapshot_id: int,
    file: DataFile,
    writer: type[DeleteManifestWriter] = DeleteManifestWriter,
) -> None:
    snapshot = _snapshot(table, snapshot_id, _manifest(table, snapshot_id, file, writer), file.record_count)
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main))
    )


def _manifest(
    table: Table, snapshot_id: int, file: DataFile, writer: type[DeleteManifestWriter]
) -> ManifestFile:
    path = f"{table.location()}/metadata/deletes-{snapshot_id}-m0.avro"
    spec = table.metadata.specs()[file.spec_id]
    with writer(spec, table.schema(), table.io.new_output(path), snapshot_id, "deflate") as opened:
        opened.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=None,
                data_file=file,
            )
        )
    return opened.to_manifest_file()


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
