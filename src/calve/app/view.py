"""Rows of the store as the JSON that `interface` fixes. Used wherever a process is shown."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from calve.destination.address import is_folder
from calve.model.errors import ErrorInfo
from calve.model.process import Event, Pin, Process, Task, Worker
from calve.model.reach import kinds_in, without_kinds

Json = dict[str, Any]


def process_json(process: Process) -> Json:
    """One process. The names and their order are fixed; add at the end only."""
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
    }


def detail_json(process: Process, plan: str | None, tasks: Sequence[Task], pins: Sequence[Pin]) -> Json:
    """What `show` adds: the plan, each task, each pin, the kind's own result. `tasks` becomes the list
    of them."""
    return process_json(process) | {
        "tasks": [task_json(task) for task in tasks],
        "plan": json.loads(plan) if plan else None,
        "pins": [pin_json(pin) for pin in pins],
        "files_for_readers": readers_files(process, tasks),
        "result": _parsed(process.result),
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


def worker_json(worker: Worker, *, state: str, processes: int) -> Json:
    return {
        "id": worker.id,
        "host": worker.host,
        "state": state,
        "slots": worker.slots,
        "processes": processes,
        "reach": without_kinds(worker.reach),
        "kinds": sorted(kinds_in(worker.reach) or ()),
        "started_at": time_json(worker.started_at),
        "heartbeat_at": time_json(worker.heartbeat_at),
        "error": error_json(worker.error),
    }


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


def _parsed(text: str) -> Any:
    """A receipt as JSON where it is JSON; a kind may keep a place instead."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
