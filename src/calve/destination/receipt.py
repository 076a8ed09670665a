"""Receipts: what a finished attempt leaves beside its files, put if-none-match.

Publishing uses only files that a receipt names, and reads no footer: all that a manifest
needs is here. Integers are Python's, so counters hold more than 2^31 (L15).

Receipts are recounted before a publish (L23): every task once, every file once, the rows adding up. A receipt
that a retry adopted names files of the process that wrote them, under the number that the task had there:
parts merge, and the retry's plan counts its tasks anew (T8).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calve.destination.names import DataFileName
from calve.destination.plan import ExportPlan, KeyPlan
from calve.model.errors import PermanentError, RefusedError
from calve.model.record import Record
from calve.objects.storage import Storage
from calve.objects.uri import full_uri, is_below

RECEIPT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FileReceipt:
    """One data file. Maps are by field id; bounds are Iceberg's single-value form, in hex."""

    path: str  # the full URI
    rows: int
    bytes: int
    partition: tuple[
        Any, ...
    ] = ()  # by the plan's spec, in field order; JSON values, see calve.destination.description
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_counts: Mapping[int, int] = field(default_factory=dict)
    nan_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, str] = field(default_factory=dict)
    upper_bounds: Mapping[int, str] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class Receipt(Record):
    """What one attempt of one task read and wrote."""

    process_id: str
    task: int
    attempt: int
    rows: int
    bytes: int
    files: tuple[FileReceipt, ...] = ()
    checksums: Mapping[str, str] = field(
        default_factory=dict
    )  # per column, order-independent, of what was read
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)  # of these, by phase
    version: int = RECEIPT_VERSION


def recount(plan: ExportPlan, receipts: Sequence[Receipt]) -> None:
    """PermanentError that names the task or file, if the receipts are not exactly the plan's work."""
    own = [receipt for receipt in receipts if receipt.process_id == plan.process_id]
    faults = [*_tasks(plan, receipts), *_files(receipts), *_rows(plan, receipts), *_renumbered(own)]
    faults = faults or _against_the_pin(plan, receipts)
    if faults:
        raise PermanentError(
            f"the receipts of process {plan.process_id} are not complete: {'; '.join(faults[:10])}",
            code="receipts_incomplete",
            hint=f"nothing was published; run it again: calve retry {plan.process_id}",
        )


def sound(plan: ExportPlan, receipts: Sequence[Receipt]) -> list[Receipt]:
    """Those of the receipts that this plan can rely on: the others would fail the recount, and a retry that
    adopted them would fail as the first run did (T8)."""
    found = [one for one in receipts if not _files([one]) and not _rows(plan, [one])]
    written = {receipt.task: receipt.rows for receipt in found}
    wrong: set[int] = set()
    for key in plan.keys if _is_counted(plan) else ():
        tasks = set(tasks_of(plan, key) or ())
        if tasks <= written.keys() and sum(written[number] for number in tasks) != key.rows:
            wrong |= tasks
    return [receipt for receipt in found if receipt.task not in wrong]


def paths_in(receipts: Sequence[Receipt]) -> set[str]:
    return {full_uri(file.path) for receipt in receipts for file in receipt.files}


def files_of(
    storage: Storage, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt] = ()
) -> tuple[str, ...]:
    """All data files of a process: those that are in the destination's folder now, and
    those that its receipts name."""
    listed = (
        full_uri(uri)
        for uri in storage.list(plan.destination.data_location)
        if is_data_file_of(process_id, plan, uri)
    )
    return tuple(sorted({*listed, *named_files(process_id, plan, receipts)}))


