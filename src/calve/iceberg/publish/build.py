"""Building one snapshot on exactly the metadata that was searched. Writes metadata files; changes no table."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

import calve
from calve.destination.names import FENCE
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from calve.iceberg.publish import marks
from calve.iceberg.publish.manifests import NOTHING, ManifestFiles, Removal, data_files
from calve.iceberg.publish.marks import Sent

_TOTALS = {  # of the table, kept from summary to summary: what adds to them, what takes away
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


@dataclass(frozen=True, kw_only=True)
class StagedSnapshot:
    """A snapshot that is written and not yet sent."""

    snapshot: Snapshot
    sent: Sent


def next_timestamp_ms(metadata: TableMetadata, now_ms: int | None = None) -> int:
    """L27: later than every snapshot there is, whatever this machine's clock says."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    newest = max((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=0)
    return max(now, newest + 1)


def build(
    table: Table,
    process_id: str,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    removal: Removal = NOTHING,
    now_ms: int | None = None,
    *,
    merge: bool = False,
) -> StagedSnapshot:
    """An append of the receipts' files, or, with a removal, an overwrite that takes its files out."""
    snapshot_id = table.metadata.new_snapshot_id()
    output = ManifestFiles(table=table, process_id=process_id, snapshot_id=snapshot_id)
    added = data_files(table, plan, receipts)
    output.add(added, plan.destination.spec_id)
    kept = removal.rewrite(table, output)
    if merge and not removal.files:
        kept = output.merge(kept, plan.destination.spec_id)
    summary = {
        **_changes(added, removal),
        marks.PROCESS_ID: process_id,
        marks.EXPORT_KEY: ",".join(key.hash for key in plan.keys),
        marks.VERSION: calve.__version__,
    }
    operation = Operation.OVERWRITE if removal.files else Operation.APPEND
    snapshot = _snapshot(table, output, [*output.written, *kept], operation, summary, now_ms)
    return _staged(snapshot, output)


def build_empty(
    table: Table, process_id: str, now_ms: int | None = None, *, says: str = marks.FENCE
) -> Snapshot:
    """A snapshot that adds no file and keeps those of main's head: the tombstone of a process, or what
    its summary says else."""
    snapshot_id = table.metadata.new_snapshot_id()
    # Under a name of its own: undo deletes a process's unused metadata files, and this one is used.
    output = ManifestFiles(table=table, process_id=f"{FENCE}{process_id}", snapshot_id=snapshot_id)
    kept = NOTHING.rewrite(table, output)
    summary = {says: process_id, marks.VERSION: calve.__version__}
    return _snapshot(table, output, kept, Operation.APPEND, summary, now_ms)


def _staged(snapshot: Snapshot, output: ManifestFiles) -> StagedSnapshot:
    sent = Sent(
        snapshot_id=str(snapshot.snapshot_id),
        timestamp_ms=snapshot.timestamp_ms,
        manifests=len(output.written),
    )
    return StagedSnapshot(snapshot=snapshot, sent=sent)


def _snapshot(
    table: Table,
    output: ManifestFiles,
    manifests: Sequence[ManifestFile],
    operation: Operation,
    summary: Mapping[str, str],
    now_ms: int | None,
) -> Snapshot:
    metadata = table.metadata
    parent = marks.head_of(metadata)
    return Snapshot.model_validate(
        {
            "snapshot-id": output.snapshot_id,
            "parent-snapshot-id": None if parent is None else parent.snapshot_id,
            "sequence-number": metadata.next_sequence_number(),
            "timestamp-ms": next_timestamp_ms(metadata, now_ms),
            "manifest-list": output.list(manifests, parent),
            "summary": Summary(operation=operation, **summary, **_totals(parent, summary)),
            "schema-id": metadata.current_schema_id,
        }
    )


def _changes(added: Sequence[DataFile], removal: Removal) -> dict[str, str]:
    partitions = {repr(file.partition) for file in added} | removal.partitions
    numbers = {
        "added-data-files": len(added),
        "added-records": sum(file.record_count for file in added),
        "added-files-size": sum(file.file_size_in_bytes for file in added),
        "deleted-data-files": len(removal.files),
        "deleted-records": removal.rows,
        "removed-files-size": removal.bytes,
        "changed-partition-count": len(partitions),
    }
    return {name: str(number) for name, number in numbers.items() if number}


def _totals(parent: Snapshot | None, summary: Mapping[str, str]) -> dict[str, str]:
    """Left out where the parent does not know them: a wrong total is worse than none."""
    before: Mapping[str, str] = dict.fromkeys(_TOTALS, "0")
    if parent is not None:
        before = {} if parent.summary is None else parent.summary.additional_properties
    totals = {}
    for name, (plus, minus) in _TOTALS.items():
        if before.get(name, "").isdigit():
            total = int(before[name]) + int(summary.get(plus, 0)) - int(summary.get(minus, 0))
            if total >= 0:
                totals[name] = str(total)
    return totals
