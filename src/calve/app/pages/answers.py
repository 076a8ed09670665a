"""Answers that are dear to make, kept in memory and made again beside requests, never by the page that shows them, but
for the first. Each costs at most a twentieth of a core, is made again only if somebody looks, and has an age.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from calve.app.view import Json
from calve.model.errors import CalveError
from calve.model.process import Process, ProcessId
from calve.model.states import PROCESS_TERMINAL

_LEAST_SECONDS = 5.0
_SHARE = 20  # it may take a twentieth of the time
_SCANS = 64
T = TypeVar("T")


class Kept(Generic[T]):
    """May be shared by threads."""

    def __init__(self, make: Callable[[], T], name: str) -> None:
        self._make = make
        self._name = name
        self._lock = threading.Lock()
        self._value: T | None = None
        self._made = 0.0
        self._cost = 0.0
        self._making: threading.Thread | None = None

    def get(self) -> T:
        """The last one. If it is old, a new one is made in the background for the next request."""
        with self._lock:
            if self._value is None:
                self._value = self._made_now()
            elif time.monotonic() - self._made > max(_LEAST_SECONDS, _SHARE * self._cost):
                self._begin()
            return self._value

    def renewed(self) -> T:
        """Made now, by the caller, and kept."""
        made = self._made_now()
        with self._lock:
            self._value = made
        return made

    @property
    def seconds(self) -> float:
        """How old it is."""
        return time.monotonic() - self._made

    def _begin(self) -> None:
        if self._making is None or not self._making.is_alive():
            self._making = threading.Thread(target=self._again, name=self._name, daemon=True)
            self._making.start()

    def _again(self) -> None:
        with suppress(CalveError):  # the store does not answer: the old one stays, and its age says so
            self.renewed()

    def _made_now(self) -> T:
        began, cpu = time.monotonic(), time.thread_time()
        made = self._make()
        # Waiting for a database is not our core's time, but it is the database's.
        self._cost = max(time.thread_time() - cpu, (time.monotonic() - began) / 4)
        self._made = time.monotonic()
        return made


class Scans:
    """What only a look at every attempt of a process finds, as a page shows it. Once a process has ended its scan is of
    all of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[ProcessId, bool], Kept[Json]] = OrderedDict()

    def of(self, process: Process, look: Callable[[], Json]) -> Json:
        """Not to be changed: viewers share it."""
        key = (process.id, process.state in PROCESS_TERMINAL)
        with self._lock:
            kept = self._kept.get(key) or Kept(look, "attempts")
            self._kept[key] = kept
            self._kept.move_to_end(key)
            if len(self._kept) > _SCANS:
                self._kept.popitem(last=False)
        return kept.get()
