"""The JSON of processes, events, workers and partitions. Scripts rely on it: add keys, at the end.

Of backups: `backup_view`. Imports nothing heavy at run time: `ps --json` uses it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from calve.model.errors import ErrorInfo
from calve.model.process import Breaker, Event, Pin, Process, Task
from calve.model.reach import is_folder, kinds_in, without_kinds
from calve.model.record import fields_of

if TYPE_CHECKING:
    from calve.app.config import Config
    from calve.app.doctor import Finding
    from calve.app.exports import ExportedBefore
    from calve.app.front import (
        CancelAnswer,
        ExportAnswer,
        ProcessDetail,
        Reason,
        Standing,
        Submitted,
        WorkerStatus,
    )
    from calve.app.health import OptimizePreview
    from calve.app.optimize_history import Optimized
    from calve.app.partitions import ListedPartition
    from calve.app.proof import ExportProof, OptimizeProof
    from calve.destination.outcome import EarlierExport
    from calve.destination.plan import PartPlan
    from calve.export.request import ExportRequest

Json = dict[str, Any]


def process_json(process: Process) -> Json:
    """One process. The names and their order are fixed; add at the end only. `damaged` is there only if its
    row in the store cannot be read."""
    damaged = {"damaged": process.damaged} if process.damaged else {}
    return {
        "id": process.id,
        "batch": process.batch,
        "kind": process.kind,
        "state": process.state.value,
        "source": process.source,
        "destination": process.destination,
        "partitions": list(process.partitions),
        "tasks": {
            "total": process.tasks.total,
            "done": process.tasks.done,
            "failed": process.tasks.failed,
        },
        "rows": process.rows,
        "files": process.files,
        "bytes": process.bytes,
        "snapshot_id": process.snapshot_id,
        "retry_of": process.retry_of,
        "error": error_json(process.error),
        "created_at": time_json(process.created_at),
        "finished_at": time_json(process.finished_at),
    } | damaged


def served_json(process: Process) -> Json:
    """One process as an API gives it: with all that `client.values` needs to show it as it is shown here."""
    return process_json(process) | {
        "error": process.error.to_json() if process.error else None,
        "cancel_requested": process.cancel_requested,
        "planned": process.planned,
        "running_tasks": process.tasks.running,
        "owner": process.owner,
        "needs": list(process.needs),
        "deadline_at": time_json(process.deadline_at),
        "result": _parsed(process.result),
    }


def detail_json(detail: "ProcessDetail") -> Json:
    """What `show` adds: the plan, each task, each pin, the kind's own result. `tasks` becomes the list
    of them."""
    return process_json(detail.process) | {
        "tasks": [task_json(task) for task in detail.tasks],
        "plan": _parsed(detail.plan or ""),
        "pins": [pin_json(pin) for pin in detail.pins],
        "files_for_readers": readers_files(detail.process, detail.tasks),
        "result": _parsed(detail.process.result),
    }


def served_detail_json(detail: "ProcessDetail") -> Json:
    """What `show` has, and what `served_json` adds."""
    counts = detail.process.tasks
    served = {key: value for key, value in served_json(detail.process).items() if key != "tasks"}
    return (
        detail_json(detail)
        | served
        | {
            "tasks_next": detail.next_task,
            "task_counts": {"total": counts.total, "done": counts.done, "failed": counts.failed},
            "events": [event_json(event) for event in detail.events],
        }
    )


def known_json(known: "ExportedBefore", request: "ExportRequest") -> Json:
    """The process that exported a partition before, from the store or, of another store's, from the
    table."""
    earlier = known.earlier
    document = (
        process_json(known.process)
        if known.process
        else {
            "id": earlier.export.process_id, "batch": None, "kind": "export", "state": "COMPLETED",
            "source": request.source_table, "destination": request.destination,
            "partitions": [earlier.partition], "tasks": {"total": 0, "done": 0, "failed": 0},
            "rows": earlier.export.rows, "files": earlier.export.files, "bytes": 0,
            "snapshot_id": earlier.export.snapshot_id, "retry_of": None, "error": None,
            "created_at": None, "finished_at": None,
        }
    )  # fmt: skip
    return document | {
        "error": error_json(known.error),
        "already_exported": True,
        "unchanged": earlier.unchanged,
    }


def result_json(process: Process) -> Json:
    """A backup or a restore: the process with what its kind noted of it."""
    return process_json(process) | {"detail": fields_of(process.result)}


def submitted_json(made: "Submitted") -> Json:
    return {
        "processes": [served_json(process) for process in made.processes],
        "joined": [process.id for process in made.processes if process.id in made.joined],
        "batch": next((process.batch for process in made.processes if process.batch), None),
    }


def export_answer_json(answer: "ExportAnswer") -> Json:
    return submitted_json(answer) | {
        "known": list(answer.known),
        "unchanged": list(answer.unchanged),
        "refused": [error.to_json() for error in answer.refused],
        "unreachable": answer.unreachable,
        "source": answer.source,
        "destination": answer.destination,
        "partitions": list(answer.partitions),
        "unaware_workers": list(answer.unaware_workers),
    }


def cancelled_json(answer: "CancelAnswer") -> Json:
    return {
        "process": served_json(answer.process),
        "accepted": answer.accepted,
        "message": answer.message,
    }


def standing_json(standing: "Standing") -> Json:
    return {
        "processes": [served_json(process) for process in standing.processes],
        "sizes": dict(standing.sizes),
        "outages": {key: breaker_json(breaker) for key, breaker in standing.outages.items()},
        "pinned": standing.pinned,
        "ended": standing.ended,
    }


def breaker_json(breaker: Breaker) -> Json:
    return {
        "service": breaker.service,
        "reason": breaker.reason,
        "opened_at": time_json(breaker.opened_at),
        "probe_at": time_json(breaker.probe_at),
        "probes": breaker.probes,
    }


def readers_files(process: Process, tasks: Sequence[Task]) -> list[Json]:
    """The data files that a process published to plain Parquet: what a reader takes instead of a glob.
    An Iceberg table lists its files itself."""
    if process.kind != "export" or not is_folder(process.destination) or not process.files:
        return []
    return [
        {"path": file["path"], "rows": file["rows"], "bytes": file["bytes"], "sha256": file["sha256"]}
        for task in tasks
        for file in (_parsed(task.receipt) or {}).get("files", ())
    ]


def task_json(task: Task) -> Json:
    return {
        "number": task.number,
        "state": task.state.value,
        "attempts": task.attempt,
        "receipt": _parsed(task.receipt),
        "error": error_json(task.error),
        "started_at": time_json(task.started_at),
        "finished_at": time_json(task.finished_at),
    }


def pin_json(pin: Pin) -> Json:
    return {
        "name": pin.name,
        "source": pin.source,
        "state": pin.state.value,
        "created_at": time_json(pin.created_at),
        "release_attempts": pin.release_attempts,
        "error": error_json(pin.error),
    }


def event_json(event: Event) -> Json:
    return {
        "process": event.process_id,
        "number": event.number,
        "at": time_json(event.at),
        "name": event.name,
        "message": event.message,
    }


def reason_json(reason: "Reason") -> Json:
    return {"id": reason.process.id, "state": reason.process.state.value, "why": reason.why}


def worker_json(status: "WorkerStatus") -> Json:
    worker = status.worker
    return {
        "id": worker.id,
        "host": worker.host,
        "state": status.state.value,
        "slots": worker.slots,
        "granted": plain_json(worker.granted) if worker.granted else None,
        "processes": status.processes,
        "reach": without_kinds(worker.reach),
        "kinds": sorted(kinds_in(worker.reach) or ()),
        "started_at": time_json(worker.started_at),
        "heartbeat_at": time_json(worker.heartbeat_at),
        "error": error_json(worker.error),
        "version": worker.version,
    }


def partition_json(item: "ListedPartition") -> Json:
    partition = item.partition
    return {
        "id": partition.id,
        "value": partition.value,
        "rows": partition.rows,
        "bytes": partition.bytes,
        "parts": partition.parts,
        "modified_at": time_json(partition.modified_at),
        "exported": item.exported.value if item.exported else None,
        "process": item.earlier.process_id if item.earlier else None,
        "snapshot_id": item.earlier.snapshot_id if item.earlier else None,
    }


def gone_json(export: "EarlierExport") -> Json:
    """A partition that was exported, and that the source no longer has, as `partition_json`."""
    return {
        "id": export.input[1],
        "value": export.input[1],
        "rows": export.rows,
        "bytes": 0,
        "parts": 0,
        "modified_at": None,
        "exported": "gone",
        "process": export.process_id,
        "snapshot_id": export.snapshot_id,
    }


def part_json(part: "PartPlan") -> Json:
    return {
        "name": part.name,
        "partition": part.partition_id,
        "rows": part.rows,
        "bytes": part.bytes,
        "level": part.level,
        "disk": part.disk,
    }


def export_proof_json(proof: "ExportProof") -> Json:
    table = proof.table
    document: Json = {
        "id": proof.process_id,
        "ok": proof.ok,
        "snapshot_id": table.snapshot_id,
        "files": table.files,
        "rows": {"exported": table.expected_rows, "found": table.found_rows},
        "columns": {
            column.name: {"exported": column.expected, "found": column.found, "same": column.same}
            for column in table.columns
        },
        "faults": list(proof.faults),
    }
    if proof.source is not None:
        document["source"] = {"rows": proof.source.found_rows, "differing": list(proof.source.differing)}
    return document


def optimize_proof_json(proof: "OptimizeProof") -> Json:
    snapshots = [
        {
            "snapshot_id": one.snapshot_id,
            "files": {"before": one.files_before, "after": one.files_after},
            "rows": {"before": one.rows_before, "after": one.rows_after},
            "columns": {name: {"same": name not in one.differing} for name in one.columns},
        }
        for one in proof.snapshots
    ]
    return {"id": proof.process_id, "ok": proof.ok, "snapshots": snapshots, "faults": list(proof.faults)}


def optimized_json(item: "Optimized") -> Json:
    process = item.process
    gains = {name: asdict(getattr(item, name)) for name in ("score", "files", "delete_files", "snapshots")}
    return {
        "id": process.id,
        "table": process.destination,
        "state": process.state.value,
        "by_worker": item.by_worker,
        **gains,
        "rewritten_files": item.rewritten_files,
        "removed_files": item.removed_files,
        "created_at": time_json(process.created_at),
        "finished_at": time_json(process.finished_at),
    }


def optimize_preview_json(preview: "OptimizePreview") -> Json:
    return asdict(preview)


def finding_json(finding: "Finding") -> Json:
    return asdict(finding) | {"severity": finding.severity.value}


def config_json(config: "Config") -> Json:
    return {
        "file": str(config.file) if config.file else None,
        "settings": {
            setting.key: {"value": setting.shown, "origin": setting.origin} for setting in config.settings
        },
    }


def plain_json(value: Any) -> Json:
    """A value of the registry, by the names of its fields."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return time_json(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return plain_json(value) if is_dataclass(value) else value


def error_json(error: ErrorInfo | None) -> Json | None:
    """The five keys that are fixed; what else is known stays inside."""
    if error is None:
        return None
    document = error.to_json()
    return {name: document[name] for name in ("code", "message", "hint", "retryable", "outcome")}


def time_json(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def notes_of(plan: str) -> list[str]:
    """What planning remarked. None of a plan that cannot be read (T10), nor of a kind that makes none."""
    found = _parsed(plan)
    return list(found.get("notes", ())) if isinstance(found, dict) else []


def _parsed(text: str) -> Any:
    """A receipt as JSON where it is JSON; a kind may keep a place instead."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
