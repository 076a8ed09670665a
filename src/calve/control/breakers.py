"""Circuit breakers: a destination (lane) or a source that is down is left alone until a probe answers.

The breaker itself is a row that every worker reads. The count of failures in a row is this
worker's own and may be forgotten: it then takes as many failures again.
"""

import threading
from collections import Counter
from collections.abc import Iterable

from calve.control.budget import is_unavailable
from calve.control.ports import StoreWriter
from calve.model.errors import ErrorInfo
from calve.model.limits import Limits
from calve.model.process import Breaker, Process
from calve.model.reach import Service


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
            for name in (process.lane, *process.needs):
                self._failures.pop(name, None)
                self._suspected.pop(name, None)

    def close(self, name: str) -> None:
        with self._lock:
            self._failures.pop(name, None)
        self._store.close_breaker(name)


def _breaker_name(process: Process, error: ErrorInfo) -> str:
    """A source has a breaker of its own: its being down says nothing of the destination, and must
    not hold back exports from other sources (L6)."""
    return error.service if Service(error.service).is_source else process.lane


def holding_back(process: Process, breakers: Iterable[Breaker]) -> Breaker | None:
    """The open breaker that concerns a process, its lane's first."""
    concerned = [breaker for breaker in breakers if concerns(breaker, process)]
    return min(concerned, key=lambda breaker: breaker.service != process.lane, default=None)


def concerns(breaker: Breaker, process: Process) -> bool:
    return breaker.service == process.lane or breaker.service in process.needs
