"""Somebody else's hands on the table: appends, expiry of old snapshots, a sweep of tags, drops and renames."""

import json

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import Record

from calve.iceberg.publish.build import next_timestamp_ms
from calve.iceberg.publish.manifests import manifests_of
from calve.iceberg.publish.marks import head_of
from support.simulator.catalog import ModelledCatalog, Name
from support.simulator.objects import ModelledObjects

KEEP = 4  # snapshots of main that an expiry leaves


def append(catalog: ModelledCatalog, objects: ModelledObjects, name: Name, label: str) -> None:
    """A file of one row, committed at once."""
    with catalog.weather.schedule.aside():
        metadata = catalog.tables.get(name)
        if metadata is None:
            return
        table = catalog.table(name, metadata)
        uri = f"{metadata.location}/data/foreign-{label}.parquet"
        data = json.dumps([f"foreign/{label}:0"]).encode()
        objects.write(lambda: (data,), uri)
        spec = metadata.spec()
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri,
            file_format=FileFormat.PARQUET,
            partition=Record(*(9 for _ in spec.fields)),
            record_count=1,
            file_size_in_bytes=len(data),
        )
        file.spec_id = spec.spec_id
        snapshot_id = metadata.new_snapshot_id()
        parent = head_of(metadata)
        writer = write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            schema=metadata.schema(),
            output_file=table.io.new_output(f"{metadata.location}/metadata/foreign-{label}-m0.avro"),
            snapshot_id=snapshot_id,
            avro_compression="null",
        )
        with writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file
                )
            )
        where = f"{metadata.location}/metadata/foreign-{label}.avro"
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=table.io.new_output(where),
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=metadata.next_sequence_number(),
            avro_compression="null",
        ) as made:
            made.add_manifests([writer.to_manifest_file(), *manifests_of(table, parent)])
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": metadata.next_sequence_number(),
                "timestamp-ms": next_timestamp_ms(metadata),
                "manifest-list": where,
                "summary": Summary(operation=Operation.APPEND),
                "schema-id": metadata.current_schema_id,
            }
        )
        main = {"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": snapshot_id}
        catalog.apply(name, (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main)))


def expire(catalog: ModelledCatalog, name: Name) -> None:
    """Snapshots of main but for the newest, except those that a tag names. No file is deleted."""
    metadata = catalog.tables.get(name)
    if metadata is None:
        return
    tagged = {ref.snapshot_id for ref in metadata.refs.values()}
    old = [one.snapshot_id for one in metadata.snapshots[:-KEEP] if one.snapshot_id not in tagged]
    if old:
        catalog.apply(name, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}),))


def sweep_tags(catalog: ModelledCatalog, name: Name) -> None:
    """Tags on old snapshots, as an expiry by age sweeps them."""
    metadata = catalog.tables.get(name)
    if metadata is None:
        return
    new = {one.snapshot_id for one in metadata.snapshots[-KEEP:]}
    old = [ref for ref, it in metadata.refs.items() if ref != MAIN_BRANCH and it.snapshot_id not in new]
    if old:
        catalog.apply(name, tuple(RemoveSnapshotRefUpdate.model_validate({"ref-name": ref}) for ref in old))


def rollback(catalog: ModelledCatalog, name: Name) -> None:
    """Main goes back to the snapshot before its head."""
    metadata = catalog.tables.get(name)
    head = None if metadata is None else head_of(metadata)
    if metadata is None or head is None or head.parent_snapshot_id is None:
        return
    if metadata.snapshot_by_id(head.parent_snapshot_id) is not None:
        main = {"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": head.parent_snapshot_id}
        catalog.apply(name, (SetSnapshotRefUpdate.model_validate(main),))


def drop_table(catalog: ModelledCatalog, name: Name) -> None:
    """Its files stay where they are."""
    catalog.put(name, None)


def rename_table(catalog: ModelledCatalog, name: Name) -> None:
    """Away, or back where nobody has taken the name since."""
    other = (*name[:-1], f"{name[-1]}_old")
    if name in catalog.tables and other not in catalog.tables:
        catalog.put(other, catalog.tables[name], was=name)
    elif other in catalog.tables and name not in catalog.tables:
        catalog.put(name, catalog.tables[other], was=other)
