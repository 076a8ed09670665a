"""This worker's leases: which it holds, renewing them in time, and when it was silent for too long.

Whether a lease has expired is the database's business (D11). The monotonic clock of this machine
measures only one thing: how long this worker has not managed to renew. Before its leases can be
taken by another it stops its tasks. All of it may be forgotten: a worker that knows nothing of its
leases claims again and finds everything in the store.

Beside others, a worker takes what it can begin, and a little ahead, so that planning overlaps with tasks. Who has taken
more hands it over once another has a free slot. What it knows of others is some seconds old: a wrong guess costs time,
never work, because what nobody holds is anybody's to take.
"""

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

from calve.control.facts import Facts
from calve.control.ports import StoreReader, StoreWriter
from calve.control.step import Fence
from calve.model.errors import ConflictError
from calve.model.limits import Limits
from calve.model.process import Lease, Process, ProcessId, Worker, WorkerId
from calve.model.reach import reaches
from calve.model.states import ProcessState

Held = tuple[ProcessId, int]  # a process under one fence

_RENEW_PART = 1 / 4  # of the lease: three renewals may fail before it matters
_SILENT_PART = 0.75  # of the lease: the rest is for stopping tasks
_CLAIM_PART = 4  # of the free slots, or of all of them ahead: what a worker takes at once
_AHEAD_SECONDS = 2.0  # between two, when all its slots have work: a cancel must not wait for a slot


class Leases:
    """Thread-safe: renewed by a thread of its own in production, by the tick in tests."""

    def __init__(
        self, store: StoreWriter, worker: WorkerId, limits: Limits, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._worker = worker
        self._seconds = limits.lease_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._renewed_at = monotonic()

    def renew_if_due(self) -> None:
        with self._lock:
            if self._monotonic() - self._renewed_at < self._seconds * _RENEW_PART:
                return
            asked_at = self._monotonic()  # before the call: a slow answer counts against us
            self._store.renew(self._worker, lease_seconds=self._seconds)
            self._renewed_at = asked_at

    def silent(self) -> bool:
        """Not renewed for so long that another may soon take what we hold."""
        return self._monotonic() - self._renewed_at > self._seconds * _SILENT_PART


class Holding:
    """The leases held and the slow steps under way at this moment. Thread-safe."""

    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._leases: dict[ProcessId, Lease] = {}
        self._busy: dict[Held, list[str]] = {}

    def update(self, rows: Iterable[Process]) -> list[Lease]:
        """The store's word on what we hold; the leases that are gone."""
        now_held = {row.id: Lease(process_id=row.id, worker=self._worker, fence=row.fence) for row in rows}
        with self._lock:
            gone = [lease for key, lease in self._leases.items() if now_held.get(key) != lease]
            self._leases = now_held
        return gone

    def drop(self, lease: Lease) -> None:
        with self._lock:
            if self._leases.get(lease.process_id) == lease:
                del self._leases[lease.process_id]

    def lease(self, process_id: ProcessId) -> Lease:
        """ConflictError if a step that ended in another thread has given it up."""
        with self._lock:
            found = self._leases.get(process_id)
        if found is None:
            raise ConflictError(f"process {process_id}: its lease was given up", code="lease_lost")
        return found

    def leases(self) -> list[Lease]:
        with self._lock:
            return list(self._leases.values())

    def keys(self) -> frozenset[Held]:
        with self._lock:
            return frozenset((lease.process_id, lease.fence) for lease in self._leases.values())

    def begin(self, lease: Lease, step: str) -> None:
        with self._lock:
            self._busy.setdefault((lease.process_id, lease.fence), []).append(step)

    def finish(self, lease: Lease, step: str) -> None:
        key = (lease.process_id, lease.fence)
        with self._lock:
            self._busy[key].remove(step)
            if not self._busy[key]:
                del self._busy[key]

    def busy(self, lease: Lease) -> str:
        """The slow step under way; a fence beside a publish is what matters of the two."""
        with self._lock:
            steps = self._busy.get((lease.process_id, lease.fence), [])
        return Fence.__name__ if Fence.__name__ in steps else next(iter(steps), "")

    def any_busy(self) -> bool:
        with self._lock:
            return bool(self._busy)


def to_begin(facts: Facts) -> int:
    """Tasks of a process that this worker could begin if it had the slots. One that is being planned has one at least."""
    process = facts.process
    if facts.down is not None or facts.halted is not None or facts.draining:
        return 0
    match process.state:
        case ProcessState.PENDING:
            return 1
        case ProcessState.RUNNING:
            counts = process.tasks
            return max(counts.total - counts.done - counts.failed - max(counts.running, facts.in_flight), 0)
        case _:
            return 0


class Company:
    def __init__(
        self, store: StoreReader, worker: WorkerId, limits: Limits, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._worker = worker
        self._limits = limits
        self._monotonic = monotonic
        self._others: list[Worker] = []
        self._took_at = self._looked_at = monotonic()

    def look(self) -> None:
        """At each heartbeat: who lives beside us."""
        oldest = self._store.now() - timedelta(seconds=self._limits.lease_seconds)
        self._others = [
            other
            for other in self._store.workers()
            if other.id != self._worker
            and not other.draining
            and other.heartbeat_at > oldest
            and (other.granted is None or other.granted.executors)
        ]

    def took(self) -> None:
        self._took_at = self._monotonic()

    def room(self, held: int, slots: int, taken: int, waiting: int) -> int:
        """How many processes to take now, of `slots` of which `taken` run tasks, where `waiting` tasks of processes
        that are held could begin. What would wait here can run elsewhere."""
        room = max(self._limits.processes_per_worker - held, 0)
        if not self._others:
            return room
        free = slots - taken - waiting
        if free <= 0:
            is_due = self._monotonic() - self._took_at >= _AHEAD_SECONDS
            free = (slots if waiting < slots else 1) if is_due else 0
        return min(room, -(-free // _CLAIM_PART))

    def to_hand_over(self, waiting: Iterable[Process]) -> list[Process]:
        """Of processes none of whose tasks finds a slot here: those that others could begin now, the last in turn
        first."""
        last_first = sorted(waiting, key=lambda row: (row.priority, -row.created_at.timestamp()))
        now = self._monotonic()
        if not last_first or not self._others or now - self._looked_at < self._limits.tick_seconds:
            return []
        self._looked_at = now
        load = self._store.load()
        free = {other.id: other.slots - load.get(other.id, 0) for other in self._others}
        return [row for row in last_first if self._takes(row, free)]

    def _takes(self, process: Process, free: dict[WorkerId, int]) -> bool:
        """Whether one of the others has a slot for it; that one then has fewer."""
        able = [other.id for other in self._others if free[other.id] > 0 and reaches(other.reach, process)]
        if able:
            free[max(able, key=lambda other: free[other])] -= process.tasks.total - process.tasks.done
        return bool(able)