def named_files(process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """What receipts name of a process's own files. Adopted receipts name files of another process, which are that
    one's to delete; a path that leads elsewhere is nobody's to delete (T9)."""
    return tuple(sorted(uri for uri in paths_in(receipts) if is_data_file_of(process_id, plan, uri)))


def is_data_file_of(process_id: str, plan: ExportPlan, uri: str) -> bool:
    name = DataFileName.parse(uri)
    return (
        name is not None and name.process_id == process_id and is_below(uri, plan.destination.data_location)
    )


def written_as(receipt: Receipt) -> int:
    """The number that its task had in the process that wrote it; it is in the names of the files."""
    names = [name for file in receipt.files if (name := DataFileName.parse(file.path)) is not None]
    return names[0].task if names else receipt.task


def refuse_shrinking(plan: ExportPlan, receipts: Sequence[Receipt], replaced_rows: int) -> None:
    """T19: rows that were exported are not replaced by fewer unless that is asked for: the source may
    have lost them. Counted here as well as by the survey, which cannot count filtered rows."""
    rows = sum(receipt.rows for receipt in receipts)
    if rows < replaced_rows and not plan.allow_shrink:
        raise RefusedError(
            f"{rows} rows of {plan.table} would replace {replaced_rows} that were exported: "
            f"{replaced_rows - rows} would be lost",
            code="would_shrink",
            hint="keep the export as it is, or bring the rows back at the source:"
            " they were dropped, deleted, merged or expired there",
        )


def _tasks(plan: ExportPlan, receipts: Sequence[Receipt]) -> list[str]:
    counts = Counter(receipt.task for receipt in receipts)
    planned = range(len(plan.tasks))
    missing = [number for number in planned if number not in counts]
    return [
        *(f"task {number} has no receipt" for number in missing),
        *(f"task {number} has {count} receipts" for number, count in sorted(counts.items()) if count > 1),
        *(f"task {number} is not in the plan" for number in sorted(counts) if number not in planned),
    ]


def _files(receipts: Sequence[Receipt]) -> list[str]:
    faults = []
    seen: set[str] = set()
    for receipt in receipts:
        task = written_as(receipt)
        wrote = (receipt.process_id, task, receipt.attempt)
        for file in receipt.files:
            if file.path in seen:
                faults.append(f"file {file.path} is named twice")
            name = DataFileName.parse(file.path)
            if name is None or (name.process_id, name.task, name.attempt) != wrote:
                faults.append(f"file {file.path} is not of task {task}, attempt {receipt.attempt}")
            if file.rows <= 0 or file.bytes <= 0:
                faults.append(f"file {file.path} has {file.rows} rows and {file.bytes} bytes")
            seen.add(file.path)
    return faults


def _renumbered(own: Sequence[Receipt]) -> list[str]:
    """Only what was adopted may have been written under another number."""
    return [
        f"the files of task {receipt.task} are those of task {written_as(receipt)}"
        for receipt in own
        if written_as(receipt) != receipt.task
    ]


def _rows(plan: ExportPlan, receipts: Sequence[Receipt]) -> list[str]:
    faults = []
    for receipt in receipts:
        written = sum(file.rows for file in receipt.files)
        if written != receipt.rows:
            faults.append(f"task {receipt.task} read {receipt.rows} rows and wrote {written}")
        if receipt.task < len(plan.tasks):
            # Fewer is right where rows were deleted or filtered, which the keys' rows tell; more never is.
            most = sum(piece.end - piece.start for piece in plan.tasks[receipt.task])
            if written > most:
                faults.append(f"task {receipt.task} has {written} rows where the plan has {most}")
    return faults


def _against_the_pin(plan: ExportPlan, receipts: Sequence[Receipt]) -> list[str]:
    """Exact where it can be: without a filter or FINAL, what was written of a partition is what a
    reader of the pin sees of it, deleted rows left out. The pin counted them by itself, so a task
    that read too little is found even if it believes in its own count."""
    if not _is_counted(plan):
        return []
    written = {receipt.task: receipt.rows for receipt in receipts}
    by_key = [(key, tasks_of(plan, key)) for key in plan.keys]
    if any(tasks is None for _, tasks in by_key):
        return _compared("all partitions", sum(written.values()), plan.keys)
    return [
        fault
        for key, tasks in by_key
        for fault in _compared(
            f"partition {key.partition}", sum(written[number] for number in tasks or ()), (key,)
        )
    ]


def _is_counted(plan: ExportPlan) -> bool:
    """Whether the pin knows how many rows will be read: not with a filter, nor FINAL, nor in a plan of a
    version that did not count them."""
    return not (plan.relation.where or plan.relation.final) and all(key.rows for key in plan.keys)


def _compared(what: str, found: int, keys: Sequence[KeyPlan]) -> list[str]:
    expected = sum(key.rows for key in keys)
    return [] if found == expected else [f"{what}: {found} rows were written and the pin has {expected}"]


def tasks_of(plan: ExportPlan, key: KeyPlan) -> tuple[int, ...] | None:
    """The tasks that read this key's partition and no other; None if one task mixes keys."""
    found = []
    for number, task in enumerate(plan.tasks):
        partitions = {plan.parts[piece.part].partition_id for piece in task}
        if key.partition not in partitions:
            continue
        if len(partitions) > 1:
            return None
        found.append(number)
    return tuple(found)
