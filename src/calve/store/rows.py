"""Rows to values of the model, and back; events, written in the transaction that made them true.

T10: a row that cannot be read stops nobody. A process with one is `damaged`: shown, and never claimed.
An unreadable error of a task, a pin or a worker is for people only, and is replaced by one that says so.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, RowMapping, insert

from calve.model.access import Asked, AuditOutcome, Role
from calve.model.change import NewEvent
from calve.model.codec import encode
from calve.model.errors import DamagedError, ErrorInfo
from calve.model.process import (
    BatchId,
    Breaker,
    Event,
    Granted,
    Lock,
    Pin,
    Process,
    ProcessId,
    Task,
    TaskCounts,
    Worker,
    WorkerId,
)
from calve.model.record import loads
from calve.model.seen import Ending, ProcessEnd
from calve.model.states import Leftovers, PinState, ProcessState, TaskState
from calve.store.database import from_us, time_from_us, to_us
from calve.store.tables import audit, events

Row = RowMapping
PROCESS_JSON: dict[str, Any] = {
    "needs": tuple[str, ...],
    "partitions": tuple[str, ...],
    "locks": tuple[Lock, ...],
    "error": ErrorInfo,
}
T = TypeVar("T")
_CHUNK = 500
_SHORT, _KEPT = 500, 4096  # characters, texts

_PROCESS_COLUMNS = tuple(item.name for item in fields(Process) if item.name not in ("tasks", "damaged"))
_TASK_COLUMNS = tuple(item.name for item in fields(Task))
_PROCESS_TIMES = ("finished_at", "lease_until", "not_before", "cleanup_at")
_ENUMS: Mapping[str, type[StrEnum]] = {"role": Role, "outcome": AuditOutcome, "ending": Ending}
_TASK_TIMES = ("started_at", "finished_at", "not_before")


def chunks(items: Sequence[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    """Long lists in pieces: both databases bound the number of parameters of a statement."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def plain(text: str) -> str:
    """Text as any database takes it: PostgreSQL stores no NUL, and neither stores lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def names(states: Iterable[StrEnum]) -> list[str]:
    """States as a statement takes them. As plain texts: of any other type SQLAlchemy asks its ORM, which another
    thread may be importing just then."""
    return sorted(state.value for state in states)


def dump_error(error: ErrorInfo | None) -> str | None:
    return None if error is None else json.dumps(encode(error))


def _shown_error(text: str | None, where: str) -> ErrorInfo | None:
    """Of something that goes on whatever its error was."""
    try:
        return None if text is None else loads(ErrorInfo, text, f"the error of {where}")
    except DamagedError as error:
        return error.info


def dump_needs(needs: tuple[str, ...]) -> str:
    return json.dumps(needs)


def load_needs(text: str) -> tuple[str, ...] | None:
    """None if they cannot be read."""
    try:
        return loads(tuple[str, ...], text, "what a process needs")
    except DamagedError:
        return None


def dump_locks(locks: tuple[Lock, ...]) -> str:
    return json.dumps(encode(locks))


class _Reading:
    """The JSON columns of one row: read, or noted as damaged and replaced."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self.damaged: list[str] = []

    def column(self, kind: Any, name: str, instead: T) -> Any | T:
        if self._row[name] is None:
            return instead
        try:
            return _column(kind, name, self._row[name])
        except DamagedError as error:
            self.damaged.append(error.message)
            return instead


def _column(kind: Any, name: str, text: str) -> Any:
    return (_short_column if len(text) <= _SHORT else _any_column)(kind, name, text)


def _any_column(kind: Any, name: str, text: str) -> Any:
    return loads(kind, text, f"the column `{name}`")


_short_column = lru_cache(_KEPT)(_any_column)  # a thousand processes need the same two services


def damage(row: Row) -> str:
    """What of a process's row cannot be read; "" if all can. Needs its JSON columns only."""
    reading = _Reading(row)
    for name, kind in PROCESS_JSON.items():
        reading.column(kind, name, None)
    return "; ".join(reading.damaged)


