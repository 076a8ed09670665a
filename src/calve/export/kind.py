"""The export kind: what the control plane calls, step by step, and what it reaches of the application.

It keeps no state between calls.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from logging import getLogger
from typing import Protocol

from calve.clickhouse.pins.pin import Pinned, PinRequest
from calve.clickhouse.source import LiveSource, Source
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.destination.content import released
from calve.destination.names import DestinationAddress, receipt_uri, receipts_of
from calve.destination.outcome import AlreadyExported, EarlierExport, PublishedSnapshot
from calve.destination.plan import ExportPlan
from calve.destination.port import Destination
from calve.destination.receipt import Receipt
from calve.export.choices import Choices
from calve.export.payload import TaskPayload
from calve.export.plan import cores_of, draft, standing_receipts
from calve.export.request import Earlier, ExportRequest
from calve.model.change import NewPin, PinChange, Result
from calve.model.errors import CalveError, RefusedError
from calve.model.limits import Limits
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service
from calve.model.states import PinState, ProcessState
from calve.tasks import attempts
from calve.tasks.attempts import left_by, order_for, upload_pace


class ExportPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def choices(self) -> Choices:
        """What the configuration says about types; a request adds its own casts."""

    def cores(self, more: int = 0) -> int:
        """How many tasks of one process can run at the same moment, at least 1: the cores, shared
        evenly with all live processes and `more` that are to come."""

    def source(self, name: str) -> LiveSource: ...

    def backup(self, name: str, source: str, *, unsigned: bool = False) -> Source:
        """A backup as a source; `source` is the one that it was made from."""

    def destination(self, address: DestinationAddress) -> Destination: ...


def source_of(ports: ExportPorts, request: ExportRequest) -> Source:
    """What the request exports from."""
    if request.from_backup:
        return ports.backup(request.from_backup, request.source, unsigned=request.unsigned)
    return ports.source(request.source)


NAME = "export"

TASK_FUNCTION = "calve.export.task:run"  # named, not imported: executors alone need the engine


_log = getLogger(__name__)


class ExportKind(Kind):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: ExportPorts) -> None:
        self._ports = ports

    # -- pins ---------------------------------------------------------------------------------------

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        request = ExportRequest.from_json(process.request)
        if source_of(self._ports, request).immutable:
            return ()
        return (NewPin(name=f"calve-{process.id}-{attempt}", source=request.source, detail=""),)

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        request = ExportRequest.from_json(process.request)
        source, wanted = source_of(self._ports, request), _pin_request(request)
        return [
            PinChange(name=pin.name, after=PinState.TAKEN, detail=source.pin(wanted, pin.name).to_json())
            for pin in pins
        ]

    def release(self, pin: Pin) -> None:
        self._ports.source(pin.source).release(pin.name, pin.detail)

    # -- planning -----------------------------------------------------------------------------------

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = ExportRequest.from_json(process.request)
        destination = self._destination(process)
        drafted = draft(
            destination,
            process.id,
            request,
            self._pinned(request, pins),
            self._ports.choices,
            self._ports.limits,
            cores=cores_of(adopted) or self._ports.cores(),
        )
        plan = drafted.plan
        if not plan.keys:
            return _nothing(drafted.unchanged)
        destination.check_writable(plan)
        standing = standing_receipts(plan, adopted)
        own = receipts_of(plan.destination.receipts_location, process.id)
        before = attempts.made_before(destination.storage(), own)
        # What replaces was not compared with what is there; its receipts may be cleaned up since (`calve optimize`).
        may_be_published = before > 0 or plan.replace
        if may_be_published and (ours := destination.find_publish(process.id, plan)) is not None:
            return _published_before(process, ours)
        tasks = tuple(_new_task(number, standing.get(number), before) for number in range(len(plan.tasks)))
        return Planned(plan=plan.to_json(), tasks=tasks)

    def _pinned(self, request: ExportRequest, pins: Sequence[Pin]) -> Pinned:
        source = source_of(self._ports, request)
        if source.immutable:
            return source.pin(_pin_request(request), "")
        [pin] = pins
        return Pinned.from_json(pin.detail)

    # -- tasks --------------------------------------------------------------------------------------

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        read, limits = _read(plan), self._ports.limits
        access = self._destination(process).executor_access()
        request = ExportRequest.from_json(process.request)
        payload = TaskPayload.of(
            read,
            task=task.number,
            attempt=attempt,
            storage=access.storage,
            lending=access.lending,
            reader=source_of(self._ports, request).reader(read.relation),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            stall_seconds=limits.stall_seconds,
            pace=upload_pace(limits),
        )
        return order_for(process, task, attempt, function=TASK_FUNCTION, payload=payload.to_json())

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        read = _read(plan)
        uri = receipt_uri(read.destination.receipts_location, process.id, task.number, task.attempt)
        text = attempts.stored(self._destination(process).storage(), uri)
        return left_by(task, text, Receipt.from_json, lambda receipt: len(receipt.files))

    # -- publishing ---------------------------------------------------------------------------------

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        left = [Receipt.from_json(text) for text in receipts]
        destination = self._destination(process)
        outcome = destination.publish(process.id, _read(plan), left, process.publish_note, note)
        if isinstance(outcome, PublishedSnapshot):
            if any(receipt.attempt > 1 for receipt in left):
                _remove_lost(destination, process, _read(plan), left)
            return _published(outcome)
        return _already(process, outcome)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        answer = self._destination(process).fence(process.id, _read(plan), process.publish_note)
        return _published(answer) if isinstance(answer, PublishedSnapshot) else Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        destination, read = self._destination(process), _read(plan)
        left = [Receipt.from_json(text) for text in receipts]
        if process.state is ProcessState.COMPLETED and process.files:
            destination.remove_lost(process.id, read, left)
            return ""
        others = [Receipt.from_json(text) for text in used]
        undone = destination.undo(process.id, read, left, process.publish_note, others)
        return "" if undone.in_use else undone.message

    def probe(self, service: Service, process: Process) -> None:
        if not service.is_source:
            self._destination(process).probe(process.id)
            return
        with self._ports.source(service.name).visit() as session:
            session.rows("SELECT 1", what="probing")

    def _destination(self, process: Process) -> Destination:
        return self._ports.destination(ExportRequest.from_json(process.request).address)


def _remove_lost(
    destination: Destination, process: Process, plan: ExportPlan, receipts: Sequence[Receipt]
) -> None:
    """At once, so that who reads the files after this export sees each row once. What fails here, or is
    written later by an attempt that nobody could stop, is looked for again once none can be alive."""
    try:
        destination.remove_lost(process.id, plan, receipts)
    except CalveError as error:
        _log.info("files that process %s did not publish are deleted later: %s", process.id, error.message)


@lru_cache(maxsize=16)
def _read(plan: str) -> ExportPlan:
    """A plan of thousands of parts is asked for once for each of its tasks."""
    return ExportPlan.from_json(plan)


def _pin_request(request: ExportRequest) -> PinRequest:
    return PinRequest(
        database=request.database,
        table=request.table,
        partitions=request.partitions,
        parts=request.parts,
        final=request.final,
        wait_mutations=request.mutations == "wait",
        ignore_mutations=request.mutations == "ignore",
        ignore_row_policies=request.ignore_row_policies,
    )


def _new_task(number: int, adopted: Receipt | None, before: int) -> NewTask:
    if adopted is None:
        return NewTask(number=number, spec="", attempts_before=before)
    return NewTask(
        number=number,
        spec="",
        adopted_receipt=adopted.to_json(),
        rows=adopted.rows,
        files=len(adopted.files),
        bytes=adopted.bytes,
    )


def _published(outcome: PublishedSnapshot) -> Published:
    replaced = f", replacing {outcome.replaced_rows} rows" if outcome.replaced_files else ""
    return Published(
        result=Result(
            rows=outcome.rows, files=outcome.files, bytes=outcome.bytes, snapshot_id=outcome.snapshot_id
        ),
        message=f"published {outcome.rows} rows in snapshot {outcome.snapshot_id}{replaced}",
    )


def _already(process: Process, outcome: AlreadyExported) -> Published:
    """Another process was first. If it exported the same, the work is done; ours is not needed."""
    first = outcome.exports[0]
    sentence = f"already exported by process {first.process_id} in snapshot {first.snapshot_id}"
    if not outcome.unchanged:
        for export in outcome.exports:
            if export.released:
                raise released(process.source, export)
        new_parts = ExportRequest.from_json(process.request).new_parts
        raise RefusedError(
            f"{process.destination}: what {process.source} has was {sentence}, and has changed since",
            code="changed_since",
            hint="repeat the command: it looks for what is new now"
            if new_parts
            else "export again with --force to replace it",
        )
    return Published(result=_nothing_new(outcome.exports), message=sentence, unused=True)


def _nothing(unchanged: Sequence[Earlier]) -> NothingToDo:
    exports = [one.export for one in unchanged]
    return NothingToDo(result=_nothing_new(exports), message="; ".join(one.sentence for one in unchanged))


def _published_before(process: Process, ours: PublishedSnapshot) -> NothingToDo:
    """The store was put back from a copy that knew of no plan (D1)."""
    detail = {"already_exported_by": [process.id]}
    return NothingToDo(
        result=Result(rows=0, files=0, bytes=0, snapshot_id=ours.snapshot_id, detail=json.dumps(detail)),
        message=f"it published {ours.rows} rows in snapshot {ours.snapshot_id}, before this store was put back from a copy",
    )


def _nothing_new(exports: Sequence[EarlierExport]) -> Result:
    """This process published nothing; the snapshot is the one that shows the rows."""
    detail = {"already_exported_by": [export.process_id for export in exports]}
    return Result(
        rows=0,
        files=0,
        bytes=0,
        snapshot_id=exports[0].snapshot_id if exports else None,
        detail=json.dumps(detail),
    )
