"""Keeping leases: renewing in time, and knowing when this worker was silent for too long.

Whether a lease has expired is the database's business (D11). The monotonic clock of this machine
measures only one thing: how long this worker has not managed to renew. Before its leases can be
taken by another it stops its tasks.
"""

import threading
from collections.abc import Callable

from calve.control.ports import StoreWriter
from calve.model.ids import WorkerId
from calve.model.limits import Limits

_RENEW_PART = 1 / 4  # of the lease: three renewals may fail before it matters
_SILENT_PART = 0.75  # of the lease: the rest is for stopping tasks


class Leases:
    """Thread-safe: renewed by a thread of its own in production, by the tick in tests."""

    def __init__(
        self, store: StoreWriter, worker: WorkerId, limits: Limits, monotonic: Callable[[], float]
    ) -> None:
        self._store = store
        self._worker = worker
        self._seconds = limits.lease_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._renewed_at = monotonic()

    def renew_if_due(self) -> None:
        with self._lock:
            if self._monotonic() - self._renewed_at < self._seconds * _RENEW_PART:
                return
            asked_at = self._monotonic()  # before the call: a slow answer counts against us
            self._store.renew(self._worker, lease_seconds=self._seconds)
            self._renewed_at = asked_at

    def silent(self) -> bool:
        """Not renewed for so long that another may soon take what we hold."""
        return self._monotonic() - self._renewed_at > self._seconds * _SILENT_PART
