"""The steps a process can take, as data: `decide` chooses one, `steps/` performs it.

A step says what to do next, never what was done: what was done is read from the store again.
"""

from dataclasses import dataclass
from datetime import datetime

from calve.model.errors import ErrorInfo
from calve.model.states import ProcessState


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do now; `reason` names what is waited for."""

    reason: str
    until: datetime | None = None
    yields: bool = False  # the lease is given up: nothing here needs it


@dataclass(frozen=True, kw_only=True)
class ReleaseStalePins:
    """Pins of an earlier planning attempt that left no plan go to the drain."""

    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Journal the pins, take them, list the work, write the plan."""


@dataclass(frozen=True, kw_only=True)
class RunTasks:
    """Start one wave of at most `count` tasks that are ready."""

    count: int


@dataclass(frozen=True, kw_only=True)
class StopTasks:
    """Stop what this worker runs for the process; it will be handed back."""

    code: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class HandBackTasks:
    """Attempts that this worker stopped itself become PENDING again, at no cost to their budget."""


@dataclass(frozen=True, kw_only=True)
class RecoverTasks:
    """Attempts that no worker runs any more: look for their receipts, else make them PENDING."""


@dataclass(frozen=True, kw_only=True)
class StartPublishing:
    """All tasks are done."""


@dataclass(frozen=True, kw_only=True)
class Publish:
    """One attempt at making the process's files visible."""


@dataclass(frozen=True, kw_only=True)
class End:
    """Enter a terminal state."""

    state: ProcessState
    error: ErrorInfo | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Fence:
    """Make sure that no commit of the process can land any more, then end it so."""

    then: End


@dataclass(frozen=True, kw_only=True)
class Resolve:
    """The outcome of an ended process is unknown: try to fence it once more."""


@dataclass(frozen=True, kw_only=True)
class Undo:
    """Delete what an ended process left."""


Step = (
    ReleaseStalePins
    | Plan
    | RunTasks
    | StopTasks
    | HandBackTasks
    | RecoverTasks
    | StartPublishing
    | Publish
    | End
    | Fence
    | Resolve
    | Undo
)

# Steps that ask the outside world and may take long: they run beside the loop, one at a time
# for a process, so that renewals and cancels never wait for them.
SlowStep = Plan | RecoverTasks | Publish | Fence | Resolve | Undo
