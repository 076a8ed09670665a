"""The restore kind: what the control plane calls, step by step. Keeps no state between calls."""

import contextlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from calve.archive import backups
from calve.archive.left_out import left_out
from calve.archive.location import Key
from calve.archive.ports import BackupPorts, probe
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.model.change import Result
from calve.model.errors import NotFoundError, PermanentError
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from calve.restore import attach as attaching
from calve.restore import receiver as receiving
from calve.restore import schema as creating
from calve.restore.plan import RestorePlan, RestoreRequest, divide
from calve.restore.task import RestorePayload, RestoreReceipt, receipt_uri
from calve.tasks.attempts import left_by, order_for, stored

NAME = "restore"
TASK_FUNCTION = "calve.restore.task:run"


class RestoreKind(Kind):
    """See `control.kind.Kind` for what each call promises. It has no pins: a backup does not change."""

    name = NAME

    def __init__(self, ports: BackupPorts) -> None:
        self._ports = ports

    # -- planning -----------------------------------------------------------------------------------

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        """Makes what is missing at the target, and fixes where each part goes."""
        request = RestoreRequest.from_json(process.request)
        location = self._ports.location()
        key = Key(name=request.backup, number=request.number)
        manifest = backups.same(location, key, request.backup_process, unsigned=request.unsigned)
        source = self._ports.source(request.source)
        source.establish()
        with source.visit() as session:
            found = creating.make_schema(session, manifest, request)
            ready = receiving.ready(session, manifest, request, found) if request.data else []
            schedules = creating.schedules(session, manifest, request, found)
        for _, target in ready:
            attaching.refuse_given_up(target)
        parts, tasks = divide(
            ready,
            seed=request.seed,
            partitions=request.partitions,
            task_bytes_mb=self._ports.limits.task_bytes_mb,
        )
        wanted = {".".join(item.origin) for item in request.items}
        plan = RestorePlan(
            process_id=process.id,
            seed=request.seed,
            source=request.source,
            location=location.url,
            key=str(key),
            backup_process=request.backup_process,
            targets=tuple(target for _, target in ready),
            parts=parts,
            tasks=tasks,
            made=tuple(sorted(".".join(name) for name in found)),
            bytes=sum(part.entry.bytes for part in parts),
            left_out=tuple((one.what, one.why) for one in left_out(manifest, wanted)),
            refreshes=schedules,
        )
        _refuse_full(plan)
        return Planned(
            plan=plan.to_json(),
            tasks=tuple(NewTask(number=number, spec="") for number in range(len(tasks))),
        )

    # -- tasks --------------------------------------------------------------------------------------

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        limits = self._ports.limits
        payload = RestorePayload.of(
            _read(plan),
            task=task.number,
            attempt=attempt,
            storage=self._ports.location_properties(),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
        )
        near = self._ports.disks_are_near(RestoreRequest.from_json(process.request).source)
        return order_for(process, task, attempt, function=TASK_FUNCTION, payload=payload.to_json(), near=near)

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        read = _read(plan)
        start, _ = read.tasks[task.number]
        state = read.targets[read.parts[start].target].state
        uri = receipt_uri(state, process.id, task.number, task.attempt)
        text = stored(Storage(), uri)
        return left_by(task, text, RestoreReceipt.from_json, lambda receipt: len(receipt.folders))

    # -- publishing ---------------------------------------------------------------------------------

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        read = _read(plan)
        if read.targets and not attaching.is_finished(read):
            staged = _staged(read, [RestoreReceipt.from_json(text) for text in receipts])
            with self._ports.source(read.source).visit() as session:
                note(json.dumps({"attaching": len(read.parts)}))
                # If we die here, some parts are attached: the tables themselves say which.
                attaching.attach(session, read, staged)
        self._schedule(read)
        return _published(read)

    def _schedule(self, plan: RestorePlan) -> None:
        """Refreshable views run from now on."""
        if not plan.refreshes:
            return
        with self._ports.source(plan.source).visit() as session:
            for statement in plan.refreshes:
                with contextlib.suppress(NotFoundError):  # dropped in the meantime
                    # If we die here, some have their schedule; giving it again changes nothing.
                    session.execute(statement, what="scheduling a refreshable view")

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        read = _read(plan)
        if read.targets and attaching.is_finished(read):
            self._schedule(read)
            return _published(read)
        # If we die here, some targets are marked; fencing again marks the rest.
        attaching.stop(read)
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        """Staged files and the tables that gathered parts. What was restored stays: somebody may use it."""
        read = _read(plan)
        completed = process.state is ProcessState.COMPLETED
        if not completed:
            attaching.stop(read)
            if read.targets:
                with self._ports.source(read.source).visit() as session:
                    receiving.drop_gathering(session, read.targets)
                    receiving.let_go(session, read.targets)
        given_up = attaching.remove_state(read, completed=completed)
        if completed or not read.made:
            return ""
        half = f"; partitions may have gone to {', '.join(given_up)}" if given_up else ""
        return f"{', '.join(read.made)}, as far as they were restored{half}"

    def probe(self, service: Service, process: Process) -> None:
        probe(self._ports, service)


@lru_cache(maxsize=16)
def _read(plan: str) -> RestorePlan:
    return RestorePlan.from_json(plan)


def _refuse_full(plan: RestorePlan) -> None:
    needed: dict[str, int] = {}
    for part in plan.parts:
        root = str(Path(plan.targets[part.target].state).parent)
        needed[root] = needed.get(root, 0) + part.entry.bytes
    receiving.refuse_full(needed)


def _staged(plan: RestorePlan, receipts: Sequence[RestoreReceipt]) -> dict[int, Path]:
    """Each part's folder, by its number. Every planned part must have one (L23)."""
    staged = {
        receipt.first + at: Path(folder) for receipt in receipts for at, folder in enumerate(receipt.folders)
    }
    if sorted(staged) != list(range(len(plan.parts))):
        raise PermanentError(
            f"{len(staged)} parts were fetched where {len(plan.parts)} were planned",
            code="receipts_missing",
            hint=f"calve show {plan.process_id}",
        )
    for number, folder in staged.items():
        _refuse_elsewhere(folder, Path(plan.targets[plan.parts[number].target].state))
    return staged


def _refuse_elsewhere(folder: Path, state: Path) -> None:
    """A receipt is data from outside: what it names is moved, so it must be ours to move (T9)."""
    if ".." in folder.parts or not folder.is_relative_to(state) or folder == state:
        raise PermanentError(
            f"a receipt names the folder {folder}, which is not below {state}",
            code="receipt_unsafe",
            hint="Calve never writes such a receipt: find out who changed it before you restore again",
        )


def _published(plan: RestorePlan) -> Published:
    rows = sum(part.entry.rows_seen for part in plan.parts)
    detail = {
        "backup": Key.parse(plan.key).name,
        "made": list(plan.made),
        "left_out": [{"what": what, "why": why} for what, why in plan.left_out],
    }
    return Published(
        result=Result(rows=rows, files=len(plan.parts), bytes=plan.bytes, detail=json.dumps(detail)),
        message=f"restored {len(plan.made)} objects, {len(plan.parts)} parts, {rows} rows",
        unused=True,  # what was staged has served: undo clears it away at once
    )
