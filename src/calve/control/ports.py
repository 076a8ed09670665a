"""What the control plane needs of the world: a store and a runner. (`kind` has the third port.)

Docstrings are obligations of the implementations. Every call is bounded by a timeout of its own and
raises only `CalveError`s. Any call may be made twice, by another worker, after a crash, or while an
earlier call of a stopped worker is still under way: each says how that ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from calve.model.access import Asked, Halt
from calve.model.change import Change
from calve.model.errors import ErrorInfo
from calve.model.process import (
    Breaker,
    Event,
    Lease,
    NewProcess,
    Pin,
    Process,
    ProcessId,
    ProcessQuery,
    Start,
    Starts,
    Task,
    Worker,
    WorkerId,
)
from calve.model.states import PinState, TaskState


class StoreReader(Protocol):
    """Reading. Never blocks a writer, never takes a lock."""

    def now(self) -> datetime:
        """The database's clock: the only one that is compared with stored times."""

    def process(self, process_id: ProcessId) -> Process: ...  # NotFoundError

    def known(self, ids: Sequence[ProcessId]) -> list[Process]:
        """Those of them that are there, in no order; one question for many."""

    def find(self, text: str) -> tuple[ProcessId, ...]:
        """The processes a person means by an id, a unique prefix of one, or a batch id, oldest
        first. NotFoundError, or UsageError when a prefix fits several."""

    def processes(self, query: ProcessQuery) -> list[Process]: ...  # NotFoundError: `before` is not there

    def plan(self, process_id: ProcessId) -> str | None: ...

    def tasks(
        self,
        process_id: ProcessId,
        states: frozenset[TaskState] = frozenset(),
        limit: int | None = None,
        *,
        first: int = 0,
    ) -> list[Task]: ...  # by number, from `first` on; no states means all

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]:
        """PENDING and not backing off, lowest number first. An index, not a scan."""

    def next_task_at(self, process_id: ProcessId) -> datetime | None:
        """When the first PENDING task that is backing off becomes ready."""

    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]: ...

    def events(self, process_id: ProcessId, after: int = 0, limit: int = 1000) -> list[Event]: ...

    def last_event(self) -> int:
        """The number of the newest event of all, 0 for none: it changes whenever a process is submitted,
        asked to stop or moved. One look at an index."""

    def workers(self) -> list[Worker]: ...

    def load(self) -> dict[WorkerId, int]:
        """How many tasks of the live processes that a worker holds run or have yet to: one of a process without a
        plan, none of one that publishes. Workers that hold none are left out. An index, not a scan."""

    def breakers(self) -> list[Breaker]: ...

    def halts(self) -> list[Halt]: ...  # by kind and source

    def holder(self, lock: str) -> Process | None:
        """The process that holds a lock: live, or ended with an unknown outcome."""

    def starts(self, identity: str, destination: str, partitions: Sequence[str]) -> list[Start]:
        """What policies started with these partitions, newest first."""

    def started(self, policy: str, day: str) -> tuple[int, int]:
        """How many partitions of a policy are under way, and the bytes that it started that day."""

    def live(self, limit: int = 1000) -> list[Process]:
        """Processes that have not ended, by priority then age; costs O(live)."""


