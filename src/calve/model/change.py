"""A change is data: everything that must agree, applied in one transaction or not at all.

The store checks each transition against the tables in `states`, the lease's fence, and,
for a change of state, the version that was read. Delays are given in seconds and turned
into times by the store's own clock.
"""

from dataclasses import dataclass

from calve.model.errors import ErrorInfo
from calve.model.process import NewTask
from calve.model.states import Leftovers, PinState, ProcessState, TaskState


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
    free: bool = (
        False  # this attempt used no budget (the service was down, we stopped it): counts in `free_attempts`
    )


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
class Result:
    """What a completed process shows."""

    rows: int
    files: int
    bytes: int
    snapshot_id: str | None = None
    detail: str = ""  # JSON of the kind


@dataclass(frozen=True, kw_only=True)
class Change:
    """None means: leave as it is. A terminal `state` also, in the same transaction,
    cancels the tasks that have not ended, sets every held pin RELEASING, frees the locks
    (unless the error's outcome is unknown) and gives up the lease."""

    events: tuple[NewEvent, ...] = ()
    state: ProcessState | None = None
    expect_version: int | None = None  # required with `state` and `leftovers`
    plan: str | None = None  # written once
    new_tasks: tuple[NewTask, ...] = ()
    tasks: tuple[TaskChange, ...] = ()
    new_pins: tuple[NewPin, ...] = ()
    pins: tuple[PinChange, ...] = ()
    count_plan_attempt: bool = False
    count_publish_attempt: bool = False
    count_fence_attempt: bool = False
    count_cleanup_attempt: bool = False
    refund_plan_attempt: bool = False  # the counted try met a service that is down: it used no budget
    refund_publish_attempt: bool = False
    wait_seconds: float | None = None  # back off: sets not_before; 0 clears it
    publish_sent: bool | None = None
    publish_note: str | None = None
    result: Result | None = None
    error: ErrorInfo | None = None
    leftovers: Leftovers | None = None
    cleanup_in_seconds: float | None = None  # negative clears it
    unlock: bool = False  # an unknown outcome was resolved
