"""A runner without Spark whose cancel ends only the attempts it was told to end.

Each slot is one child program with an engine of its own, kept for the next attempt. A cancelled
attempt takes its own child with it and no other, as Spark does it; so a test can say that an outage
of one destination leaves the tasks of another alone.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import STALLED, ErrorInfo
from calve.spark.executor import execute, result
from support.task_pool import TaskPool

_LOOK_SECONDS = 0.02


class ChildRunner:
    """See `control.ports.Runner`."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self._lock = threading.Lock()
        self._idle: list[TaskPool] = []
        self._busy: dict[str, set[TaskPool]] = {}
        self._cancelled: set[str] = set()
        self.groups: set[str] = set()
        self.errors: list[ErrorInfo] = []  # that attempts ended with, for a test to look at
        self.told_to_stop = 0  # groups
        self._open = threading.Event()
        self._open.set()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Start nothing for the length of a block: a test brings all of its exports to this point."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        with self._lock:
            self.groups.add(group)
        while not self._open.wait(_LOOK_SECONDS) and group not in self._cancelled:
            pass
        running = {pair: order for order in orders if (pair := self._start(group, order)) is not None}
        while running and group not in self._cancelled:
            done, _ = wait(
                [future for future, _ in running], timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED
            )
            for pair in [pair for pair in running if pair[0] in done]:
                del running[pair]
                self._end(group, *pair, on_result)
        with self._lock:
            self._busy.pop(group, None)
            self.groups.discard(group)
            self._cancelled.discard(group)

    def cancel(self, group: str) -> None:
        with self._lock:
            if group not in self.groups:
                return
            self.told_to_stop += 1
            self._cancelled.add(group)
            children = self._busy.pop(group, set())
        for child in children:
            child.kill()

    def kill_busy(self) -> None:
        """SIGKILL for every child that runs an attempt, as an executor's machine that dies."""
        with self._lock:
            children = [child for busy in self._busy.values() for child in busy]
        for child in children:
            child.kill()

    @property
    def busy(self) -> int:
        """Attempts that run at this moment."""
        with self._lock:
            return sum(len(children) for children in self._busy.values())

    @property
    def pids(self) -> list[int]:
        """Of the children that live, idle or not."""
        with self._lock:
            children = [*self._idle, *(child for busy in self._busy.values() for child in busy)]
        return [pid for child in children for pid in child.pids]

    def warm(self) -> None:
        """Start every child's engine: otherwise the first attempts pay for it."""
        with self._lock:
            while len(self._idle) < self.slots:
                self._idle.append(TaskPool())
            started = [child.submit(_import_the_engine) for child in self._idle]
        for future in started:
            future.result()

    def close(self) -> None:
        with self._lock:
            children = [*self._idle, *(child for busy in self._busy.values() for child in busy)]
            self._idle, self._busy = [], {}
        for child in children:
            child.kill()

    def _start(self, group: str, order: TaskOrder) -> tuple[Future[dict[str, Any]], TaskPool] | None:
        """None: the group was cancelled. All under the lock, so that a cancel comes before or after."""
        with self._lock:
            if group in self._cancelled:
                return None
            child = self._idle.pop() if self._idle else TaskPool()
            self._busy.setdefault(group, set()).add(child)
            return child.submit(execute, order), child

    def _end(
        self,
        group: str,
        future: Future[dict[str, Any]],
        child: TaskPool,
        on_result: Callable[[TaskResult], None],
    ) -> None:
        try:
            ended = result(future.result())
        except (BrokenProcessPool, CancelledError):
            return  # the child died: its attempt is lost, and the control plane finds out
        with self._lock:
            mine = self._busy.get(group, set())
            if child in mine:
                mine.remove(child)
                if ended.error is None or ended.error.code != STALLED:
                    self._idle.append(child)
                else:
                    child.kill()  # it ends by itself, as under Spark
        if ended.error is not None:
            self.errors.append(ended.error)
        on_result(ended)


def _import_the_engine() -> None:
    from calve.clickhouse.engine.engine import worker_engine
    from calve.export import task  # noqa: F401

    worker_engine()
