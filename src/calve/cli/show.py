"""`calve show`, `calve events`, `calve why`: one process, read from the store.

`calve verify`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from calve.cli import output
from calve.cli.command import CliSession, command, ids_argument
from calve.cli.output import DONE, FAILED
from calve.model.process import Event, Process, Task

if TYPE_CHECKING:
    from calve.app.front import ProcessDetail


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
    from calve.app.view import notes_of, readers_files

    parts = [_head(detail.process, now)]
    if notes := notes_of(detail.plan or ""):
        parts.append("\n".join(f"note: {note}" for note in notes))
    if detail.tasks:
        parts.append(_tasks(detail.tasks))
    if files := readers_files(detail.process, detail.tasks):
        parts.append(_files(files))
    if detail.pins:
        rows = [
            (pin.name, pin.source, pin.state.value, output.age(pin.created_at, now)) for pin in detail.pins
        ]
        parts.append(output.table(("PIN", "SOURCE", "STATE", "AGE"), rows))
    if detail.events:
        parts.append(_events(detail.events))
    return "\n\n".join(parts)


def _files(files: list[dict[str, Any]]) -> str:
    """All of them: a list that is cut would be read as whole."""
    rows = [(file["path"], output.count(file["rows"]), output.size(file["bytes"])) for file in files]
    return output.table(("FILE FOR READERS", "ROWS", "BYTES"), rows, right=frozenset({"ROWS", "BYTES"}))


def _head(process: Process, now: datetime) -> str:
    from calve.app.optimize_history import gained

    error = process.error
    return output.facts(
        (
            ("process", f"{process.id}  {process.kind}  {process.state.value}"),
            ("damaged", f"{process.damaged}; `calve doctor` says what to do" if process.damaged else ""),
            ("batch", process.batch or ""),
            ("retry of", process.retry_of or ""),
            ("source", process.source if process.source != process.destination else ""),
            ("destination", process.destination),
            ("partitions", output.listed(process.partitions, most=20)),
            ("tasks", _progress(process)),
            ("rows", output.count(process.rows)),
            ("files", f"{output.count(process.files)} ({output.size(process.bytes)})"),
            ("gained", gained(process)),
            ("snapshot", process.snapshot_id or ""),
            ("created", output.moment(process.created_at, now)),
            ("finished", output.moment(process.finished_at, now) if process.finished_at else ""),
            (
                "took",
                output.duration(process.finished_at - process.created_at) if process.finished_at else "",
            ),
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
    text = output.table(("TASK", "STATE", "ATTEMPTS", "ERROR"), rows)
    left = len(tasks) - _MOST_TASKS
    return f"{text}\n… and {left} more; --json lists them all" if left > 0 else text


def _events(events: Sequence[Event]) -> str:
    rows = [(f"{event.at:%Y-%m-%d %H:%M:%S}", event.name, event.message) for event in events]
    return output.table(("AT (UTC)", "EVENT", "WHAT HAPPENED"), rows)


_EXPORT_REMEDY = "see what was exported and when with calve show ID, then export it again with --force"
_OPTIMIZE_REMEDY = "roll the table back to the snapshot before, which still has the rows, and report this"


@command(
    "verify", examples=["calve verify 7k2m", "calve verify 7k2m --deep", "calve verify batch-x4t9 --json"]
)
@click.option("--deep", is_flag=True, help="Also read the source again and compare.")
@ids_argument
def verify(session: CliSession, ids: tuple[str, ...], deep: bool) -> int:
    """Prove exports and optimizes after the fact, by row counts and a checksum of every column.

    Compares what the table has at the recorded snapshot, read by an engine that did not write it, with
    what the tasks computed while they read the source. With --deep also with what the source has now,
    as long as the partitions have not changed since. For an optimize: what each of its snapshots
    removed from the table with what it added.
    """
    found = session.calve.verify(ids, deep=deep)
    remedies: list[str] = []
    for proof in found:
        for fault in proof["faults"]:
            output.say(f"error: process {proof['id']}: {fault}")
            remedies.append(_OPTIMIZE_REMEDY if _is_optimize(proof) else _EXPORT_REMEDY)
    lines = [_optimize_line(proof) if _is_optimize(proof) else _export_line(proof) for proof in found]
    session.answer_each(found, "\n".join(lines))
    for remedy in dict.fromkeys(remedies):
        output.hint(remedy)
    return FAILED if remedies else DONE


def _is_optimize(proof: dict[str, Any]) -> bool:
    return "snapshots" in proof


def _export_line(proof: dict[str, Any]) -> str:
    source = f"; {proof['source']['rows']:,} rows read again at the source" if "source" in proof else ""
    return (
        f"{proof['id']}  {_verdict(proof['ok'])}  {output.counted(proof['rows']['found'], 'row')},"
        f" {output.counted(len(proof['columns']), 'column')}, {output.counted(proof['files'], 'file')}"
        f" at snapshot {proof['snapshot_id']}{source}"
    )


def _optimize_line(proof: dict[str, Any]) -> str:
    made = proof["snapshots"]
    return (
        f"{proof['id']}  {_verdict(proof['ok'])}  {sum(one['rows']['after'] for one in made):,} rows"
        f" rewritten from {sum(one['files']['before'] for one in made):,} files to"
        f" {sum(one['files']['after'] for one in made):,}, in {output.counted(len(made), 'snapshot')}"
    )


def _verdict(ok: bool) -> str:
    return "proven" if ok else "DIFFERS"
