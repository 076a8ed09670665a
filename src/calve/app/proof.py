"""Proving an export or an optimize after the fact, from what the store has of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calve.app.wiring import App
from calve.destination.outcome import Verification
from calve.destination.plan import ExportPlan
from calve.destination.proof import expected_checksums
from calve.destination.receipt import Receipt
from calve.export.request import ExportRequest
from calve.export.source_check import read_again
from calve.iceberg.verify import RewriteProof, verify_rewrites
from calve.model.errors import RefusedError
from calve.model.process import Process, ProcessId, Task
from calve.model.record import Record, loads
from calve.model.states import ProcessState, TaskState
from calve.optimize.plan import OptimizePlan


@dataclass(frozen=True, kw_only=True)
class SourceProof:
    """The source read again, against what the tasks computed when they read it."""

    exported_rows: int
    found_rows: int
    differing: tuple[str, ...]  # columns

    @property
    def faults(self) -> tuple[str, ...]:
        rows = (
            (f"the source has {self.found_rows} rows where {self.exported_rows} were exported",)
            if self.found_rows != self.exported_rows
            else ()
        )
        return rows + tuple(f"column {name} differs between source and export" for name in self.differing)


@dataclass(frozen=True, kw_only=True)
class ExportProof:
    """What was found; `source` only where it was read again."""

    process_id: ProcessId
    table: Verification
    source: SourceProof | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        return self.table.faults + (self.source.faults if self.source else ())

    @property
    def ok(self) -> bool:
        return not self.faults


@dataclass(frozen=True, kw_only=True)
class OptimizeProof:
    """That an optimize changed no row: each snapshot it made against the one before it."""

    process_id: ProcessId
    snapshots: tuple[RewriteProof, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(fault for proof in self.snapshots for fault in proof.faults)

    @property
    def ok(self) -> bool:
        return not self.faults


def proofs(app: App, ids: Sequence[str], *, deep: bool = False) -> list[ExportProof | OptimizeProof]:
    """A proof of each process, whatever its kind."""
    return [
        prove_rewrite(app, process_id)
        if app.store.process(process_id).kind == "optimize"
        else prove(app, process_id, deep=deep)
        for process_id in app.find(ids)
    ]


def prove(app: App, process_id: ProcessId, *, deep: bool = False) -> ExportProof:
    """RefusedError for what published nothing that could be read back, and, when the source is to
    be read again, for a source that has changed since."""
    process, plan = app.store.process(process_id), app.store.plan(process_id)
    _refuse_unpublished(process)
    if plan is None or process.snapshot_id is None:
        raise RefusedError(
            f"process {process_id} published nothing of its own: everything was already exported",
            code="not_verifiable",
            hint=f"calve show {process_id} names the process that did; verify that one",
        )
    tasks = app.store.tasks(process_id, frozenset({TaskState.DONE}))
    receipts = [Receipt.from_json(task.receipt) for task in tasks if task.receipt]
    read = ExportPlan.from_json(plan)
    destination = app.destination(ExportRequest.from_json(process.request).address)
    table = destination.verify(process_id, read, receipts, process.snapshot_id)
    return ExportProof(
        process_id=process_id,
        table=table,
        source=_against_source(app, process, read, receipts) if deep else None,
    )


def prove_rewrite(app: App, process_id: ProcessId) -> OptimizeProof:
    """An optimize, also one that failed or was cancelled: what its tasks committed stays. A receipt
    names the snapshots of its task; what came after the tasks is in the result."""
    process, plan = app.store.process(process_id), app.store.plan(process_id)
    if plan is None:
        raise RefusedError(
            f"process {process.id} rewrote nothing: it is {process.state.value}",
            code="not_verifiable",
            hint=f"calve show {process.id}",
        )
    read = OptimizePlan.from_json(plan)
    made = rewritten(process, app.store.tasks(process.id, frozenset({TaskState.DONE})))
    return OptimizeProof(
        process_id=process_id,
        snapshots=verify_rewrites(app.catalog(read.catalog), read.identifier, read.uuid, made),
    )


@dataclass(frozen=True, kw_only=True)
class _Rewritten(Record):
    snapshots: tuple[str, ...]


def rewritten(process: Process, tasks: Sequence[Task]) -> list[str]:
    """The snapshots that an optimize made, each once. DamagedError where one text does not say: a proof of the others
    would be none."""
    result = (
        loads(dict[str, Any], process.result, f"the result of process {process.id}") if process.result else {}
    )
    made = [str(found) for found in result.get("snapshots", ())]
    for task in tasks:
        receipt = _Rewritten.from_json(
            task.receipt, f"the receipt of task {task.number} of process {process.id}"
        )
        made += [found for found in receipt.snapshots if found not in made]
    return made


def _refuse_unpublished(process: Process) -> None:
    if process.kind != "export" or process.state is not ProcessState.COMPLETED:
        raise RefusedError(
            f"process {process.id} is of kind {process.kind} and {process.state.value}: only a completed export"
            " or an optimize can be verified",
            code="not_verifiable",
            hint=f"calve show {process.id}",
        )


def _against_source(app: App, process: Process, plan: ExportPlan, receipts: list[Receipt]) -> SourceProof:
    found = read_again(app.source(plan.source), ExportRequest.from_json(process.request), plan)
    expected = expected_checksums(plan, receipts)
    return SourceProof(
        exported_rows=sum(receipt.rows for receipt in receipts),
        found_rows=found.rows,
        differing=tuple(name for name in expected if expected[name] != found.checksums[name]),
    )
