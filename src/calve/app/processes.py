"""Processes, their events and the workers, as values read from the store; retries and cancels.

Needs nothing but the store, so that `ps`, `why` and `events` start at once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from calve.app.destination import as_stored
from calve.app.front import ProcessDetail, Reason, WorkerState, WorkerStatus
from calve.app.wiring import App
from calve.control.client import CancelAnswer, Submitted, cancel, retry
from calve.control.ports import Store
from calve.control.why import why
from calve.model.errors import UsageError
from calve.model.process import BATCH_PREFIX, Event, Process, ProcessId, ProcessQuery, Task, Worker
from calve.model.states import ProcessState

_EVENTS_PER_READ = 1000


def completed(app: App, query: ProcessQuery) -> ProcessQuery:
    """Names as a person types them, as the store has them."""
    table = query.table
    if "/" not in table and table.count(".") < 2:  # not a destination
        table = source_table(app, table)
    return replace(
        query,
        source=source_table(app, query.source),
        destination=as_stored(query.destination, app.config),
        table=table,
    )


def source_table(app: App, text: str) -> str:
    """`db.t` as `main:db.t`, and without backquotes, as processes have it. A backquote may be part of a name, too."""
    if "`" in text:
        with suppress(UsageError):
            name = app.table(text)
            return f"{name.source or app.config.default_source}:{name.database}.{name.table}"
    return text if not text or ":" in text else f"{app.config.default_source}:{text}"


def details(app: App, ids: Sequence[str], *, tasks: int | None = None) -> list[ProcessDetail]:
    """`tasks`: at most so many in all; `ProcessDetail.next_task` says which are missing."""
    store, made = app.store, []
    for process in app.processes(ids):
        rows = store.tasks(process.id, limit=tasks)
        tasks = None if tasks is None else tasks - len(rows)
        made.append(
            ProcessDetail(
                process=process,
                plan=store.plan(process.id),
                tasks=tuple(rows),
                pins=tuple(store.pins(process.id)),
                events=tuple(_events(app, process.id)),
            )
        )
    return made


def tasks(
    app: App, ids: Sequence[str], *, first: int = 0, limit: int = 1000
) -> tuple[list[Task], tuple[ProcessId, int] | None]:
    """Of some processes, one after another, from a number of the first one on; and where the rest begins."""
    found: list[Task] = []
    for process_id in app.find(ids):
        if len(found) >= limit:
            return found, (process_id, first)
        rows = app.store.tasks(process_id, limit=limit - len(found), first=first)
        found, first = found + rows, 0
        if rows and len(found) >= limit:
            return found, (process_id, rows[-1].number + 1)
    return found, None


def events(app: App, ids: Sequence[str], *, after: int = 0, limit: int | None = None) -> list[Event]:
    """Of each process its events, oldest first, from a number on."""
    every = (event for process_id in app.find(ids) for event in _events(app, process_id, after))
    return list(islice(every, limit))


def _events(app: App, process_id: ProcessId, after: int = 0) -> Iterator[Event]:
    while page := app.store.events(process_id, after=after, limit=_EVENTS_PER_READ):
        yield from page
        after = page[-1].number


def reasons(app: App, ids: Sequence[str]) -> list[Reason]:
    return [Reason(process=process, why=why(app.store, process)) for process in app.processes(ids)]


def workers(app: App, live: Sequence[Process] | None = None) -> list[WorkerStatus]:
    now, lease = app.store.now(), timedelta(seconds=app.limits.lease_seconds)
    held = Counter(process.owner for process in (app.store.live() if live is None else live))

    def state(worker: Worker) -> WorkerState:
        if now - worker.heartbeat_at > lease:
            return WorkerState.SILENT
        return WorkerState.DRAINING if worker.draining else WorkerState.WORKING

    return [
        WorkerStatus(worker=worker, state=state(worker), processes=held[worker.id])
        for worker in app.store.workers()
    ]


def cancel_all(app: App, store: Store, ids: Sequence[str]) -> list[CancelAnswer]:
    """Ask them to stop. A worker carries it out: see `work.stopped`."""
    return [cancel(store, process_id) for process_id in app.find(ids)]


def retry_all(app: App, store: Store, ids: Sequence[str]) -> Submitted:
    """A new process for each, or the retry that is under way; of a batch, those that completed are left
    out."""
    old = app.processes(ids)
    if any(text.startswith(BATCH_PREFIX) for text in ids):
        old = [process for process in old if process.state is not ProcessState.COMPLETED]
    return retry(store, *(process.id for process in old))
