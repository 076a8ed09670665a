"""What every document of a page has, and reading for many processes at once what does not depend on them.

A document is read in a bounded number of statements, changes nothing, and asks nobody but the store. Its cursor is
taken first: whatever happens while the rest is read is told by the stream from there on.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property

from calve import __version__
from calve.app import view
from calve.app.feed import end_cursor
from calve.app.processes import completed
from calve.app.view import Json
from calve.app.wiring import App
from calve.control.ports import StoreReader
from calve.control.why import why
from calve.model.access import Halt
from calve.model.process import Breaker, Process, ProcessId, ProcessQuery, Task, Worker
from calve.model.states import TaskState


def head(app: App) -> Json:
    """The first keys of every document."""
    state = app.registry.feed_state()
    return {
        "now": view.time_json(app.store.now()),
        "cursor": end_cursor(app.registry, state),
        "version": __version__,
    }


class Remembered:
    """A reader for `why` that asks for workers, halts and breakers once, however many processes there are."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    def now(self) -> datetime:
        return self._now

    def workers(self) -> list[Worker]:
        return self._workers

    def breakers(self) -> list[Breaker]:
        return self._breakers

    def halts(self) -> list[Halt]:
        return self._halts

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]:
        return self._store.ready_tasks(process_id, limit)

    def next_task_at(self, process_id: ProcessId) -> datetime | None:
        return self._store.next_task_at(process_id)

    def tasks(
        self, process_id: ProcessId, states: frozenset[TaskState] = frozenset(), limit: int | None = None
    ) -> list[Task]:
        return self._store.tasks(process_id, states, limit)

    @cached_property
    def _now(self) -> datetime:
        return self._store.now()

    @cached_property
    def _workers(self) -> list[Worker]:
        return self._store.workers()

    @cached_property
    def _breakers(self) -> list[Breaker]:
        return self._store.breakers()

    @cached_property
    def _halts(self) -> list[Halt]:
        return self._store.halts()


def process_page(app: App, query: ProcessQuery) -> Json:
    """Processes, newest first, each with its reason."""
    document = head(app)
    found = app.store.processes(completed(app, query))
    counts: Counter[str] = Counter()
    for tally in app.overview.counts().totals.tallies:
        counts[tally.state.value] += tally.count
    return document | {
        "processes": with_why(Remembered(app.store), found),
        "next": found[-1].id if len(found) == query.limit else None,
        "counts_by_state": dict(counts),
        "overview_seconds": round(app.overview.seconds, 1),
        "subjects": [],
        "commands": {},
    }


def with_why(reader: Remembered, processes: Sequence[Process]) -> list[Json]:
    """Processes of a list, each with the reason why it stands where it stands, without a look at its tasks."""
    return [view.served_json(one) | {"why": why(reader, one, tasks=False)} for one in processes]