def process(row: Row) -> Process:
    reading = _Reading(row)
    values = {name: row[name] for name in _PROCESS_COLUMNS}
    values |= {name: from_us(row[name]) for name in _PROCESS_TIMES}
    return Process(
        **values
        | {
            "id": ProcessId(row["id"]),
            "state": ProcessState(row["state"]),
            "needs": reading.column(tuple[str, ...], "needs", ()),
            "partitions": reading.column(tuple[str, ...], "partitions", ()),
            "locks": reading.column(tuple[Lock, ...], "locks", ()),
            "batch": None if row["batch"] is None else BatchId(row["batch"]),
            "retry_of": None if row["retry_of"] is None else ProcessId(row["retry_of"]),
            "owner": None if row["owner"] is None else WorkerId(row["owner"]),
            "created_at": time_from_us(row["created_at"]),
            "deadline_at": time_from_us(row["deadline_at"]),
            "tasks": TaskCounts(
                total=row["tasks_total"],
                done=row["tasks_done"],
                failed=row["tasks_failed"],
                running=row["tasks_running"],
            ),
            "error": reading.column(ErrorInfo, "error", None),
            "leftovers": Leftovers(row["leftovers"]),
            "damaged": "; ".join(reading.damaged),
        }
    )


def process_changes(before: Process, after: Process) -> dict[str, Any]:
    """The columns that a change touches: few, so that updates stay small."""
    earlier, later = _changing(before), _changing(after)
    return {name: value for name, value in later.items() if value != earlier[name]}


def _changing(row: Process) -> dict[str, Any]:
    return {
        "state": row.state.value,
        "version": row.version,
        "finished_at": to_us(row.finished_at),
        "owner": row.owner,
        "lease_until": to_us(row.lease_until),
        "planned": row.planned,
        "plan_attempts": row.plan_attempts,
        "publish_attempts": row.publish_attempts,
        "fence_attempts": row.fence_attempts,
        "not_before": to_us(row.not_before),
        "publish_sent": row.publish_sent,
        "publish_note": row.publish_note,
        "tasks_total": row.tasks.total,
        "tasks_done": row.tasks.done,
        "tasks_failed": row.tasks.failed,
        "tasks_running": row.tasks.running,
        "rows": row.rows,
        "files": row.files,
        "bytes": row.bytes,
        "snapshot_id": row.snapshot_id,
        "result": row.result,
        "error": dump_error(row.error),
        "leftovers": row.leftovers.value,
        "cleanup_at": to_us(row.cleanup_at),
        "cleanup_attempts": row.cleanup_attempts,
    }


def task(row: Row) -> Task:
    values = {name: row[name] for name in _TASK_COLUMNS}
    values |= {name: from_us(row[name]) for name in _TASK_TIMES}
    error = _shown_error(row["error"], f"task {row['number']}")
    return Task(**values | {"state": TaskState(row["state"]), "error": error})


def task_values(task: Task) -> dict[str, Any]:
    values = {name: getattr(task, name) for name in _TASK_COLUMNS}
    values |= {name: to_us(values[name]) for name in _TASK_TIMES}
    return values | {"state": task.state.value, "error": dump_error(task.error)}


def pin(row: Row) -> Pin:
    values = {item.name: row[item.name] for item in fields(Pin)}
    return Pin(
        **values
        | {
            "state": PinState(row["state"]),
            "created_at": time_from_us(row["created_at"]),
            "not_before": from_us(row["not_before"]),
            "error": _shown_error(row["error"], f"pin {row['name']}"),
        }
    )


def pin_values(pin: Pin) -> dict[str, Any]:
    values = {item.name: getattr(pin, item.name) for item in fields(Pin)}
    return values | {
        "state": pin.state.value,
        "created_at": to_us(pin.created_at),
        "not_before": to_us(pin.not_before),
        "error": dump_error(pin.error),
    }


