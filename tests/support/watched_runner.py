"""Any runner, watched: how many attempts run, how they ended, and a moment at which none is started.

What `ChildRunner` tells a test of its children, for Spark's executors too.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from calve.control.ports import Runner, TaskOrder, TaskResult
from calve.model.errors import ErrorInfo

_LOOK_SECONDS = 0.02


class WatchedRunner:
    """See `control.ports.Runner`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._cancelled: set[str] = set()
        self.errors: list[ErrorInfo] = []  # that attempts ended with, for a test to look at
        self.told_to_stop = 0  # groups
        self._open = threading.Event()
        self._open.set()

    @property
    def slots(self) -> int:
        return self._runner.slots

    @property
    def busy(self) -> int:
        """Attempts that were given to the runner and have not ended; none of a group that has."""
        with self._lock:
            return sum(self._running.values())

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Start nothing for the length of a block: a test brings all of its exports to this point."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        while not self._open.wait(_LOOK_SECONDS):
            if group in self._cancelled:
                return

        def watched(result: TaskResult) -> None:
            with self._lock:
                self._running[group] -= 1
            if result.error is not None:
                self.errors.append(result.error)
            on_result(result)

        with self._lock:
            self._running[group] = len(orders)
        try:
            self._runner.run(group, orders, watched)
        finally:
            with self._lock:
                del self._running[group]

    def cancel(self, group: str) -> None:
        self.told_to_stop += 1
        self._cancelled.add(group)
        self._runner.cancel(group)

    def close(self) -> None:
        self._runner.close()
