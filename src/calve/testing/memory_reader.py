"""What the store in memory answers, of rows that nobody changes while they are read."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from calve.model.process import (
    Breaker,
    Event,
    Pin,
    Process,
    ProcessId,
    ProcessQuery,
    Start,
    Task,
    Worker,
    WorkerId,
)
from calve.model.refusals import (
    ambiguous,
    no_such_process,
)
from calve.model.states import (
    PROCESS_LIVE,
    PinState,
    ProcessState,
    TaskState,
)
from calve.testing.clock import Clock
from calve.testing.memory_registry import MemoryRegistry, MemoryTables
from calve.testing.memory_seen import KeptSeen
from calve.testing.memory_tier import KeptTiers, MemoryTiers


class MemoryRows:
    """The tables. Dictionaries keep insertion order, so age is their order."""

    def __init__(self) -> None:
        self.processes: dict[ProcessId, Process] = {}
        self.plans: dict[ProcessId, str] = {}
        self.locks: dict[str, ProcessId] = {}
        self.tasks: dict[ProcessId, dict[int, Task]] = defaultdict(dict)
        self.pins: dict[str, Pin] = {}
        self.events: dict[ProcessId, list[Event]] = defaultdict(list)
        self.workers: dict[WorkerId, Worker] = {}
        self.breakers: dict[str, Breaker] = {}
        self.starts: list[Start] = []
        self.last_event = 0


class MemoryReader(MemoryRegistry, MemoryTiers):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows = MemoryRows()
        self._kept = MemoryTables()
        self._seen = KeptSeen()
        self._tiers = KeptTiers()
        self._transaction = threading.RLock()

    def now(self) -> datetime:
        return self._clock.now()

    def _all_processes(self) -> Iterable[Process]:
        return self.rows.processes.values()

    def _all_events(self) -> list[Event]:
        events = (event for of in self.rows.events.values() for event in of)
        return sorted(events, key=lambda event: event.number)

    def _replace_event(self, event: Event) -> None:
        of = self.rows.events[event.process_id]
        of[:] = [event if other.number == event.number else other for other in of]

    def process(self, process_id: ProcessId) -> Process:
        with self._transaction:
            try:
                return self.rows.processes[process_id]
            except KeyError:
                raise no_such_process(process_id) from None

    def known(self, ids: Sequence[ProcessId]) -> list[Process]:
        with self._transaction:
            return [self.rows.processes[id] for id in dict.fromkeys(ids) if id in self.rows.processes]

    def find(self, text: str) -> tuple[ProcessId, ...]:
        with self._transaction:
            processes = self.rows.processes
            if text in processes:
                return (ProcessId(text),)
            batch = tuple(row.id for row in processes.values() if row.batch == text)
            fitting = batch or tuple(key for key in processes if text and key.startswith(text))
        if not fitting:
            raise no_such_process(text)
        if not batch and len(fitting) > 1:
            raise ambiguous(text, fitting)
        return fitting

    def processes(self, query: ProcessQuery) -> list[Process]:
        with self._transaction:
            newest = list(reversed(self.rows.processes.values()))
        if query.before is not None:
            newest = newest[newest.index(self.process(query.before)) + 1 :]
        return [row for row in newest if _fits(row, query)][: query.limit]

    def plan(self, process_id: ProcessId) -> str | None:
        with self._transaction:
            return self.rows.plans.get(process_id)

    def tasks(
        self,
        process_id: ProcessId,
        states: frozenset[TaskState] = frozenset(),
        limit: int | None = None,
        *,
        first: int = 0,
    ) -> list[Task]:
        with self._transaction:
            rows = sorted(self.rows.tasks[process_id].items())
        return [task for number, task in rows if number >= first and (not states or task.state in states)][
            :limit
        ]

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]:
        now = self.now()
        pending = self.tasks(process_id, frozenset({TaskState.PENDING}))
        return [task for task in pending if is_due(task.not_before, now)][:limit]

    def next_task_at(self, process_id: ProcessId) -> datetime | None:
        now = self.now()
        pending = self.tasks(process_id, frozenset({TaskState.PENDING}))
        waits = [task.not_before for task in pending if task.not_before and task.not_before > now]
        return min(waits, default=None)

    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]:
        with self._transaction:
            pins = list(self.rows.pins.values())
        return [
            pin
            for pin in pins
            if (process_id is None or pin.process_id == process_id) and (not states or pin.state in states)
        ]

    def events(self, process_id: ProcessId, after: int = 0, limit: int = 1000) -> list[Event]:
        with self._transaction:
            events = list(self.rows.events[process_id])
        return [event for event in events if event.number > after][:limit]

    def last_event(self) -> int:
        with self._transaction:
            return max((event.number for events in self.rows.events.values() for event in events), default=0)

    def workers(self) -> list[Worker]:
        with self._transaction:
            return sorted(self.rows.workers.values(), key=lambda worker: worker.id)

    def load(self) -> dict[WorkerId, int]:
        found: Counter[WorkerId] = Counter()
        with self._transaction:
            for row in self.rows.processes.values():
                if row.owner is not None and row.state is ProcessState.PENDING:
                    found[row.owner] += 1
                elif row.owner is not None and row.state is ProcessState.RUNNING:
                    found[row.owner] += row.tasks.total - row.tasks.done - row.tasks.failed
        return dict(+found)

    def breakers(self) -> list[Breaker]:
        with self._transaction:
            return sorted(self.rows.breakers.values(), key=lambda breaker: breaker.service)

    def holder(self, lock: str) -> Process | None:
        with self._transaction:
            process_id = self.rows.locks.get(lock)
            return self.rows.processes[process_id] if process_id else None

    def starts(self, identity: str, destination: str, partitions: Sequence[str]) -> list[Start]:
        with self._transaction:
            return [
                one
                for one in reversed(self.rows.starts)
                if (one.identity, one.destination) == (identity, destination) and one.partition in partitions
            ]

    def _forget_starts(self, before: datetime, limit: int) -> int:
        old = [one for one in self.rows.starts if one.made_at and one.made_at < before][:limit]
        self.rows.starts = [one for one in self.rows.starts if one not in old]
        return len(old)

    def started(self, policy: str, day: str) -> tuple[int, int]:
        with self._transaction:
            mine = [one for one in self.rows.starts if one.policy == policy]
            live = [
                one
                for one in mine
                if one.process_id in self.rows.processes
                and self.rows.processes[one.process_id].state in PROCESS_LIVE
            ]
            return len(live), sum(one.bytes for one in mine if one.day == day)

    def live(self, limit: int = 1000) -> list[Process]:
        with self._transaction:
            rows = [row for row in self.rows.processes.values() if row.state in PROCESS_LIVE]
        return sorted(rows, key=lambda row: -row.priority)[:limit]


def _fits(row: Process, query: ProcessQuery) -> bool:
    return (
        (not query.states or row.state in query.states)
        and (not query.kind or row.kind == query.kind)
        and (query.batch is None or row.batch == query.batch)
        and (not query.source or row.source == query.source)
        and (not query.destination or row.destination == query.destination)
        and (not query.table or query.table in (row.source, row.destination))
        and (query.created_since is None or row.created_at >= query.created_since)
        and (query.created_before is None or row.created_at < query.created_before)
        and (query.retry_of is None or row.retry_of == query.retry_of)
    )


def is_due(at: datetime | None, now: datetime) -> bool:
    return at is None or at <= now
