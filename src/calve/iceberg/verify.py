"""Proving an export after the fact: rows and per-column checksums, read by another engine than wrote them.

The files that the receipts name are read at the recorded snapshot through PyIceberg's scan, in
batches, and compared with what the tasks computed while reading the source. What cannot be read
there any more (an expired snapshot, compacted files) is said, never guessed.

Proving that a rewrite changed no row: what its snapshot took out against what it put in, by value.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from calve.destination.outcome import Verification
from calve.destination.plan import ExportPlan
from calve.destination.proof import Box, Scan, in_boxes, prove, read_back
from calve.destination.receipt import Receipt
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.model.errors import PermanentError, RefusedError
from calve.objects.uri import full_uri


def verify(catalog: Catalog, plan: ExportPlan, receipts: Sequence[Receipt], snapshot_id: str) -> Verification:
    """Read a process's files at its snapshot and compare. RefusedError where they cannot be read there."""
    table = tables.load(catalog, plan.destination.identifier)
    _check_snapshot(plan, table, snapshot_id)
    with catalog_call(catalog.name, f"reading snapshot {snapshot_id} of {'.'.join(table.name())}"):
        work = _scan_tasks(table, receipts, snapshot_id)
        return prove(table.metadata, table.io, plan, receipts, work, snapshot_id)


def scan(
    catalog: Catalog,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    snapshot_id: str,
    boxes: Sequence[Box] = (),
) -> Scan:
    """At main's head. Where that lacks some of the files, what it has in the boxes instead of them; without boxes,
    the files at the process's own snapshot."""
    table = tables.load(catalog, plan.destination.identifier)
    name, metadata = ".".join(table.name()), table.metadata
    head = metadata.snapshot_by_name("main")
    at = str(head.snapshot_id) if head else snapshot_id
    _check_snapshot(plan, table, at)
    named = {full_uri(file.path) for receipt in receipts for file in receipt.files}
    with catalog_call(catalog.name, f"reading metadata of table {name}"):
        shown = planned(table, name, int(at)).values()
        work = [task for task in shown if full_uri(task.file.file_path) in named]
        whole = len(work) == len(named)
        if not whole and not boxes:
            _check_snapshot(plan, table, snapshot_id)
            work = _scan_tasks(table, receipts, snapshot_id)
            return Scan.of(metadata, work, snapshot_id, current=False)
        if not boxes:
            return Scan.of(metadata, work, at, current=True)
        fit = planned(table, name, int(at), in_boxes(boxes, metadata.schema())).values()
        own = work if whole else []
        others = [task for task in fit if not whole or full_uri(task.file.file_path) not in named]
        return Scan.of(metadata, own, at, current=True, others=others, boxes=boxes, whole=whole)


def _check_snapshot(plan: ExportPlan, table: Table, snapshot_id: str) -> None:
    name = ".".join(table.name())
    if str(table.metadata.table_uuid) != plan.destination.uuid:
        raise PermanentError(
            f"table {name} was dropped and created again since the export",
            code="destination_replaced",
            hint="what was exported is gone with the old table; export again",
        )
    if table.metadata.snapshot_by_id(int(snapshot_id)) is None:
        raise RefusedError(
            f"snapshot {snapshot_id} of table {name} is expired: what it showed can no longer be proven",
            code="snapshot_expired",
            hint="export again with --force if the rows are in doubt",
        )


def _scan_tasks(table: Table, receipts: Sequence[Receipt], snapshot_id: str) -> list[FileScanTask]:
    """The scan's own tasks, deletes included, for exactly the files that the receipts name."""
    named = {full_uri(file.path) for receipt in receipts for file in receipt.files}
    shown = planned(table, ".".join(table.name()), int(snapshot_id)).values()
    work = [task for task in shown if full_uri(task.file.file_path) in named]
    if missing := named - {full_uri(task.file.file_path) for task in work}:
        raise PermanentError(
            f"snapshot {snapshot_id} does not have {len(missing)} of {len(named)} files of the export,"
            f" {min(missing)} among them",
            code="files_missing",
            hint="the snapshot is not the one this process published; export again with --force",
        )
    return work


