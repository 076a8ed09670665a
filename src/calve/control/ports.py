"""What the control plane needs of the world. Comments are obligations of whoever implements them.

Every call is bounded by a timeout of its own and raises only `CalveError`s. Any call may be
made twice, by another worker, after a crash, or while an earlier call of a stopped worker is
still under way: each says how that ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from calve.model.change import Change, NewPin, PinChange, Result
from calve.model.errors import ErrorInfo
from calve.model.ids import ProcessId, WorkerId
from calve.model.process import (
    Breaker,
    Event,
    Lease,
    NewProcess,
    NewTask,
    Pin,
    Process,
    ProcessQuery,
    Task,
    Worker,
)
from calve.model.states import PinState, TaskState


class StoreReader(Protocol):
    """Reading. Never blocks a writer, never takes a lock."""

    def now(self) -> datetime:
        """The database's clock: the only one that is compared with stored times."""

    def process(self, process_id: ProcessId) -> Process: ...  # NotFoundError

    def find(self, text: str) -> tuple[ProcessId, ...]:
        """The processes a person means by an id, a unique prefix of one, or a batch id, oldest
        first. NotFoundError, or UsageError when a prefix fits several."""

    def processes(self, query: ProcessQuery) -> list[Process]: ...

    def plan(self, process_id: ProcessId) -> str | None: ...

    def tasks(
        self, process_id: ProcessId, states: frozenset[TaskState] = frozenset(), limit: int | None = None
    ) -> list[Task]: ...  # by number; no states means all

    def ready_tasks(self, process_id: ProcessId, limit: int) -> list[Task]:
        """PENDING and not backing off, lowest number first. An index, not a scan."""

    def next_task_at(self, process_id: ProcessId) -> datetime | None:
        """When the first PENDING task that is backing off becomes ready."""

    def pins(
        self, process_id: ProcessId | None = None, states: frozenset[PinState] = frozenset()
    ) -> list[Pin]: ...

    def events(self, process_id: ProcessId, after: int = 0, limit: int = 1000) -> list[Event]: ...

    def workers(self) -> list[Worker]: ...

    def breakers(self) -> list[Breaker]: ...

    def holder(self, lock: str) -> Process | None:
        """The process that holds a lock: live, or ended with an unknown outcome."""

    def live(self, limit: int = 1000) -> list[Process]:
        """Processes that have not ended, by priority then age; costs O(live)."""


class StoreWriter(Protocol):
    """Writing. Each call is one transaction with its event rows, or nothing."""

    def submit(self, new: Sequence[NewProcess]) -> list[Process]:
        """Accept all or none. RefusedError (code `locked`) names the process that holds a lock.
        With `retry_of`: the old process must have ended; its leftovers move KEPT -> ADOPTED in
        this transaction if they can, and `adopted` says whether. Submitting an id that exists
        already returns the row: a lost acknowledgement is harmless."""

    def request_cancel(self, process_id: ProcessId) -> Process:
        """Ask. On a terminal process nothing changes. The answer is the row after."""

    def claim(
        self,
        worker: WorkerId,
        reach: frozenset[str],
        *,
        lease_seconds: float,
        limit: int,
        closed_lanes: frozenset[str] = frozenset(),
    ) -> list[Process]:
        """Take leases on processes that need a step and that nobody holds (never leased, yielded
        or expired by the database's clock), priority then age, raising each fence. Also returns
        what this worker holds already (a lost acknowledgement, L22), without raising it. Needs
        must lie within `reach`, and the kind among those that `reach` names (`model.reaching`). Lanes in `closed_lanes` are passed over, except processes with a
        cancel request or past their deadline; so are processes that back off. Terminal processes
        whose `cleanup_at` is due count as needing a step. Fair: takes lanes in turn. `limit`
        bounds what is newly taken; what is held already comes on top."""

    def renew(self, worker: WorkerId, *, lease_seconds: float) -> frozenset[ProcessId]:
        """Extend every lease this worker still holds; says which. An expired lease that nobody
        took is still held; one that was taken is not."""

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

    def record_release(self, name: str, error: ErrorInfo | None, retry_seconds: float = 0.0) -> None:
        """RELEASING -> RELEASED, or one more failed attempt. Twice is harmless."""

    def heartbeat(self, worker: Worker) -> None:
        """Insert or refresh; `heartbeat_at` and `started_at` are the database's."""

    def forget_worker(self, worker: WorkerId) -> None: ...

    def trip(self, lane: str, reason: str, probe_seconds: float) -> None:
        """Open a lane's breaker, or, if it is open, push its probe; `opened_at` stays."""

    def claim_probe(self, lane: str, probe_seconds: float) -> bool:
        """True for one worker once `probe_at` is reached; moves it on."""

    def close_breaker(self, lane: str) -> None: ...

    def forget_history(self, *, days: float, after: int, limit: int) -> int:
        """Of processes that ended so many days ago and need no step any more: delete the events, the
        RELEASED pins and the freed locks. Looks at no more than `limit` events, the oldest beyond
        number `after`; the number to go on from, or 0 once what is left is younger. The process, its
        plan and its tasks stay: a proof may need them."""


