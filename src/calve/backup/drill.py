"""The drill kind: a backup is looked at, read back and partly restored by tasks, and what came of it is kept as a proof.
It changes nothing outside, so there is nothing to fence and nothing to undo.
"""

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from calve.archive import backups
from calve.archive.location import Location
from calve.archive.manifest import Manifest
from calve.archive.ports import BackupPorts, probe
from calve.backup.drill_plan import (
    NAME,
    DrillPayload,
    DrillPlan,
    DrillReceipt,
    DrillRequest,
    sample,
    spans_of,
)
from calve.backup.drill_task import digest
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.model.access import Proof
from calve.model.change import Result
from calve.model.errors import NotFoundError, PermanentError, RefusedError
from calve.model.process import NewTask, Pin, Process, ProcessId, Task
from calve.model.reach import Service
from calve.tasks.attempts import order_for

TASK_FUNCTION = "calve.backup.drill_task:run"
_DETAIL = 500  # characters that are kept with a proof


class DrillPorts(BackupPorts, Protocol):
    def record_proof(self, proof: Proof) -> None:
        """NotFoundError where the store does not know who made the backup."""


class DrillKind(Kind):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: DrillPorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = DrillRequest.from_json(process.request)
        manifest = _found(self._location(request.location), request)
        if request.restore_bytes and not manifest.parts:
            none = Result(rows=0, files=0, bytes=0)
            return NothingToDo(result=none, message=f"backup {request.backup} has no rows to restore")
        samples = sample(manifest, request.restore_bytes, process.id) if request.restore_bytes else ()
        if request.restore_bytes and not samples:
            smallest = min(part.bytes for part in manifest.places.values())
            raise RefusedError(
                f"no part of backup {request.backup} fits into {request.restore_bytes} bytes: the smallest has {smallest}",
                code="drill_quota",
                hint="allow more: drill_bytes of the schedule, or calve backup drill NAME --bytes 10GB",
            )
        plan = DrillPlan(
            process_id=process.id,
            key=f"{manifest.name}@{manifest.number}",
            backup_process=manifest.process_id,
            location=request.location,
            manifest=digest(manifest),
            spans=spans_of(manifest) if request.read_share else (),
            samples=samples,
            read_share=request.read_share,
            bytes=sum(manifest.tables[one.table].parts[at].bytes for one in samples for at in one.parts),
        )
        return Planned(
            plan=plan.to_json(), tasks=tuple(NewTask(number=number, spec="") for number in range(plan.tasks))
        )

    def _location(self, url: str) -> Location:
        configured = self._ports.location()
        return Location(url, configured.storage, signing_key=configured.signing_key)

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        limits = self._ports.limits
        payload = DrillPayload.of(
            DrillPlan.from_json(plan),
            task=task.number,
            storage=self._ports.location_properties(),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            stall_seconds=limits.stall_seconds,
        )
        return order_for(process, task, attempt, function=TASK_FUNCTION, payload=payload.to_json())

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        """An attempt leaves nothing: one whose answer was lost is made again."""
        return None

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """Keep the answer. A drill that failed is kept before the process fails with it."""
        read, request = DrillPlan.from_json(plan), DrillRequest.from_json(process.request)
        found = [DrillReceipt.from_json(text) for text in receipts]
        flaws = [flaw for one in found for flaw in one.flaws]
        # If we die here, nothing is known; if we die after it, it is kept twice: the newest proof counts.
        self._keep(
            Proof(
                process_id=ProcessId(read.backup_process),
                ok=not flaws,
                depth=request.depth,
                detail="; ".join(flaws)[:_DETAIL],
            )
        )
        if flaws:
            raise PermanentError(
                f"backup {request.backup} is damaged: {'; '.join(flaws)}"[: 4 * _DETAIL],
                code="drill_failed",
                hint=f"calve backup verify {request.backup} --read-data 100% lists everything that is damaged",
            )
        detail = {
            "backup": request.backup,
            "depth": request.depth,
            "tables": {one.table: one.sums for one in found if one.table},
        }
        result = Result(
            rows=sum(one.rows for one in found),
            files=sum(one.parts for one in found),
            bytes=sum(one.bytes for one in found),
            detail=json.dumps(detail, sort_keys=True),
        )
        said = (
            f"backup {request.backup} is whole: {request.depth}, {result.rows} rows of {result.files} parts"
        )
        return Published(result=result, message=said)

    def _keep(self, proof: Proof) -> None:
        try:
            self._ports.record_proof(proof)
        except NotFoundError:
            return  # another store made the backup: the process itself is the answer

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return ""

    def probe(self, service: Service, process: Process) -> None:
        probe(self._ports, service)


def _found(location: Location, request: DrillRequest) -> Manifest:
    """The very backup that was asked about, trusted as for a restore."""
    manifest = backups.find(location, request.backup)
    if manifest.process_id != request.backup_process:
        raise NotFoundError(
            f"backup {request.backup} is now a different one",
            code="backup_deleted",
            hint=f"calve backup drill {request.backup}",
        )
    return manifest
