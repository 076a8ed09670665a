"""`calve show`."""

from datetime import datetime
from typing import Any

import click

from calve.app.optimize_history import gained
from calve.app.view import detail_json, readers_files
from calve.cli import words
from calve.cli.command import Session, command
from calve.model.process import Event, Pin, Process, Task

_MOST_TASKS = 50  # a page stays a page; --json has them all


@command("show", examples=["calve show 7k2m", "calve show batch-x4t9 --json"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def show(session: Session, ids: tuple[str, ...]) -> None:
    """Show a process: its plan, tasks, pins and what happened. ID may be a prefix, or a batch's."""

    store = session.app.store
    documents, pages = [], []
    for process_id in session.app.find(ids):
        process, tasks = store.process(process_id), store.tasks(process_id)
        pins = store.pins(process_id)
        documents.append(detail_json(process, store.plan(process_id), tasks, pins))
        pages.append(page(process, tasks, pins, store.events(process_id), store.now()))
    session.answer(documents[0] if len(documents) == 1 else documents, "\n\n".join(pages))


def page(process: Process, tasks: list[Task], pins: list[Pin], events: list[Event], now: datetime) -> str:
    """One process on one page."""
    parts = [_head(process, now)]
    if tasks:
        parts.append(_tasks(tasks))
    if files := readers_files(process, tasks):
        parts.append(_files(files))
    if pins:
        rows = [(pin.name, pin.source, pin.state.value, words.age(pin.created_at, now)) for pin in pins]
        parts.append(words.table(("PIN", "SOURCE", "STATE", "AGE"), rows))
    if events:
        parts.append(event_lines(events))
    return "\n\n".join(parts)


def _files(files: list[dict[str, Any]]) -> str:
    """All of them: a list that is cut would be read as whole."""
    rows = [(file["path"], words.count(file["rows"]), words.size(file["bytes"])) for file in files]
    return words.table(("FILE FOR READERS", "ROWS", "BYTES"), rows, right=frozenset({"ROWS", "BYTES"}))


def _head(process: Process, now: datetime) -> str:
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
            (
                "created",
                f"{process.created_at:%Y-%m-%d %H:%M:%S} UTC ({words.age(process.created_at, now)} ago)",
            ),
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


def _tasks(tasks: list[Task]) -> str:
    rows = [
        (str(task.number), task.state.value, str(task.attempt), task.error.message if task.error else "")
        for task in tasks[:_MOST_TASKS]
    ]
    text = words.table(("TASK", "STATE", "ATTEMPTS", "ERROR"), rows)
    left = len(tasks) - _MOST_TASKS
    return f"{text}\n… and {left} more: --json has them all" if left > 0 else text


def event_lines(events: list[Event]) -> str:
    rows = [(f"{event.at:%Y-%m-%d %H:%M:%S}", event.name, event.message) for event in events]
    return words.table(("AT (UTC)", "EVENT", "WHAT HAPPENED"), rows)