class Store(StoreReader, StoreWriter, Protocol):
    """Both sides. Reading and writing are two interfaces so that most code can take one."""


@dataclass(frozen=True, kw_only=True)
class AdoptedWork:
    """What a retry may rely on: the plan of the process it retries and the receipts that stand."""

    plan: str
    receipts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    plan: str
    tasks: tuple[NewTask, ...]
    spent_pins: tuple[str, ...] = ()  # that no task needs: released at once, not at the process's end


@dataclass(frozen=True, kw_only=True)
class NothingToDo:
    """Planning found that the work is done already, by whomever. The process completes."""

    result: Result
    message: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """The process's work is visible, now or since an earlier try. `message` tells a person."""

    result: Result
    message: str
    unused: bool = False  # by another process's doing: what this one wrote is not needed, and undone


@dataclass(frozen=True, kw_only=True)
class Fenced:
    """No commit of this process can land any more."""


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """One attempt at one task, ready to be shipped: JSON in, JSON out."""

    process_id: ProcessId
    number: int
    attempt: int
    function: str  # "package.module:name", called on the executor with the payload
    payload: str = field(repr=False)  # may hold secrets (P22)
    on_driver: bool = False  # called in the runner's own program instead, with its driver as well


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    number: int
    attempt: int
    receipt: str = ""  # of success
    rows: int = 0
    files: int = 0
    bytes: int = 0
    error: ErrorInfo | None = None


class Kind(Protocol):
    """What a process of one kind does. Sees no SQL; keeps no state between calls."""

    name: str

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        """Name the pins of this planning attempt. No effect: they are journaled next."""

    def take(self, process: Process, pin: Pin) -> PinChange:
        """Take a journaled pin. Called once for a pin; a crash here leads to its release and to
        another attempt with another name, never to a second take under one name (D5)."""

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        """List the work from what the pins hold. The destination may be created here
        (idempotent). Nothing later asks the source again."""

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        """What to ship for this attempt. Changes nothing; may ask for keys that are lent for a while."""

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        """The receipt of `task.attempt`, if that attempt left one. Read-only."""

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """One attempt: search for our marks first, then check, build, `note`, send once, look
        again. `note` is a fenced write that must succeed right before the send; if it raises, stop.
        `note("")` takes it back where the send was refused for certain and no other is owed."""

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        """Make sure that nothing of this process can be published from now on, or find that it
        was. UnknownOutcomeError or UnavailableError where neither can be had now."""

    def undo(self, process: Process, plan: str, receipts: Sequence[str]) -> str:
        """Delete what the process wrote and nothing refers to, proven by a fresh look; says what
        was left and why ("" when nothing). Idempotent; never called before `fence` answered Fenced
        or the process completed."""

    def release(self, pin: Pin) -> None:
        """Let go of a pin that may or may not have been taken, whose table may be gone.
        Idempotent. Touches only what bears the pin's name."""

    def probe(self, lane: str) -> None:
        """Return if the lane's service answers; raise if not. Cheap."""


@runtime_checkable
class TakesTogether(Protocol):
    """A kind that takes its pins, where they are many, in one go."""

    def take_all(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        """As `take` for each, in their order. A crash here leads to the release of all of them."""


@runtime_checkable
class ReleasesEarly(Protocol):
    """A kind some of whose pins are no longer needed before its process ends (L29)."""

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        """The pin that a task reads, and the numbers of all tasks that read it. Pure."""


@runtime_checkable
class ProbesForAProcess(Protocol):
    """A kind whose lane stands for more than one service, which only a process names."""

    def probe_for(self, lane: str, process: Process) -> None:
        """As `probe`, but of everything in that lane that this process needs: a catalog that answers
        while the storage behind it is dead must not close the breaker."""


class Runner(Protocol):
    """Runs task attempts. Thread-safe. Never retries by itself."""

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        """Run a wave as one cancellable group; blocks. `on_result` is called as each attempt ends,
        from any thread, possibly twice for one attempt. Returning without a result for an order
        means the attempt was lost: its receipt may exist all the same."""

    def cancel(self, group: str) -> None:
        """Stop a group within seconds, native code included. Unknown groups are fine."""

    def close(self) -> None: ...
