"""`calve ps`."""

import sys
from datetime import datetime

import click

from calve.cli import output, words
from calve.cli.command import Session, command
from calve.model.process import Process, ProcessQuery
from calve.model.states import PROCESS_LIVE, PROCESS_TERMINAL, ProcessState

KINDS = ("export", "backup", "restore", "optimize")  # named here: the kinds themselves are slow to import
_HEAD = ("ID", "KIND", "STATE", "SOURCE", "DESTINATION", "PARTITIONS", "TASKS", "ROWS", "AGE")


@command(
    "ps",
    examples=[
        "calve ps",
        "calve ps --all",
        "calve ps --state FAILED --json",
        "calve ps --kind export",
        "calve ps --workers",
    ],
)
@click.option("--all", "every", is_flag=True, help="Also those that have ended.")
@click.option("--kind", type=click.Choice(KINDS), help="Only one kind.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in ProcessState], case_sensitive=False),
    help="Only these states.",
)
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1), help="At most so many.")
@click.option(
    "--workers", is_flag=True, help="List the workers instead: when each was heard of, its last error."
)
def ps(
    session: Session, every: bool, kind: str | None, states: tuple[str, ...], limit: int, workers: bool
) -> None:
    """List processes, newest first. Without options: those that have not ended."""
    from calve.app.view import process_json
    from calve.cli.workers import list_workers

    if workers:
        list_workers(session)
        return
    wanted = frozenset(ProcessState(state) for state in states)
    if not wanted and not every:
        wanted = PROCESS_LIVE
    store = session.app.store
    found = store.processes(ProcessQuery(states=wanted, kind=kind or "", limit=limit))
    now = store.now()
    text = words.table(
        _HEAD,
        [row(process, now) for process in found],
        right=frozenset({"ROWS", "AGE"}),
        width=output.width(sys.stdout),
        cut=frozenset({"SOURCE", "DESTINATION", "PARTITIONS"}),
    )
    session.answer([process_json(process) for process in found], text if found else "")
    if not session.json and not found:
        output.say("No processes." if every else "Nothing is under way. Ended ones: calve ps --all")


def row(process: Process, now: datetime) -> tuple[str, ...]:
    return (
        process.id,
        process.kind,
        process.state.value,
        process.source,
        process.destination,
        words.listed(process.partitions),
        f"{process.tasks.done}/{process.tasks.total}" if process.tasks.total else "-",
        words.count(process.rows),
        age(process, now),
    )


def age(process: Process, now: datetime) -> str:
    """How long it has been going on, or how long it took."""
    if process.state in PROCESS_TERMINAL and process.finished_at:
        return words.duration(process.finished_at - process.created_at)
    return words.duration(now - process.created_at)
