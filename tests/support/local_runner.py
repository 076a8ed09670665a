"""A runner without Spark: task attempts in child processes, with the real engine and real files.

For tests that need many whole exports and no JVM.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from calve.control.ports import TaskOrder, TaskResult
from calve.spark.executor import execute, result
from support.task_pool import TaskPool


class LocalRunner:
    """See `control.ports.Runner`. Cancelling ends the children, with whatever they run."""

    def __init__(self, slots: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.slots = slots
        self._environment = dict(environment or {})  # of the children, where it is not this program's
        self._lock = threading.Lock()
        self._pool: TaskPool | None = None
        self._cancelled: set[str] = set()
        self._groups: set[str] = set()

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        with self._lock:
            self._groups.add(group)
        waiting: set[Future[dict[str, Any]]] = {self._submit(order) for order in orders}
        while waiting and group not in self._cancelled:
            done, waiting = wait(waiting, timeout=0.05, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    on_result(result(future.result()))
                except BrokenProcessPool:
                    self._discard()  # a child died: its attempt, and those beside it, are lost
                except CancelledError:
                    continue  # another group's end took the child along: lost too
        with self._lock:
            self._groups.discard(group)
            self._cancelled.discard(group)

    def cancel(self, group: str) -> None:
        with self._lock:
            if group not in self._groups:
                return
            self._cancelled.add(group)
        self._discard()

    def warm(self) -> None:
        """Nothing to start ahead of time."""

    def close(self) -> None:
        self._discard()

    def _submit(self, order: TaskOrder) -> Future[dict[str, Any]]:
        with self._lock:
            if self._pool is None:
                self._pool = TaskPool(self.slots, self._environment)
            return self._pool.submit(execute, order)

    def _discard(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.kill()
