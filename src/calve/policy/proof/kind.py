"""The proof kind: an export is read back on executors and compared with the source, and what came of it is kept in
the store. It changes nothing outside, so there is nothing to fence and nothing to undo.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyiceberg.schema import Schema

from calve.clickhouse.source import LiveSource
from calve.control.kind import AdoptedWork, Fenced, NothingToDo, Planned, Published
from calve.control.ports import StoreReader
from calve.destination import checksums
from calve.destination.names import DestinationAddress
from calve.destination.plan import ExportPlan
from calve.destination.port import Destination
from calve.destination.proof import Box, Scan, expected_checksums, written_columns
from calve.destination.receipt import Receipt
from calve.model.access import Proof
from calve.model.change import Result
from calve.model.errors import NotFoundError, PermanentError, RefusedError
from calve.model.limits import Limits
from calve.model.process import Pin, Process, ProcessId
from calve.model.reach import Service
from calve.model.states import TaskState
from calve.objects.uri import full_uri
from calve.policy.proof.lake_read import LakeReader
from calve.policy.proof.plan import NAME, Depth, ProofPlan, ProofReceipt, ProofRequest, grouped, sampled
from calve.policy.proof.source import are_inside, compare_with, source_sums
from calve.policy.proof.task import sums_of

OUTSIDE = "some rows may lie outside of the time that their partition covers"
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


class ProofKind(LakeReader):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: ProofPorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = ProofRequest.from_json(process.request)
        made = self._sample(request) if request.sample else self.full(request)
        return Planned(plan=replace(made, process_id=process.id).to_json(), tasks=made.new_tasks)

    def exported(self, request: ProofRequest) -> tuple[ExportPlan, list[Receipt], str]:
        """The plan of the export, what its tasks left, and its snapshot."""
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

    def _sample(self, request: ProofRequest) -> ProofPlan:
        plan, receipts, snapshot_id = self.exported(request)
        scan = self._ports.destination(request.address).scan(request.export, plan, receipts, snapshot_id)
        some = [receipts[place] for place in sampled(len(receipts))]
        named = {full_uri(file.path) for receipt in some for file in receipt.files}
        files = tuple(file for file in scan.files if full_uri(file.path) in named)
        return _by_columns(request, plan, replace(scan, files=files), some, Depth.SAMPLE)

    def scan(self, request: ProofRequest, boxes: Sequence[Box]) -> Scan:
        """What reads the export, and all else in the boxes, at main's head now."""
        plan, receipts, snapshot_id = self.exported(request)
        return self._ports.destination(request.address).scan(
            request.export, plan, receipts, snapshot_id, boxes
        )

    def full(self, request: ProofRequest) -> ProofPlan:
        """Row by row, where the source still has what was exported."""
        plan, receipts, snapshot_id = self.exported(request)
        destination = self._ports.destination(request.address)
        table = destination.find()
        if table is None:
            raise RefusedError(
                f"{destination.address} is gone", code="not_verifiable", hint="export again to fill it"
            )
        found = compare_with(self._ports.source(request.source), request, plan, table.schema)
        if isinstance(found, str):
            scan = destination.scan(request.export, plan, receipts, snapshot_id)
            made = _by_columns(request, plan, scan, receipts, Depth.DESTINATION)
            return replace(made, notes=(found,))
        scan = destination.scan(request.export, plan, receipts, snapshot_id, found.boxes)
        notes = list(found.notes)
        if scan.whole and scan.boxes and not are_inside(receipts, scan.boxes, scan.table.schema()):
            notes.append(OUTSIDE)
        if not scan.current:
            notes.append(f"snapshot {scan.snapshot_id} was compared, but the newest one has other files")
        ids = {column.field_id for column in found.columns}
        fields = [one for one in scan.table.schema().fields if one.field_id in ids]
        depth = Depth.ROWS if scan.boxes else Depth.FILES
        return ProofPlan(
            process_id="",
            export=request.export,
            depth=Depth.PARTIAL if notes else depth,
            scan=scan,
            tasks=grouped(scan.files),
            schema=Schema(*fields).model_dump_json(),
            columns=found.columns,
            rows=found.rows,
            notes=tuple(notes),
        )

    # -- tasks --------------------------------------------------------------------------------------

    def lake(self, process: Process, plan: str) -> tuple[ProofPlan, DestinationAddress]:
        return ProofPlan.from_json(plan), ProofRequest.from_json(process.request).address

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return self._ports.destination(address).executor_access().storage

    # -- the end ------------------------------------------------------------------------------------

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """Compare, and keep the answer. A proof that failed is kept before the process fails with it."""
        read, request = ProofPlan.from_json(plan), ProofRequest.from_json(process.request)
        found = [ProofReceipt.from_json(text) for text in receipts]
        answer = self._by_row(request, read, found) if read.rows else _by_column(read, found)
        rows = sum(receipt.rows for receipt in found)
        # If we die here, nothing is known; if we die after it, it is compared once more and kept twice: the
        # newest proof of an export counts.
        self._ports.record_proof(
            Proof(
                process_id=ProcessId(read.export),
                ok=not answer.faults,
                depth=answer.depth.value,
                detail="; ".join((*answer.faults, *answer.notes))[:_DETAIL],
            )
        )
        if answer.faults:
            raise PermanentError(
                f"{process.destination} differs from what {process.source} has: {'; '.join(answer.faults)}",
                code="proof_failed",
                hint=f"calve verify {read.export} --deep compares column by column",
            )
        detail = {
            "export": read.export,
            "depth": answer.depth.value,
            "notes": list(answer.notes),
            "sums": answer.sums,
        }
        result = Result(
            rows=rows,
            files=len(read.scan.files),
            bytes=sum(receipt.bytes for receipt in found),
            snapshot_id=read.scan.snapshot_id,
            detail=json.dumps(detail, sort_keys=True),
        )
        said = f"proved {rows} rows of process {read.export}: {answer.depth.value}"
        return Published(result=result, message=said)

    def _by_row(self, request: ProofRequest, plan: ProofPlan, found: Sequence[ProofReceipt]) -> "_Answer":
        assert plan.rows is not None
        schema = Schema.model_validate_json(plan.schema)
        own, others = sums_of(found)
        here = own if plan.scan.whole else others
        there = source_sums(self._ports.source(request.source), request, plan.rows, plan.columns, schema)
        answer = _Answer(depth=plan.depth, notes=plan.notes, sums=str(there))
        if not plan.scan.whole and here.rows > there.rows:
            raise RefusedError(
                f"the files of process {plan.export} were rewritten, and in the time of its partitions there are"
                f" {here.rows} rows, where the source has {there.rows}: its own cannot be told apart",
                code="not_verifiable",
                hint="export into a table of its own to have it proven",
            )
        if here.rows != there.rows:
            return replace(answer, faults=(f"{here.rows} rows found, the source has {there.rows}",))
        if here != there:
            return replace(
                answer, faults=(f"the sums of its {here.rows} rows are not those of the source's",)
            )
        if plan.scan.whole and others.rows:
            depth = Depth.FILES if plan.depth is Depth.ROWS else plan.depth
            more = f"{others.rows} rows of others lie in the time range of these partitions"
            return replace(answer, depth=depth, notes=(*plan.notes, more))
        return answer

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


@dataclass(frozen=True, kw_only=True)
class _Answer:
    depth: Depth
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sums: str = ""  # of the source's rows, where they were read


def _by_columns(
    request: ProofRequest, plan: ExportPlan, scan: Scan, receipts: Sequence[Receipt], depth: Depth
) -> ProofPlan:
    return ProofPlan(
        process_id="",
        export=request.export,
        depth=depth,
        scan=scan,
        tasks=grouped(scan.files),
        schema=written_columns(plan).model_dump_json(),
        expected=expected_checksums(plan, receipts),
        expected_rows=sum(receipt.rows for receipt in receipts),
    )


def _by_column(plan: ProofPlan, found: Sequence[ProofReceipt]) -> _Answer:
    rows = sum(receipt.rows for receipt in found)
    faults = [] if rows == plan.expected_rows else [f"{rows} rows found, {plan.expected_rows} exported"]
    for name, expected in plan.expected.items():
        total = 0
        for receipt in found:
            total = checksums.add(total, int(receipt.checksums[name], 16))
        if checksums.text(total) != expected:
            faults.append(f"column {name} differs")
    return _Answer(depth=plan.depth, faults=tuple(faults), notes=plan.notes)
