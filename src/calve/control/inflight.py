"""What this worker runs at this moment: waves, their attempts, the results not yet recorded.

About this worker only, and safe to forget: an attempt that is RUNNING in the store and unknown
here is lost, and is recovered by its receipt. Bounded by the slots; nothing of a finished task
stays. Results stay until the store has them, so none is swallowed (L35). Thread-safe.

Who gets the free slots: by priority first, then fairly between lanes, then between processes.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from calve.control.ports import TaskResult
from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import Lease, ProcessId, Task

Attempt = tuple[int, int]  # task number, attempt


@dataclass(frozen=True, kw_only=True)
class Lost:
    """An attempt that ended here without a result."""

    task: Task
    error: ErrorInfo
    free: bool = False  # it is not its fault: no budget is used
    look: bool = True  # whether its receipt must be looked for

    @property
    def stopped(self) -> bool:
        return not self.look


@dataclass(kw_only=True)
class Wave:
    """One runner group: some attempts of one process under one lease."""

    group: str
    lease: Lease
    running: dict[Attempt, Task]
    moved_at: float  # monotonic, when it last began or ended an attempt
    stop: ErrorInfo | None = None  # why it was asked to stop
    free: bool = False
    look: bool = True


@dataclass(kw_only=True)
class _Of:
    """What one lease has here."""

    waves: list[Wave] = field(default_factory=list)
    arrived: dict[Attempt, tuple[Task, TaskResult]] = field(default_factory=dict)
    lost: dict[Attempt, Lost] = field(default_factory=dict)


class InFlight:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[ProcessId, int], _Of] = {}
        self._waves_begun = 0

    def begin(self, lease: Lease, tasks: Sequence[Task], at: float) -> Wave:
        """`tasks` carry the attempt that starts now."""
        with self._lock:
            self._waves_begun += 1
            wave = Wave(
                group=f"calve-{lease.process_id}-{lease.fence}-{self._waves_begun}",
                lease=lease,
                running={(task.number, task.attempt): task for task in tasks},
                moved_at=at,
            )
            self._entry(lease).waves.append(wave)
            return wave

    def arrive(self, wave: Wave, result: TaskResult, at: float) -> None:
        """An attempt ended. Twice for one attempt is fine; a success wins over an error that was not
        recorded yet."""
        key = (result.number, result.attempt)
        with self._lock:
            entry = self._entry(wave.lease)
            task = wave.running.pop(key, None)
            wave.moved_at = at
            if task is None:
                known = entry.arrived.get(key)
                if known is None or known[1].error is None or result.error is not None:
                    return
                task = known[0]
            if result.error is not None and result.error.outcome is Outcome.UNKNOWN:
                entry.lost[key] = Lost(task=task, error=result.error, free=result.free)
                return
            entry.arrived[key] = (task, result)

    def end(self, wave: Wave, error: ErrorInfo, *, free: bool = False) -> None:
        """The runner returned: what has no result is lost, at no cost if `free`."""
        with self._lock:
            entry = self._entry(wave.lease)
            entry.waves.remove(wave)
            for key, task in wave.running.items():
                entry.lost[key] = Lost(
                    task=task, error=wave.stop or error, free=wave.free or free, look=wave.look
                )
            wave.running = {}
            self._forget_empty(wave.lease)

    def never_began(self, lease: Lease, tasks: Iterable[Task], error: ErrorInfo) -> None:
        """The store may have recorded a start that did not take place."""
        with self._lock:
            lost = self._entry(lease).lost
            for task in tasks:
                lost[(task.number, task.attempt)] = Lost(task=task, error=error, free=True, look=False)

    def results(self, lease: Lease) -> dict[Attempt, tuple[Task, TaskResult]]:
        with self._lock:
            entry = self._of.get(_key(lease))
            return dict(entry.arrived) if entry else {}

    def recorded(self, lease: Lease, attempts: Iterable[Attempt]) -> None:
        """The store has them, or refused them for good: forget them."""
        with self._lock:
            entry = self._entry(lease)
            for key in attempts:
                entry.arrived.pop(key, None)
                entry.lost.pop(key, None)
            self._forget_empty(lease)

    def lost(self, lease: Lease) -> dict[Attempt, Lost]:
        with self._lock:
            entry = self._of.get(_key(lease))
            return dict(entry.lost) if entry else {}

    def known(self, lease: Lease) -> frozenset[Attempt]:
        """Attempts that run here, or whose result is here."""
        with self._lock:
            entry = self._of.get(_key(lease))
            if entry is None:
                return frozenset()
            running = (key for wave in entry.waves for key in wave.running)
            return frozenset(running) | entry.arrived.keys()

    def slots_used(self) -> int:
        with self._lock:
            return sum(len(wave.running) for entry in self._of.values() for wave in entry.waves)

    def leases(self) -> set[tuple[ProcessId, int]]:
        """Processes, with their fences, of which something is kept here."""
        with self._lock:
            return set(self._of)

    def waves(self, lease: Lease | None = None) -> list[Wave]:
        with self._lock:
            if lease is None:
                return [wave for entry in self._of.values() for wave in entry.waves]
            entry = self._of.get(_key(lease))
            return list(entry.waves) if entry else []

    def restart_clocks(self, at: float) -> None:
        """Nothing that was begun has run so far."""
        with self._lock:
            for entry in self._of.values():
                for wave in entry.waves:
                    wave.moved_at = at

    def stop(self, waves: Iterable[Wave], error: ErrorInfo, *, free: bool, look: bool) -> list[str]:
        """Mark waves as stopping; the groups that were not stopping before."""
        with self._lock:
            running = [wave for wave in waves if wave.stop is None]
            for wave in running:
                wave.stop, wave.free, wave.look = error, free, look
            return [wave.group for wave in running]

    def abandon(self, error: ErrorInfo) -> None:
        """The program ends: what still runs is stopped, at no cost, though its runner has not returned. Its
        receipt is looked for (L25); a later attempt writes elsewhere."""
        with self._lock:
            for entry in self._of.values():
                for wave in entry.waves:
                    for key, task in wave.running.items():
                        entry.lost[key] = Lost(task=task, error=error, free=True)
                    wave.running = {}

    def forget(self, lease: Lease) -> None:
        """The lease is gone: results and losses under it mean nothing any more. Waves stay until
        they end, because they use slots."""
        with self._lock:
            entry = self._of.get(_key(lease))
            if entry is not None:
                entry.arrived.clear()
                entry.lost.clear()
                self._forget_empty(lease)

    def forget_others(self, held: frozenset[tuple[ProcessId, int]]) -> None:
        """Drop what belongs to leases that are not held."""
        with self._lock:
            for key in [key for key in self._of if key not in held]:
                entry = self._of[key]
                entry.arrived.clear()
                entry.lost.clear()
                if not entry.waves:
                    del self._of[key]

    def _entry(self, lease: Lease) -> _Of:
        return self._of.setdefault(_key(lease), _Of())

    def _forget_empty(self, lease: Lease) -> None:
        entry = self._of.get(_key(lease))
        if entry is not None and not (entry.waves or entry.arrived or entry.lost):
            del self._of[_key(lease)]


def started(task: Task) -> Task:
    """The task as it will be once its next attempt is started."""
    return replace(task, attempt=task.attempt + 1)


def _key(lease: Lease) -> tuple[ProcessId, int]:
    return lease.process_id, lease.fence


@dataclass(frozen=True, kw_only=True)
class Want:
    """What one process could use."""

    process_id: ProcessId
    lane: str
    priority: int
    created_at: datetime
    in_flight: int
    ready: int


def share(free: int, wants: Sequence[Want]) -> dict[ProcessId, int]:
    """How many slots each process may use; those with none are left out."""
    in_lane: Counter[str] = Counter()
    for want in wants:
        in_lane[want.lane] += want.in_flight
    granted: Counter[ProcessId] = Counter()
    open_wants = [want for want in wants if want.ready > 0]
    while free > 0 and open_wants:
        chosen = min(
            open_wants,
            key=lambda want: (
                -want.priority,
                in_lane[want.lane],
                want.in_flight + granted[want.process_id],
                want.created_at,
                want.process_id,
            ),
        )
        granted[chosen.process_id] += 1
        in_lane[chosen.lane] += 1
        free -= 1
        if granted[chosen.process_id] >= chosen.ready:
            open_wants.remove(chosen)
    return dict(granted)
