"""`calve ps`: processes, or with --workers the workers."""

import sys
from datetime import datetime
from time import sleep
from typing import TYPE_CHECKING

import click

from calve.app.arguments import span
from calve.cli import output
from calve.cli.command import CliSession, command
from calve.model.errors import UsageError
from calve.model.process import BatchId, Process, ProcessQuery
from calve.model.reach import without_kinds
from calve.model.states import PROCESS_LIVE, ProcessState

if TYPE_CHECKING:
    from calve.app.front import WorkerStatus

KINDS = (
    "export",
    "backup",
    "restore",
    "optimize",
    "proof",
    "drill",
    "release",
    "return",
    "drop",
    "untier",
)  # named here: the kinds themselves are slow to import
_HEAD = (
    "ID", "KIND", "STATE", "SOURCE", "DESTINATION", "PARTITIONS", "TASKS", "ROWS", "AGE", "DURATION", "ENDED", "BATCH",
)  # fmt: skip
_WORKERS = ("WORKER", "HOST", "STATE", "SLOTS", "HOLDS", "UP", "HEARTBEAT", "REACHES", "LAST ERROR")
_WATCH_SECONDS = 2.0


@command(
    "ps",
    examples=[
        "calve ps",
        "calve ps --all --since 7d",
        "calve ps --state FAILED --json",
        "calve ps --table main:db.events --to lake.ns.events --all",
        "calve ps --batch batch-x4t9 --watch",
        "calve ps --all --to lake.ns.events --state COMPLETED --ids",
        "calve ps --workers",
    ],
)
@click.option("--all", "every", is_flag=True, help="Include processes that have ended.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in ProcessState], case_sensitive=False),
    help="Only this state. Repeatable.",
)
@click.option("--table", "source", metavar="TABLE", default="", help="Only of this source table.")
@click.option("--to", "destination", metavar="DEST", default="", help="Only to this destination.")
@click.option("--batch", metavar="BATCH", help="Only of this batch. Includes processes that have ended.")
@click.option("--since", metavar="7d", help="Only processes created since: 30m, 12h, 7d, 4w ago.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1), help="At most this many.")
@click.option("--ids", "only_ids", is_flag=True, help="Print only the ids, one to a line.")
@click.option("--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
@click.option("--workers", is_flag=True, help="List workers instead: their state, heartbeat and last error.")
def ps(
    session: CliSession,
    every: bool,
    kind: str | None,
    states: tuple[str, ...],
    source: str,
    destination: str,
    batch: str | None,
    since: str | None,
    limit: int,
    only_ids: bool,
    watch: bool,
    workers: bool,
) -> None:
    """List processes, newest first. By default only those that have not ended."""
    wanted = frozenset(ProcessState(state) for state in states)
    if not wanted and not every and not batch:
        wanted = PROCESS_LIVE
    query = ProcessQuery(
        states=wanted,
        kind=kind or "",
        source=source,
        destination=destination,
        batch=BatchId(batch) if batch else None,
        created_since=session.calve.now() - span(since, units="mhdw") if since else None,
        limit=limit,
    )
    if watch and session.json:
        raise UsageError("--watch and --json exclude each other", code="usage", hint="omit one of them")
    while True:
        if watch and output.is_terminal(sys.stdout):
            output.clear()
        if workers:
            _list_workers(session)
        else:
            _list_processes(session, query, only_ids, "No processes." if every or batch else _NOTHING)
        if not watch:
            return
        sleep(_WATCH_SECONDS)


_NOTHING = "Nothing is running. To include processes that have ended: calve ps --all"


def _list_processes(session: CliSession, query: ProcessQuery, only_ids: bool, empty: str) -> None:
    from calve.app.view import process_json

    found, now = session.calve.processes(query), session.calve.now()
    text = output.table(
        _HEAD,
        [_row(process, now) for process in found],
        right=frozenset({"ROWS", "AGE", "DURATION"}),
        width=output.width(sys.stdout),
        cut=frozenset({"PARTITIONS"}),
        tails=frozenset({"SOURCE", "DESTINATION"}),  # the table's own name stands last
        drop=("BATCH", "ENDED", "ROWS", "DURATION", "KIND", "AGE", "SOURCE", "PARTITIONS"),
    )
    if only_ids:
        text = "\n".join(process.id for process in found)
    session.answer([process_json(process) for process in found], text if found else "")
    if not found:
        session.say(empty)
    for down in sorted(set(session.calve.outages(found).values()), key=lambda breaker: breaker.service):
        reason = output.one_line(down.reason)
        session.say(f"{down.service} has been down since {down.opened_at:%Y-%m-%d %H:%M:%S} UTC: {reason}")


def _row(process: Process, now: datetime) -> tuple[str, ...]:
    return (
        process.id,
        process.kind,
        "DAMAGED" if process.damaged else process.state.value,
        process.source,
        process.destination,
        output.listed(process.partitions),
        f"{process.tasks.done}/{process.tasks.total}" if process.tasks.total else "-",
        output.count(process.rows),
        output.age(process.created_at, now),
        output.duration((process.finished_at or now) - process.created_at),
        f"{process.finished_at:%Y-%m-%d %H:%M}" if process.finished_at else "-",
        process.batch or "-",
    )


def _list_workers(session: CliSession) -> None:
    from calve.app.view import worker_json

    found, now = session.calve.workers(), session.calve.now()
    on_cluster = any(status.worker.granted for status in found)
    text = output.table(
        (*_WORKERS[:4], "SPARK GRANTS", *_WORKERS[4:]) if on_cluster else _WORKERS,
        [_worker_row(status, now, on_cluster=on_cluster) for status in found],
        right=frozenset({"SLOTS", "HOLDS", "UP", "HEARTBEAT"}),
        width=output.width(sys.stdout),
        cut=frozenset({"HOST", "REACHES", "LAST ERROR"}),
        drop=("HOST", "UP", "SLOTS", "REACHES"),  # a worker's name starts with its host's
    )
    session.answer([worker_json(status) for status in found], text if found else "")
    if not found:
        session.say("No worker is running. Start one: calve worker")


def _worker_row(status: "WorkerStatus", now: datetime, *, on_cluster: bool) -> tuple[str, ...]:
    worker = status.worker
    grants = (str(worker.granted or "-"),) if on_cluster else ()
    return (
        worker.id,
        worker.host,
        status.state.value,
        str(worker.slots),
        *grants,
        str(status.processes),
        output.duration(now - worker.started_at),
        f"{output.duration(now - worker.heartbeat_at)} ago",
        " ".join(without_kinds(worker.reach)),
        output.one_line(worker.error.message) if worker.error else "",
    )
