"""An outside world in memory: pins at a source, files and receipts, a table with tags and keys.

It keeps the promises that the real ones keep (a commit is atomic, a tag is taken once, a key is
published once) and breaks what the real ones break: it can be down, lose acknowledgements, land a
commit late. What must never happen is written to `violations`.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, TemporaryError, UnknownOutcomeError


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    process_id: str
    key: str
    files: tuple[str, ...]


@dataclass
class World:
    pins: set[str] = field(default_factory=set)
    takes: Counter[str] = field(default_factory=Counter)
    ordered: list[tuple[str, ...]] = field(default_factory=list)  # the pins that each order's plan names
    files: set[str] = field(default_factory=set)
    receipts: dict[tuple[str, int, int], str] = field(default_factory=dict)
    runs: Counter[tuple[str, int]] = field(default_factory=Counter)  # attempts made at each task
    snapshots: list[Snapshot] = field(default_factory=list)
    tombstones: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    late: list[Snapshot] = field(default_factory=list)
    down: set[str] = field(default_factory=set)  # services that do not answer
    calls: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    faults: dict[str, list[CalveError]] = field(default_factory=dict)  # by call, one for each next call
    commits: list[str] = field(default_factory=list)  # how the next commits go, see `send`
    before: dict[str, Callable[[], None]] = field(default_factory=dict)  # done once, before the next call
    lock: threading.RLock = field(default_factory=threading.RLock)

    def enter(self, call: str) -> None:
        """Every call comes by here: counted, and failed where told so."""
        with self.lock:
            self.calls[call] += 1
            todo = self.before.pop(call, None)
            queued = self.faults.get(call)
            error = queued.pop(0) if queued else None
        if todo is not None:
            todo()
        if error is not None:
            raise error

    def fail(self, call: str, *errors: CalveError) -> None:
        self.faults.setdefault(call, []).extend(errors)

    # -- files ------------------------------------------------------------------------------------

    def write(self, order: TaskOrder) -> TaskResult:
        """What a task does: one file and its receipt, both named by the attempt (D4)."""
        with self.lock:
            rows = int(json.loads(order.payload)["rows"])
            name = f"{order.process_id}-{order.number}-{order.attempt}"
            if name in self.files:
                self.violations.append(f"file {name} was written twice")
            self.files.add(name)
            self.runs[order.process_id, order.number] += 1
            receipt = json.dumps({"task": order.number, "file": name, "rows": rows})
            self.receipts.setdefault((order.process_id, order.number, order.attempt), receipt)
        return TaskResult(
            number=order.number, attempt=order.attempt, receipt=receipt, rows=rows, files=1, bytes=10 * rows
        )

    # -- the table --------------------------------------------------------------------------------

    def published(self, process_id: str) -> Snapshot | None:
        return next((snap for snap in self.snapshots if snap.process_id == process_id), None)

    def published_key(self, key: str) -> Snapshot | None:
        return next((snap for snap in self.snapshots if snap.key == key), None)

    def send(self, snapshot: Snapshot) -> None:
        """One commit. `commits` says how it goes: "ok", "lost" (lands, the answer does not come back),
        "dropped" (never arrives, same answer), "late" (lands at `land_late`), "conflict"."""
        with self.lock:
            how = self.commits.pop(0) if self.commits else "ok"
            self.sent.add(snapshot.process_id)
            if how == "conflict":
                raise TemporaryError("the table moved", code="conflict")
            if how in ("ok", "lost"):
                self._commit(snapshot)
            if how == "late":
                self.late.append(snapshot)
            if how != "ok":
                raise UnknownOutcomeError("no answer to the commit", code="no_answer")

    def _commit(self, snapshot: Snapshot) -> None:
        """The catalog's own assertions: tag absent, key absent."""
        taken = snapshot.process_id in self.tombstones or self.published(snapshot.process_id)
        if taken or self.published_key(snapshot.key):
            raise TemporaryError("the tag or the key is there already", code="conflict")
        for name in snapshot.files:
            if name not in self.files:
                self.violations.append(f"published file {name} does not exist")
        self.snapshots.append(snapshot)

    def land_late(self) -> None:
        """Requests that were under way arrive now."""
        with self.lock:
            late, self.late = self.late, []
            for snapshot in late:
                try:
                    self._commit(snapshot)
                except TemporaryError:
                    continue

    def delete(self, process_id: str) -> list[str]:
        """Undo: everything the process wrote that no snapshot refers to."""
        with self.lock:
            may_land = process_id in self.sent and process_id not in self.tombstones
            if may_land and not self.published(process_id):
                self.violations.append(f"{process_id} was undone without a fence")
            referred = {name for snap in self.snapshots for name in snap.files}
            mine = {name for name in self.files if name.startswith(f"{process_id}-")}
            self.files -= mine - referred
            return sorted(mine & referred)