def event(row: Row) -> Event:
    return Event(
        process_id=ProcessId(row["process_id"]),
        at=time_from_us(row["at"]),
        name=row["name"],
        message=row["message"],
        number=row["number"],
        position=row["position"] or 0,
    )


def end(
    id: str, kind: str, source: str, destination: str, partitions: str, state: str, at: int, error: str | None
) -> ProcessEnd:
    """By hand: a page reads thousands. What is damaged is shown by the process's own row."""
    try:
        named = _column(tuple[str, ...], "partitions", partitions)
    except DamagedError:
        named = ()
    return ProcessEnd(
        process_id=ProcessId(id),
        kind=kind,
        source=source,
        destination=destination,
        partitions=named,
        state=ProcessState(state),
        finished_at=time_from_us(at),
        code=_code(error, f"process {id}") if error else "",
    )


def _code(error: str, where: str) -> str:
    """Of an error, without reading the rest of it."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        if isinstance(code := json.loads(error)["code"], str):
            return code
    shown = _shown_error(error, where)
    return shown.code if shown else ""


def worker(row: Row) -> Worker:
    reading = _Reading(row)  # a worker that lives writes its row again in a few seconds
    return Worker(
        id=WorkerId(row["id"]),
        host=row["host"],
        reach=reading.column(tuple[str, ...], "reach", ()),
        slots=row["slots"],
        started_at=time_from_us(row["started_at"]),
        heartbeat_at=time_from_us(row["heartbeat_at"]),
        draining=row["draining"],
        error=_shown_error(row["error"], f"worker {row['id']}"),
        version=row["version"] or "",
        granted=reading.column(Granted, "granted", None),
    )


def breaker(row: Row) -> Breaker:
    return Breaker(
        service=row["lane"],
        reason=row["reason"],
        opened_at=time_from_us(row["opened_at"]),
        probe_at=time_from_us(row["probe_at"]),
        probes=row["probes"],
    )


def value(kind: type[T], row: Row) -> T:
    """A value whose fields are named as its columns are: most of `model.access`."""
    reading = _Reading(row)
    return kind(**{name: read(reading, row[name]) for name, read in _readers(cast(Any, kind))})


@cache
def _readers(kind: Any) -> list[tuple[str, Callable[[_Reading, Any], Any]]]:
    return [(item.name, _reader(item.name)) for item in fields(kind)]


def _reader(name: str) -> Callable[[_Reading, Any], Any]:
    if name == "at" or name.endswith(("_at", "_until", "_before")):
        return lambda _, stored: from_us(stored)
    if name == "processes":
        return lambda reading, _: reading.column(tuple[ProcessId, ...], name, ())
    if name in _ENUMS:
        return lambda _, stored: _ENUMS[name](stored)
    return lambda _, stored: stored


def columns(value: Any, *without: str) -> dict[str, Any]:
    """The other way round."""
    return {
        item.name: _written(getattr(value, item.name)) for item in fields(value) if item.name not in without
    }


def _written(field: Any) -> Any:
    match field:
        case datetime():
            return to_us(field)
        case tuple():
            return json.dumps(field)
        case str():
            return plain(field)
        case _:
            return field


def note(
    connection: Connection,
    clock: ColumnElement[int],
    asked: Asked,
    processes: Sequence[ProcessId] = (),
    *,
    outcome: AuditOutcome = AuditOutcome.DONE,
    detail: str = "",
) -> None:
    """In the audit: who asked for the change that this transaction makes."""
    connection.execute(
        insert(audit).values(
            at=clock,
            who=plain(asked.who),
            verb=asked.verb,
            subject=plain(asked.subject),
            outcome=outcome.value,
            processes=json.dumps(processes),
            detail=plain(detail),
        )
    )


Entry = tuple[ProcessId, NewEvent]


def record(connection: Connection, clock: ColumnElement[int], entries: Sequence[Entry]) -> None:
    if not entries:
        return
    connection.execute(
        insert(events).values(at=clock),
        [
            {"process_id": process_id, "name": event.name, "message": plain(event.message)}
            for process_id, event in entries
        ],
    )
