"""A change is data: small named changes that are applied together, in one transaction, or not at all.

The store checks each transition against the tables in `states`, the lease's fence, and, for a change of
state, the version that was read. Delays are given in seconds and turned into times by the store's own
clock. What each of them does to a process is in `apply`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from calve.model.errors import ErrorInfo
from calve.model.process import GuardedTable, NewTask, ProcessId
from calve.model.states import Leftovers, PinState, ProcessState, ReleaseState, TaskState

C = TypeVar("C")


@dataclass(frozen=True)
class MoveTo:
    """Another state; FAILED needs the error. A terminal state also, in the same transaction, cancels the
    tasks that have not ended, sets every held pin RELEASING, frees the locks (unless the error's outcome
    is unknown) and gives up the lease."""

    state: ProcessState
    error: ErrorInfo | None = None


@dataclass(frozen=True)
class Met:
    """An error that the process survived. Kept until the next one replaces it."""

    error: ErrorInfo


@dataclass(frozen=True)
class WritePlan:
    """Once in a process's life."""

    plan: str


class Budget(StrEnum):
    """What is tried a bounded number of times. The value is the field of `Process` that counts it."""

    PLAN = "plan_attempts"
    PUBLISH = "publish_attempts"
    FENCE = "fence_attempts"
    CLEANUP = "cleanup_attempts"


@dataclass(frozen=True)
class CountAttempt:
    """Before it is made: a crash then uses the budget, and the budget ends."""

    budget: Budget


@dataclass(frozen=True)
class RefundAttempt:
    """The counted attempt met a service that is down: it used no budget."""

    budget: Budget


@dataclass(frozen=True)
class WaitFor:
    """Back off."""

    seconds: float


@dataclass(frozen=True)
class ClearWait:
    """No longer back off."""


@dataclass(frozen=True)
class PublishNote:
    """What to look for after a send; noted right before it, so from now on a commit may have been sent.
    Empty: taken back, nothing was sent."""

    text: str


@dataclass(frozen=True)
class LeftoversTo:
    state: Leftovers


@dataclass(frozen=True)
class CleanUpIn:
    """The process, ended, needs a step (undo, resolve) after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class NoCleanUp:
    """It needs no step any more."""


@dataclass(frozen=True)
class Unlock:
    """An unknown outcome was resolved: the locks of an ended process are freed."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a completed process shows."""

    rows: int
    files: int
    bytes: int
    snapshot_id: str | None = None
    detail: str = ""  # JSON of the kind


@dataclass(frozen=True, kw_only=True)
class TaskChange:
    """Accepted only if the task is in `before` with exactly this attempt (or, when it
    starts, with the attempt before it): a completion belongs to its own attempt."""

    number: int
    before: TaskState
    after: TaskState
    attempt: int
    receipt: str = ""
    rows: int = 0
    files: int = 0
    bytes: int = 0
    error: ErrorInfo | None = None
    wait_seconds: float = 0.0
    free: bool = False  # this attempt used no budget (the service was down, we stopped it)
    spent: Mapping[str, float] = field(default_factory=dict)  # seconds by phase, as `TaskResult`


@dataclass(frozen=True, kw_only=True)
class NewPin:
    name: str
    source: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class PinChange:
    name: str
    after: PinState
    detail: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    name: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Permit:
    """What must still allow a step that takes rows away. Of a policy: it is not paused, every running program that has
    policies has this one with this hash, and the hash was approved."""

    what: str  # "release", or "drop" of a plan
    hash: str
    destination: str
    policy: str  # "" where no policy wants it
    live_seconds: float = 60.0  # a program that said nothing for so long does not count


@dataclass(frozen=True, kw_only=True)
class Intend:
    """Announce a step that changes something outside: only then may it be sent. Refused unless the table's guard is at
    `version`, no hold matches and the permit holds. Without a permit it may only bring rows back."""

    table: GuardedTable
    partition: str
    step: str
    version: int  # of the guard, as it was read before the conditions were
    permit: Permit | None
    query_id: str = ""
    detail: str = ""  # JSON: what to look for


@dataclass(frozen=True, kw_only=True)
class Achieved:
    """An announced step was looked at: what became of it."""

    intent: int
    result: str


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    identity: str
    partition: str
    destination: str
    attempt: int  # one more than any before, of the table
    keys: str = ""  # JSON


@dataclass(frozen=True, kw_only=True)
class ReleaseTo:
    """Another state of a release: the process's own, or that of `release`. None leaves a value as it is."""

    state: ReleaseState
    release: ProcessId | None = None
    place: str | None = None
    rows: int | None = None
    sums: str | None = None
    parts: str | None = None
    backup: str | None = None
    error: str | None = None


OfProcess = (
    MoveTo
    | Met
    | WritePlan
    | CountAttempt
    | RefundAttempt
    | WaitFor
    | ClearWait
    | PublishNote
    | LeftoversTo
    | CleanUpIn
    | NoCleanUp
    | Unlock
    | Result
)
OfTier = Intend | Achieved | NewRelease | ReleaseTo
Item = OfProcess | NewTask | TaskChange | NewPin | PinChange | NewEvent | OfTier


@dataclass(frozen=True, init=False)
class Change:
    """What must agree. `expect_version`, the version that was read, is required with MoveTo and
    LeftoversTo. The order of the items says nothing, but for events."""

    items: tuple[Item, ...]
    expect_version: int | None

    def __init__(self, *items: Item, expect_version: int | None = None) -> None:
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "expect_version", expect_version)

    def all(self, kind: type[C]) -> tuple[C, ...]:
        """The items of one type, in order."""
        return tuple(item for item in self.items if isinstance(item, kind))

    def one(self, kind: type[C]) -> C | None:
        """The item of a type that a change has at most one of."""
        return next((item for item in self.items if isinstance(item, kind)), None)

    @property
    def of_process(self) -> tuple[OfProcess, ...]:
        """The items about the process itself."""
        return tuple(item for item in self.items if isinstance(item, OfProcess))

    @property
    def of_tier(self) -> bool:
        """Whether it announces, ends or records something that takes rows out of a table."""
        return any(isinstance(item, OfTier) for item in self.items)

    @property
    def state(self) -> ProcessState | None:
        """The state that the process moves to, if it moves."""
        move = self.one(MoveTo)
        return move.state if move else None


SUBMITTED = "submitted"
COMPLETED = "completed"
NOTHING_TO_DO = "nothing_to_do"  # the other way to complete
FAILED = "failed"
CANCELLED = "cancelled"
RESOLVED = "resolved"  # an unknown outcome became known
CANCEL_REQUESTED = "cancel_requested"
ADOPTED = "leftovers_adopted"
HANDED_BACK = "leftovers_handed_back"
LEASED = "leased"
TAKEN_OVER = "taken_over"
PIN_RELEASED = "pin_released"
PIN_NOT_RELEASED = "pin_not_released"
ANNOUNCED = "announced"  # a step that changes something outside
