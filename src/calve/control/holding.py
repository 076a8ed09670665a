"""What this worker holds and does at this moment: leases and the slow steps under way. Thread-safe.

Forgettable: a worker that knows nothing of it claims again and finds everything in the store.
"""

import threading
from collections.abc import Iterable

from calve.control.step import Fence
from calve.model.errors import ConflictError
from calve.model.ids import ProcessId, WorkerId
from calve.model.process import Lease, Process

Held = tuple[ProcessId, int]  # a process under one fence


class Holding:
    def __init__(self, worker: WorkerId) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._leases: dict[ProcessId, Lease] = {}
        self._busy: dict[Held, list[str]] = {}

    def update(self, rows: Iterable[Process]) -> list[Lease]:
        """The store's word on what we hold; the leases that are gone."""
        now_held = {row.id: Lease(process_id=row.id, worker=self._worker, fence=row.fence) for row in rows}
        with self._lock:
            gone = [lease for key, lease in self._leases.items() if now_held.get(key) != lease]
            self._leases = now_held
        return gone

    def drop(self, lease: Lease) -> None:
        with self._lock:
            if self._leases.get(lease.process_id) == lease:
                del self._leases[lease.process_id]

    def lease(self, process_id: ProcessId) -> Lease:
        """ConflictError where a step that ended meanwhile, in a thread of its own, has given it up."""
        with self._lock:
            found = self._leases.get(process_id)
        if found is None:
            raise ConflictError(f"process {process_id}: its lease was given up meanwhile", code="lease_lost")
        return found

    def leases(self) -> list[Lease]:
        with self._lock:
            return list(self._leases.values())

    def keys(self) -> frozenset[Held]:
        with self._lock:
            return frozenset((lease.process_id, lease.fence) for lease in self._leases.values())

    def begin(self, lease: Lease, step: str) -> None:
        with self._lock:
            self._busy.setdefault((lease.process_id, lease.fence), []).append(step)

    def finish(self, lease: Lease, step: str) -> None:
        key = (lease.process_id, lease.fence)
        with self._lock:
            self._busy[key].remove(step)
            if not self._busy[key]:
                del self._busy[key]

    def busy(self, lease: Lease) -> str:
        """The slow step under way; a fence beside a publish is what matters of the two."""
        with self._lock:
            steps = self._busy.get((lease.process_id, lease.fence), [])
        return Fence.__name__ if Fence.__name__ in steps else next(iter(steps), "")

    def any_busy(self) -> bool:
        with self._lock:
            return bool(self._busy)
