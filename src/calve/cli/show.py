"""`calve show`, `calve events`, `calve why`: one process, read from the store."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from calve.cli import words
from calve.cli.command import CliSession, command
from calve.cli.options import ids_argument
from calve.model.process import Event, Process, Task

if TYPE_CHECKING:
    from calve.app.processes import ProcessDetail

_MOST_TASKS = 50  # a page stays a page; --json has them all


@command("show", examples=["calve show 7k2m", "calve show batch-x4t9 --json"])
@ids_argument
def show(session: CliSession, ids: tuple[str, ...]) -> None:
    """Show a process: its plan, tasks, pins and events. ID may be a prefix, or a batch."""
    from calve.app.view import detail_json

    found, now = session.calve.show(ids), session.calve.now()
    session.answer_each([detail_json(one) for one in found], "\n\n".join(_page(one, now) for one in found))


@command("events", examples=["calve events 7k2m", "calve events 7k2m --json"])
@ids_argument
def events(session: CliSession, ids: tuple[str, ...]) -> None:
    """Show what happened to a process, oldest first."""
    from calve.app.view import event_json

    found = session.calve.events(ids)
    session.answer([event_json(event) for event in found], _events(found) if found else "")


@command("why", examples=["calve why 7k2m", "calve why batch-x4t9"])
@ids_argument
def why(session: CliSession, ids: tuple[str, ...]) -> None:
    """Say in one sentence what a process is waiting for."""
    from calve.app.view import reason_json

    found = session.calve.why(ids)
    lines = [one.why if len(found) == 1 else f"{one.process.id}  {one.why}" for one in found]
    session.answer_each([reason_json(one) for one in found], "\n".join(lines))


def _page(detail: "ProcessDetail", now: datetime) -> str:
    """One process on one page."""
    from calve.app.view import readers_files

    parts = [_head(detail.process, now)]
    if detail.tasks:
        parts.append(_tasks(detail.tasks))
    if files := readers_files(detail.process, detail.tasks):
        parts.append(_files(files))
    if detail.pins:
        rows = [
            (pin.name, pin.source, pin.state.value, words.age(pin.created_at, now)) for pin in detail.pins
        ]
        parts.append(words.table(("PIN", "SOURCE", "STATE", "AGE"), rows))
    if detail.events:
        parts.append(_events(detail.events))
    return "\n\n".join(parts)


def _files(files: list[dict[str, Any]]) -> str:
    """All of them: a list that is cut would be read as whole."""
    rows = [(file["path"], words.count(file["rows"]), words.size(file["bytes"])) for file in files]
    return words.table(("FILE FOR READERS", "ROWS", "BYTES"), rows, right=frozenset({"ROWS", "BYTES"}))


def _head(process: Process, now: datetime) -> str:
    from calve.app.optimize_history import gained

    error = process.error
    return words.facts(
        (
            ("process", f"{process.id}  {process.kind}  {process.state.value}"),
            ("batch", process.batch or ""),
            ("retry of", process.retry_of or ""),
            ("source", process.source if process.source != process.destination else ""),
            ("destination", process.destination),
            ("partitions", words.listed(process.partitions, most=20)),
            ("tasks", _progress(process)),
            ("rows", words.count(process.rows)),
            ("files", f"{words.count(process.files)} ({words.size(process.bytes)})"),
            ("gained", gained(process)),
            ("snapshot", process.snapshot_id or ""),
            ("created", words.moment(process.created_at, now)),
            ("finished", words.moment(process.finished_at, now) if process.finished_at else ""),
            ("took", words.duration(process.finished_at - process.created_at) if process.finished_at else ""),
            ("worker", process.owner or ""),
            ("error", f"{error.message} [{error.code}, outcome {error.outcome.value}]" if error else ""),
            ("hint", error.hint if error else ""),
        )
    )


def _progress(process: Process) -> str:
    counts = process.tasks
    text = f"{counts.done} of {counts.total} done"
    if counts.running:
        text += f", {counts.running} running"
    return f"{text}, {counts.failed} failed" if counts.failed else text


def _tasks(tasks: Sequence[Task]) -> str:
    rows = [
        (str(task.number), task.state.value, str(task.attempt), task.error.message if task.error else "")
        for task in tasks[:_MOST_TASKS]
    ]
    text = words.table(("TASK", "STATE", "ATTEMPTS", "ERROR"), rows)
    left = len(tasks) - _MOST_TASKS
    return f"{text}\n… and {left} more; --json lists them all" if left > 0 else text


def _events(events: Sequence[Event]) -> str:
    rows = [(f"{event.at:%Y-%m-%d %H:%M:%S}", event.name, event.message) for event in events]
    return words.table(("AT (UTC)", "EVENT", "WHAT HAPPENED"), rows)
