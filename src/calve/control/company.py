"""Workers beside this one: how much of the work this one takes, and what it hands over.

A worker takes what it can begin, and a little ahead, so that planning overlaps with tasks. Who has taken more than
it can begin hands it over as soon as another has a free slot, so no slot stays empty while a task waits elsewhere.
All of it is a guess about others, some seconds old: taking too little or handing over to one that has just died costs
time, never work, because what nobody holds is anybody's to take.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta

from calve.control.facts import Facts
from calve.control.ports import StoreReader
from calve.model.limits import Limits
from calve.model.process import Process, Worker, WorkerId
from calve.model.reach import reaches
from calve.model.states import ProcessState

_PART = 4  # of the free slots, or of all of them ahead: what a worker takes at once
_AHEAD_SECONDS = 2.0  # between two, when all its slots have work: a cancel must not wait for a slot


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
        return min(room, -(-free // _PART))

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
