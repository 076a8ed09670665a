"""Processes, their events and the workers, as values read from the store; retries and cancels.

Needs nothing but the store, so that `ps`, `why` and `events` start at once.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from calve.app.wiring import App
from calve.control.client import CancelAnswer, Submitted, cancel, retry
from calve.control.why import why
from calve.model.process import BATCH_PREFIX, Event, Pin, Process, ProcessId, Task, Worker, new_batch_id
from calve.model.reach import reaches
from calve.model.states import ProcessState

_EVENTS_PER_READ = 1000


@dataclass(frozen=True, kw_only=True)
class ProcessDetail:
    """All that the store has of a process."""

    process: Process
    plan: str | None  # JSON, once it is planned
    tasks: tuple[Task, ...]
    pins: tuple[Pin, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """What a process is waiting for, in one sentence."""

    process: Process
    why: str


class WorkerState(StrEnum):
    WORKING = "working"
    DRAINING = "draining"
    SILENT = "silent"  # no heartbeat for a lease: others take over what it held


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    worker: Worker
    state: WorkerState
    processes: int  # that it holds


def found(app: App, ids: Sequence[str]) -> list[Process]:
    """Processes by id, prefix or batch, each once, in the order given."""
    return [app.store.process(process_id) for process_id in app.find(ids)]


def details(app: App, ids: Sequence[str]) -> list[ProcessDetail]:
    store = app.store
    return [
        ProcessDetail(
            process=process,
            plan=store.plan(process.id),
            tasks=tuple(store.tasks(process.id)),
            pins=tuple(store.pins(process.id)),
            events=tuple(store.events(process.id)),
        )
        for process in found(app, ids)
    ]


def events(app: App, ids: Sequence[str]) -> list[Event]:
    """Of each process all of its events, oldest first."""
    return [event for process_id in app.find(ids) for event in _events(app, process_id)]


def _events(app: App, process_id: ProcessId) -> Iterator[Event]:
    after = 0
    while page := app.store.events(process_id, after=after, limit=_EVENTS_PER_READ):
        yield from page
        after = page[-1].number


def notes(app: App, ids: Sequence[ProcessId]) -> list[str]:
    """What planning remarked, each once."""
    plans = (app.store.plan(process_id) for process_id in ids)
    return list(dict.fromkeys(note for plan in plans if plan for note in json.loads(plan).get("notes", ())))


def reasons(app: App, ids: Sequence[str]) -> list[Reason]:
    return [Reason(process=process, why=why(app.store, process)) for process in found(app, ids)]


def workers(app: App) -> list[WorkerStatus]:
    now, lease = app.store.now(), timedelta(seconds=app.limits.lease_seconds)
    held = Counter(process.owner for process in app.store.live())

    def state(worker: Worker) -> WorkerState:
        if now - worker.heartbeat_at > lease:
            return WorkerState.SILENT
        return WorkerState.DRAINING if worker.draining else WorkerState.WORKING

    return [
        WorkerStatus(worker=worker, state=state(worker), processes=held[worker.id])
        for worker in app.store.workers()
    ]


def has_workers(app: App, processes: Sequence[Process]) -> bool:
    """Whether every one of them has a worker that will take it."""
    alive = app.live_workers()
    return all(any(reaches(worker.reach, process) for worker in alive) for process in processes)


def cancel_all(app: App, ids: Sequence[str]) -> list[CancelAnswer]:
    """Ask them to stop. A worker carries it out: see `work.stopped`."""
    return [cancel(app.store, process_id) for process_id in app.find(ids)]


def retry_all(app: App, ids: Sequence[str]) -> Submitted:
    """A new process for each, or the retry that is under way; of a batch, those that completed are left
    out."""
    old = found(app, ids)
    if any(text.startswith(BATCH_PREFIX) for text in ids):
        old = [process for process in old if process.state is not ProcessState.COMPLETED]
    batch = new_batch_id() if len(old) > 1 else None
    # If we die here, some are accepted and some are not: each is whole, and asking again joins those.
    made = [retry(app.store, process.id, batch=batch) for process in old]
    return Submitted(
        processes=tuple(one.process for one in made),
        joined=frozenset(process_id for one in made for process_id in one.joined),
    )
