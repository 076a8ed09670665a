"""One door for each embedded folder: one visit at a time in this program, others wait in line.

Only one process may open the folder, so the threads of a worker would otherwise fight each
other for it. A host that is open when a visit ends is handed to the next in line, for a
bounded time, so that fifty processes planned together do not open the folder fifty times,
and other programs still get their turn.
"""

import threading
import time
from pathlib import Path

from calve.clickhouse.embedded.host_process import HostProcess

_HANDED_ON_SECONDS = 5.0


class Gate:
    """The door of one folder."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._waiting = 0
        self._host: HostProcess | None = None
        self._opened_at = 0.0

    def enter(self, seconds: float) -> bool:
        """Wait for the turn; False when it did not come in time."""
        with self._changed:
            self._waiting += 1
            try:
                entered = self._changed.wait_for(lambda: not self._busy, timeout=seconds)
                self._busy = self._busy or entered
            finally:
                self._waiting -= 1
                self._close_if_unwanted()
        return entered

    def take_host(self) -> HostProcess | None:
        """The host that the visit before left open. Only while inside."""
        with self._changed:
            host, self._host = self._host, None
        if host is not None and not host.alive:
            host.kill()
            return None
        if host is None:
            self._opened_at = time.monotonic()
        return host

    def leave(self, host: HostProcess | None) -> None:
        """End the visit. `host` is handed on or closed; None when it is gone already."""
        old = time.monotonic() - self._opened_at > _HANDED_ON_SECONDS
        with self._changed:
            hand_on = host is not None and self._waiting > 0 and not old
        if host is not None and not hand_on:
            host.close()  # before the next may enter: it finds the folder free
        with self._changed:
            self._host = host if hand_on else None
            self._busy = False
            self._close_if_unwanted()
            self._changed.notify()

    def _close_if_unwanted(self) -> None:
        if self._host is not None and not self._busy and self._waiting == 0:
            self._host.close()
            self._host = None


_gates: dict[Path, Gate] = {}
_lock = threading.Lock()


def gate_of(folder: Path) -> Gate:
    """The same door for every name of one folder."""
    with _lock:
        return _gates.setdefault(folder.resolve(), Gate())