@dataclass(frozen=True, kw_only=True)
class RewriteProof:
    """One snapshot of a rewrite. `differing` are columns whose values are not the same as before."""

    snapshot_id: str
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int
    columns: tuple[str, ...]
    differing: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        where = f"snapshot {self.snapshot_id}"
        rows = (
            (f"{where} put {self.rows_after} rows where {self.rows_before} were",)
            if self.rows_after != self.rows_before
            else ()
        )
        return rows + tuple(f"{where} changed values of column {name}" for name in self.differing)


def verify_rewrites(
    catalog: Catalog, identifier: tuple[str, ...], uuid: str, snapshot_ids: Sequence[str]
) -> tuple[RewriteProof, ...]:
    """Each snapshot against its parent. RefusedError where one of them can no longer be read."""
    table = tables.load(catalog, identifier)
    name = ".".join(table.name())
    if str(table.metadata.table_uuid) != uuid:
        raise PermanentError(
            f"table {name} was dropped and created again since it was optimized",
            code="destination_replaced",
            hint="what was rewritten is gone with the old table",
        )
    return tuple(compare_rewrite(catalog, table, int(snapshot_id)) for snapshot_id in snapshot_ids)


def compare_rewrite(catalog: Catalog, table: Table, snapshot_id: int) -> RewriteProof:
    """What one snapshot took out of the table with what it put in, by value."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    parent = None if snapshot is None else snapshot.parent_snapshot_id
    if parent is None or table.metadata.snapshot_by_id(parent) is None:
        raise RefusedError(
            f"snapshot {snapshot_id} of table {'.'.join(table.name())}, or the one before it, is expired: what it changed"
            " can no longer be proven",
            code="snapshot_expired",
            hint="verify while both are kept; the table property history.expire.max-snapshot-age-ms says how long",
        )
    return compare_states(catalog, table, parent, snapshot_id)


def compare_states(
    catalog: Catalog, table: Table, first: int, last: int, left_out: Set[str] = frozenset()
) -> RewriteProof:
    """What is in the one snapshot alone with what is in the other alone, except for files that are `left_out`."""
    name = ".".join(table.name())
    snapshot = table.metadata.snapshot_by_id(last)
    schema = _schema(table, None if snapshot is None else snapshot.schema_id)
    with catalog_call(catalog.name, f"reading snapshots {first} and {last} of {name}"):
        before, after = planned(table, name, first), planned(table, name, last)
        taken = [task for key, task in before.items() if key not in after]
        put = [task for key, task in after.items() if key not in before and key[0] not in left_out]
        rows_before, sums_before = read_back(table.metadata, table.io, schema, taken)
        rows_after, sums_after = read_back(table.metadata, table.io, schema, put)
    return RewriteProof(
        snapshot_id=str(last),
        files_before=len(taken),
        files_after=len(put),
        rows_before=rows_before,
        rows_after=rows_after,
        columns=tuple(sums_after),
        differing=tuple(column for column in sums_after if sums_before[column] != sums_after[column]),
    )


def _schema(table: Table, schema_id: int | None) -> Schema:
    """The snapshot's own: a column that was dropped since is compared too, one that was added is not."""
    found = next((schema for schema in table.metadata.schemas if schema.schema_id == schema_id), None)
    readable = found or table.schema()
    # Checksums are defined by type, and read_back names columns: nested fields belong to theirs.
    return Schema(*readable.fields, schema_id=readable.schema_id)


def planned(
    table: Table, name: str, snapshot_id: int, row_filter: BooleanExpression = AlwaysTrue()
) -> dict[tuple[str, frozenset[str]], FileScanTask]:
    """What a reader of the snapshot reads: each data file with the deletes that apply to it."""
    try:
        tasks = list(table.scan(row_filter, snapshot_id=snapshot_id).plan_files())
    except ValueError as error:  # PyIceberg's way to say that it cannot apply equality deletes
        raise RefusedError(
            f"snapshot {snapshot_id} of table {name} cannot be read here: {error}",
            code="not_verifiable",
            hint="PyIceberg, which reads it back, does not support equality deletes; compare the snapshots with Spark",
        ) from error
    return {
        (task.file.file_path, frozenset(file.file_path for file in task.delete_files)): task for task in tasks
    }
