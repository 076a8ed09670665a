"""The state machines: one transition table each; every other set of states is derived.

Terminal states are final: no table has a row that leaves them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class ProcessState(StrEnum):
    """Where one durable piece of work stands."""

    PENDING = "PENDING"  # accepted; nothing pinned or planned for good yet
    RUNNING = "RUNNING"  # planned; its tasks are being run
    PUBLISHING = "PUBLISHING"  # all tasks done; a commit may have been sent
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TaskState(StrEnum):
    """Where one slice of a process stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"  # a receipt exists and is recorded
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"  # its process ended first


class PinState(StrEnum):
    """Where a hold on source data stands. It is journaled before it is taken."""

    JOURNALED = "JOURNALED"  # may or may not exist at the source
    TAKEN = "TAKEN"
    RELEASING = "RELEASING"  # no longer needed; the drain releases it
    RELEASED = "RELEASED"


class Leftovers(StrEnum):
    """What becomes of the files of a process that did not complete.

    Adopting them (a retry) and deleting them (undo) are two transitions out of KEPT, so
    one compare-and-set picks the winner.
    """

    NONE = "NONE"  # nothing was written, or all of it is published
    KEPT = "KEPT"  # kept until `cleanup_at`, then undone
    ADOPTED = "ADOPTED"  # a retry relies on them; not to be undone
    UNDOING = "UNDOING"  # being deleted; can no longer be adopted
    GONE = "GONE"


class ReleaseState(StrEnum):
    """Where the rows of a partition are that leaves its table."""

    MARKED = "MARKED"  # the destination refuses to replace them; nothing has left
    MOVING = "MOVING"  # a move was announced
    MOVED = "MOVED"  # out of the table, and not proven since
    QUARANTINED = "QUARANTINED"  # proven equal to what the destination has
    DROPPING = "DROPPING"
    DROPPED = "DROPPED"
    RETURNING = "RETURNING"
    RETURNED = "RETURNED"
    LOST = "LOST"  # neither in the table nor in quarantine


S = TypeVar("S", bound=StrEnum)
Transitions = Mapping[S, frozenset[S]]

_P, _T, _N, _L, _R = ProcessState, TaskState, PinState, Leftovers, ReleaseState

PROCESS_TRANSITIONS: Transitions[ProcessState] = {
    _P.PENDING: frozenset({_P.RUNNING, _P.COMPLETED, _P.FAILED, _P.CANCELLED}),
    _P.RUNNING: frozenset({_P.PUBLISHING, _P.FAILED, _P.CANCELLED}),
    _P.PUBLISHING: frozenset({_P.COMPLETED, _P.FAILED, _P.CANCELLED}),
    _P.COMPLETED: frozenset(),
    _P.FAILED: frozenset(),
    _P.CANCELLED: frozenset(),
}

TASK_TRANSITIONS: Transitions[TaskState] = {
    _T.PENDING: frozenset({_T.RUNNING, _T.FAILED, _T.CANCELLED}),
    _T.RUNNING: frozenset({_T.DONE, _T.PENDING, _T.FAILED, _T.CANCELLED}),
    _T.DONE: frozenset(),
    _T.FAILED: frozenset(),
    _T.CANCELLED: frozenset(),
}

PIN_TRANSITIONS: Transitions[PinState] = {
    _N.JOURNALED: frozenset({_N.TAKEN, _N.RELEASING}),
    _N.TAKEN: frozenset({_N.RELEASING}),
    _N.RELEASING: frozenset({_N.RELEASED}),
    _N.RELEASED: frozenset(),
}

LEFTOVERS_TRANSITIONS: Transitions[Leftovers] = {
    _L.NONE: frozenset({_L.KEPT}),
    _L.KEPT: frozenset({_L.ADOPTED, _L.UNDOING}),
    _L.ADOPTED: frozenset({_L.KEPT}),
    _L.UNDOING: frozenset({_L.GONE}),
    _L.GONE: frozenset(),
}

RELEASE_TRANSITIONS: Transitions[ReleaseState] = {
    _R.MARKED: frozenset({_R.MOVING, _R.RETURNING}),
    _R.MOVING: frozenset({_R.MOVED, _R.RETURNING, _R.LOST}),
    _R.MOVED: frozenset({_R.QUARANTINED, _R.RETURNING, _R.LOST}),
    _R.QUARANTINED: frozenset({_R.DROPPING, _R.RETURNING, _R.LOST}),
    _R.DROPPING: frozenset({_R.DROPPED, _R.QUARANTINED, _R.LOST}),
    _R.DROPPED: frozenset({_R.RETURNING}),  # out of the destination
    # RETURNING again: the move back is announced. QUARANTINED: nothing has moved
    _R.RETURNING: frozenset({_R.RETURNING, _R.RETURNED, _R.QUARANTINED, _R.LOST}),
    _R.RETURNED: frozenset(),
    _R.LOST: frozenset({_R.RETURNING}),
}


def terminal(transitions: Transitions[S]) -> frozenset[S]:
    """The states nothing leaves."""
    return frozenset(state for state, following in transitions.items() if not following)


def may_move(transitions: Transitions[S], before: S, after: S) -> bool:
    """Whether the table has that transition."""
    return after in transitions[before]


PROCESS_TERMINAL = terminal(PROCESS_TRANSITIONS)
PROCESS_LIVE = frozenset(ProcessState) - PROCESS_TERMINAL
TASK_TERMINAL = terminal(TASK_TRANSITIONS)
TASK_LIVE = frozenset(TaskState) - TASK_TERMINAL
PIN_HELD = frozenset(PinState) - terminal(PIN_TRANSITIONS)
