"""A clock that moves when told to: hours of leases, back-offs and deadlines in milliseconds."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""


class FakeClock:
    """Serves the in-memory store as its clock, and an SQL store as the offset of the database's:
    `open_store(url, clock_offset_seconds=clock.offset_seconds)`."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._offset_seconds = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._offset_seconds)

    def offset_seconds(self) -> float:
        """How far it was moved since it was made."""
        return self._offset_seconds

    def advance(self, seconds: float) -> None:
        """Negative sets it back, as a wrong clock would be."""
        with self._lock:
            self._offset_seconds += seconds
