"""The proof kind: an export is read back on executors and compared with the source, and what came of it is kept in
the store. It changes nothing outside, so there is nothing to fence and nothing to undo.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from pyiceberg.schema import Schema

from calve.clickhouse.row_hash import RowSums
from calve.clickhouse.source import LiveSource
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import StoreReader, TaskOrder, TaskResult
from calve.destination import checksums
from calve.destination.names import DestinationAddress
from calve.destination.plan import ExportPlan
from calve.destination.port import Destination
from calve.destination.proof import expected_checksums, written_columns
from calve.destination.receipt import Receipt
from calve.model.access import Proof
from calve.model.change import Result
from calve.model.errors import NotFoundError, PermanentError, RefusedError
from calve.model.limits import Limits
from calve.model.process import NewTask, Pin, Process, ProcessId, Task
from calve.model.reach import Service
from calve.model.states import TaskState
from calve.objects.uri import full_uri
from calve.policy.proof_plan import NAME, Depth, ProofPlan, ProofReceipt, ProofRequest, grouped, sampled
from calve.policy.proof_source import compare_with, source_sums
from calve.policy.proof_task import ProofPayload
from calve.tasks.attempts import order_for

TASK_FUNCTION = "calve.policy.proof_task:run"
_DETAIL = 500  # characters that are kept with a proof


class ProofPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def store(self) -> StoreReader:
        """To read what was exported; never written."""

    def source(self, name: str) -> LiveSource: ...

    def destination(self, address: DestinationAddress) -> Destination: ...

    def record_proof(self, proof: Proof) -> None: ...


class ProofKind(Kind):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: ProofPorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = ProofRequest.from_json(process.request)
        plan, receipts, snapshot_id = self._exported(request)
        scan = self._ports.destination(request.address).scan(request.export, plan, receipts, snapshot_id)
        if request.sample:
            receipts = [receipts[place] for place in sampled(len(receipts))]
            named = {full_uri(file.path) for receipt in receipts for file in receipt.files}
            scan = replace(scan, files=tuple(file for file in scan.files if full_uri(file.path) in named))
        made = ProofPlan(
            process_id=process.id,
            export=request.export,
            depth=Depth.SAMPLE if request.sample else Depth.DESTINATION,
            scan=scan,
            tasks=grouped(scan.files),
            schema=written_columns(plan).model_dump_json(),
            expected=expected_checksums(plan, receipts),
            expected_rows=sum(receipt.rows for receipt in receipts),
        )
        if not request.sample:
            made = self._with_source(request, plan, made)
        tasks = tuple(NewTask(number=number, spec="") for number in range(len(made.tasks)))
        return Planned(plan=made.to_json(), tasks=tasks)

    def _exported(self, request: ProofRequest) -> tuple[ExportPlan, list[Receipt], str]:
        id = ProcessId(request.export)
        try:
            export = self._ports.store.process(id)
        except NotFoundError:
            export = None
        plan = self._ports.store.plan(id)
        if export is None or plan is None or export.snapshot_id is None:
            raise RefusedError(
                f"process {id} published nothing that this store knows",
                code="not_verifiable",
                hint=f"calve show {id}",
            )
        tasks = self._ports.store.tasks(id, frozenset({TaskState.DONE}))
        receipts = [Receipt.from_json(task.receipt) for task in tasks if task.receipt]
        return ExportPlan.from_json(plan), receipts, export.snapshot_id

    def _with_source(self, request: ProofRequest, plan: ExportPlan, made: ProofPlan) -> ProofPlan:
        """Row by row, where the source still has what was exported."""
        now = made.scan.table.schema()
        found = compare_with(self._ports.source(request.source), request, plan, now)
        if isinstance(found, str):
            return replace(made, notes=(found,))
        notes = list(found.notes)
        if not made.scan.current:
            notes.append(f"snapshot {made.scan.snapshot_id} was read: the newest one has other files")
        ids = {column.field_id for column in found.columns}
        return replace(
            made,
            depth=Depth.PARTIAL if notes else Depth.ROWS,
            schema=Schema(*(one for one in now.fields if one.field_id in ids)).model_dump_json(),
            columns=found.columns,
            rows=found.rows,
            expected={},
            notes=tuple(notes),
        )

    # -- tasks --------------------------------------------------------------------------------------

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        read, request = ProofPlan.from_json(plan), ProofRequest.from_json(process.request)
        payload = ProofPayload(
            place=request.catalog,
            scan=replace(read.scan, files=read.files(task.number)),
            schema=read.schema,
            columns=read.columns,
            storage=self._ports.destination(request.address).executor_access().storage,
        )
        return order_for(process, task, attempt, function=TASK_FUNCTION, payload=payload.to_json())

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        """An attempt leaves nothing: one whose answer was lost is made again."""
        return None

    # -- the end ------------------------------------------------------------------------------------

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """Compare, and keep the answer. A proof that failed is kept before the process fails with it."""
        read, request = ProofPlan.from_json(plan), ProofRequest.from_json(process.request)
        found = [ProofReceipt.from_json(text) for text in receipts]
        faults = self._by_row(request, read, found) if read.rows else _by_column(read, found)
        rows = sum(receipt.rows for receipt in found)
        # If we die here, nothing is known; if we die after it, it is compared once more and kept twice: the
        # newest proof of an export counts.
        self._ports.record_proof(
            Proof(
                process_id=ProcessId(read.export),
                ok=not faults,
                depth=read.depth.value,
                detail="; ".join((*faults, *read.notes))[:_DETAIL],
            )
        )
        if faults:
            raise PermanentError(
                f"{process.destination} differs from what {process.source} has: {'; '.join(faults)}",
                code="proof_failed",
                hint=f"calve verify {read.export} --deep compares column by column",
            )
        detail = {"export": read.export, "depth": read.depth.value, "notes": list(read.notes)}
        if read.rows:
            detail["sums"] = str(_sums(found))
        result = Result(
            rows=rows,
            files=len(read.scan.files),
            bytes=sum(receipt.bytes for receipt in found),
            snapshot_id=read.scan.snapshot_id,
            detail=json.dumps(detail, sort_keys=True),
        )
        return Published(
            result=result, message=f"proved {rows} rows of process {read.export}: {read.depth.value}"
        )

    def _by_row(
        self, request: ProofRequest, plan: ProofPlan, found: Sequence[ProofReceipt]
    ) -> tuple[str, ...]:
        assert plan.rows is not None
        schema = Schema.model_validate_json(plan.schema)
        here = _sums(found)
        there = source_sums(self._ports.source(request.source), request, plan.rows, plan.columns, schema)
        if here == there:
            return ()
        if here.rows != there.rows:
            return (f"{here.rows} rows found, the source has {there.rows}",)
        return (f"the sums of its {here.rows} rows are not those of the source's",)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return ""

    def probe(self, service: Service, process: Process) -> None:
        request = ProofRequest.from_json(process.request)
        if not service.is_source:
            self._ports.destination(request.address).probe()
            return
        with self._ports.source(service.name).visit() as session:
            session.rows("SELECT 1", what="probing")


def _sums(found: Sequence[ProofReceipt]) -> RowSums:
    return sum((RowSums.parse(receipt.sums) for receipt in found), RowSums())


def _by_column(plan: ProofPlan, found: Sequence[ProofReceipt]) -> tuple[str, ...]:
    rows = sum(receipt.rows for receipt in found)
    faults = [] if rows == plan.expected_rows else [f"{rows} rows found, {plan.expected_rows} exported"]
    for name, expected in plan.expected.items():
        total = 0
        for receipt in found:
            total = checksums.add(total, int(receipt.checksums[name], 16))
        if checksums.text(total) != expected:
            faults.append(f"column {name} differs")
    return tuple(faults)