class StoreWriter(Protocol):
    """Writing. Each call is one transaction with its event rows, or nothing."""

    def submit(
        self,
        new: Sequence[NewProcess],
        *,
        joined: Sequence[ProcessId] = (),
        asked: Asked | None = None,
        starts: Starts | None = None,
    ) -> list[Process]:
        """Accept all or none. LockedError names the process that holds a lock.
        With `retry_of`: the old process must have ended; its leftovers move KEPT -> ADOPTED in
        this transaction if they can, and `adopted` says whether. Submitting an id that exists
        already returns the row: a lost acknowledgement is harmless.

        `asked` is audited if anything is new. With a key, this is remembered as the one submission of
        (who, key), together with the live processes that it joins, also if nothing is new. The same
        request again raises Replayed; another with that key RefusedError (code `key_reused`).

        `starts` are kept with the new processes that they name. RefusedError if one was started before
        (code `already_started`), or if a limit would be passed (code `over_limit`): limits hold for
        concurrent submissions too."""

    def request_cancel(self, process_id: ProcessId, *, asked: Asked | None = None) -> Process:
        """Ask. On a terminal process nothing changes. The answer is the row after. `asked` is audited
        if it is the first request."""

    def claim(
        self,
        worker: WorkerId,
        reach: frozenset[str],
        *,
        lease_seconds: float,
        limit: int,
        closed_lanes: frozenset[str] = frozenset(),
        only: frozenset[ProcessId] | None = None,
    ) -> list[Process]:
        """Take leases on processes that need a step and that no worker holds (never leased, yielded
        or expired by the database's clock), priority then age, raising each fence. Also returns
        what this worker holds already (a lost acknowledgement, L22), without raising it. Needs
        must lie within `reach`, and the kind among those that `reach` names (`model.reach`). Lanes
        in `closed_lanes` are passed over, except processes with a cancel request or past their
        deadline; so is what a halt holds (`Halt.holds`), and so are processes that back off. Terminal processes whose `cleanup_at` is due count
        as needing a step. Fair: takes lanes in turn. `limit` bounds what is newly taken, `only` (a few
        hundred ids) says of which; what is held already comes on top."""

    def renew(self, worker: WorkerId, *, lease_seconds: float) -> frozenset[ProcessId]:
        """Extend every lease this worker still holds; says which. An expired lease that
        no worker took is still held; one that was taken is not."""

    def yield_(self, lease: Lease) -> None:
        """Give up a lease; nothing if it is no longer ours."""

    def apply(self, lease: Lease, change: Change) -> Process:
        """Make one change; the row after. FenceLostError if the lease is no longer ours,
        ConflictError if the version, a task or a pin is not as expected, and then nothing is
        changed. PermanentError (code `illegal_transition`) for a transition no table has, (code
        `illegal_change`) for a change that contradicts itself. StoreUnknownError: read back."""

    def claim_releases(
        self, worker: WorkerId, reach: frozenset[str], *, limit: int, lease_seconds: float
    ) -> list[Pin]:
        """RELEASING pins that are due, hidden from everybody for `lease_seconds`. Their source
        (`source:` and the pin's `source`) must lie within `reach`, and so must their process's kind."""

    def renew_releases(self, names: Sequence[str], lease_seconds: float) -> None:
        """Hide RELEASING pins for `lease_seconds` from now: the worker that claimed them is still busy with them."""

    def record_release(self, name: str, error: ErrorInfo | None, retry_seconds: float = 0.0) -> None:
        """RELEASING -> RELEASED, or one more failed attempt. Twice is harmless."""

    def heartbeat(self, worker: Worker) -> None:
        """Insert or refresh; `heartbeat_at` and `started_at` are the database's."""

    def forget_worker(self, worker: WorkerId) -> None: ...

    def trip(self, service: str, reason: str, probe_seconds: float) -> None:
        """Open a service's breaker, or, if it is open, push its probe; `opened_at` stays."""

    def claim_probe(self, service: str, probe_seconds: float) -> bool:
        """True for one worker once `probe_at` is reached; moves it on."""

    def close_breaker(self, service: str) -> None: ...

    def forget_history(self, *, days: float, after: int, limit: int) -> int:
        """Of processes that ended so many days ago and need no step any more: delete the events, the
        RELEASED pins, the freed locks and the attempts. Looks at no more than `limit` events, the oldest
        beyond number `after`, and deletes no more than `limit` attempts; the number to go on from, or 0 once
        what is left is younger. The process, its plan and its tasks stay: a proof may need them. Events that the feed loses are noted."""

    def forget_requests(self, *, hours: float, audit_days: float, limit: int) -> int:
        """Delete requests so old, ended notices and done actions older than a week, servers silent for a
        day, sessions that ended, outages 90 days after their end, sightings that nobody tried for 30 days, and
        audit rows so old: at most `limit` of each. The most that was deleted of one table: less
        than `limit` means that nothing old is left."""


class Store(StoreReader, StoreWriter, Protocol):
    """Both sides. Reading and writing are two interfaces so that most code can take one."""


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """One attempt at one task, ready to be shipped: JSON in, JSON out."""

    process_id: ProcessId
    number: int
    attempt: int
    function: str  # "package.module:name", called on the executor with the payload
    payload: str = field(repr=False)  # may hold secrets (P22)
    on_driver: bool = False  # called in the runner's own program instead, with its driver as well
    near: bool = False  # on the runner's own machine: it needs files that executors do not see


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    number: int
    attempt: int
    receipt: str = ""  # of success
    rows: int = 0
    files: int = 0
    bytes: int = 0
    error: ErrorInfo | None = None
    free: bool = False  # it was lost, and not by a fault of its own: no budget is used
    spent: Mapping[str, float] = field(default_factory=dict)  # seconds by phase (`model.seen.PHASES`)


class Runner(Protocol):
    """Runs task attempts. Thread-safe. Runs no attempt twice (D4)."""

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        """Run a wave as one cancellable group; blocks. `on_result` is called as each attempt ends,
        from any thread, possibly twice for one attempt. Returning without a result for an order
        means the attempt was lost, and so does raising, with the reason: its receipt may exist all the same."""

    def cancel(self, group: str) -> None:
        """Stop a group within seconds, native code included. Unknown groups are fine."""

    def close(self) -> None: ...
