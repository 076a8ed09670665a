"""What a failure costs: back-off, the budget of a task, and breakers of services that are down.

A permanent error uses the budget at once (P9); a service that is down uses none; everything
else counts, and a task that used its budget fails, and with it its process.

A breaker leaves a service that is down (a lane, a source, a Spark cluster) alone until a probe answers.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from calve.control.ports import StoreWriter, TaskResult
from calve.model.access import Halt
from calve.model.change import TaskChange
from calve.model.errors import ErrorInfo, Outcome
from calve.model.limits import Limits
from calve.model.process import Breaker, Process, Task
from calve.model.reach import Service
from calve.model.states import ProcessState, TaskState

Random = Callable[[], float]  # in [0, 1)


def backoff_seconds(tries: int, limits: Limits, random: Random) -> float:
    """Doubled each time up to a bound, with jitter so that what failed together parts ways."""
    exponent = min(max(tries - 1, 0), 30)
    whole = min(limits.backoff_most_seconds, limits.backoff_first_seconds * 2.0**exponent)
    return whole * (0.5 + random() / 2)


def is_unavailable(error: ErrorInfo) -> bool:
    """A named service could not be reached, and certainly nothing was done."""
    return error.retryable and bool(error.service) and error.outcome is not Outcome.UNKNOWN


def budget_used(task: Task, attempt: int) -> int:
    """Attempts that count, with `attempt` the one that runs or just ended."""
    return attempt - task.free_attempts


def judge(
    task: Task, result: TaskResult, limits: Limits, random: Random, *, free: bool = False
) -> TaskChange:
    """What an ended attempt makes of its task. `free`: it used no budget."""
    error = result.error
    if error is None:
        return TaskChange(
            number=task.number,
            before=TaskState.RUNNING,
            after=TaskState.DONE,
            attempt=result.attempt,
            receipt=result.receipt,
            rows=result.rows,
            files=result.files,
            bytes=result.bytes,
            spent=result.spent,
        )
    free = free or is_unavailable(error)
    used = budget_used(task, result.attempt)
    failed = not error.retryable or (not free and used >= limits.task_attempts)
    return TaskChange(
        number=task.number,
        before=TaskState.RUNNING,
        after=TaskState.FAILED if failed else TaskState.PENDING,
        attempt=result.attempt,
        error=error,
        free=free and not failed,
        wait_seconds=0.0 if failed else backoff_seconds(1 if free else used, limits, random),
    )


class Breakers:
    def __init__(self, store: StoreWriter, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._lock = threading.Lock()
        self._failures: Counter[str] = Counter()
        self._suspected: dict[str, Process] = {}

    def met(self, process: Process, errors: Iterable[ErrorInfo]) -> None:
        """Errors that tries for a process ended with. After the first the service is suspected."""
        for error in errors:
            if is_unavailable(error):
                name = _breaker_name(process, error)
                if self.failed(name, error.message) == 1:
                    with self._lock:
                        self._suspected[name] = process

    def take_suspected(self) -> dict[str, Process]:
        """Services that failed once, each with a process that met it: to be asked at once. Otherwise the
        next try would find out, in a slot, and only after its own timeout."""
        with self._lock:
            suspected, self._suspected = self._suspected, {}
        return suspected

    def failed(self, name: str, reason: str) -> int:
        """How often in a row, this time included."""
        with self._lock:
            self._failures[name] += 1
            failures = self._failures[name]
        if failures >= self._limits.breaker_failures:
            # if we die here, the next failures trip it; twice only pushes its probe
            self._store.trip(name, reason, self._limits.probe_seconds)
        return failures

    def answered(self, process: Process) -> None:
        """Something succeeded through every service that the process uses."""
        with self._lock:
            for name in (process.lane, *process.needs, *filter(_is_spark, self._failures)):
                self._failures.pop(name, None)
                self._suspected.pop(name, None)

    def close(self, name: str) -> None:
        with self._lock:
            self._failures.pop(name, None)
        self._store.close_breaker(name)


def _is_spark(name: str) -> bool:
    return Service(name).is_spark


def _breaker_name(process: Process, error: ErrorInfo) -> str:
    """A source has a breaker of its own: its being down says nothing of the destination, and must
    not hold back exports from other sources (L6). So has a Spark cluster."""
    service = Service(error.service)
    return error.service if service.is_source or service.is_spark else process.lane


def holding_back(process: Process, breakers: Iterable[Breaker]) -> Breaker | None:
    """The open breaker that concerns a process, its lane's first."""
    concerned = [breaker for breaker in breakers if concerns(breaker, process)]
    return min(concerned, key=lambda breaker: breaker.service != process.lane, default=None)


def halting(process: Process, halts: Iterable[Halt]) -> Halt | None:
    """The halt that holds a process back."""
    return next((halt for halt in halts if halt.holds(process)), None)


def concerns(breaker: Breaker, process: Process) -> bool:
    """Of Spark clusters it is asked only about the one that the process's worker uses: see `known_to`."""
    if Service(breaker.service).is_spark:
        return process.state is ProcessState.RUNNING
    return breaker.service == process.lane or breaker.service in process.needs


def known_to(reach: Collection[str], breakers: Iterable[Breaker]) -> list[Breaker]:
    """Without those of Spark clusters that a worker of this reach does not use."""
    return [one for one in breakers if one.service in reach or not Service(one.service).is_spark]
