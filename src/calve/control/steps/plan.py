"""Planning: journal the pins, take them, list the work from what they hold, write the plan once.

Invariant: a pin is in the journal before it exists, and a pin that no plan uses is released.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from calve.control.budget import is_unavailable
from calve.control.kind import AdoptedWork, Kind, NothingToDo, Planned
from calve.control.step import ReleaseStalePins
from calve.control.steps.context import Context
from calve.model.change import (
    NOTHING_TO_DO,
    Budget,
    Change,
    ClearWait,
    CountAttempt,
    MoveTo,
    NewEvent,
    PinChange,
    RefundAttempt,
    WritePlan,
)
from calve.model.errors import CalveError, ConflictError, FenceLostError, StoreError
from calve.model.process import Lease, Pin, Process
from calve.model.states import PinState, ProcessState, TaskState

_log = logging.getLogger("calve.control")


def release_stale_pins(context: Context, lease: Lease, process: Process, step: ReleaseStalePins) -> None:
    """Guarded by the version that was read: planning may have ended, with a plan that uses these
    very pins, between the look at the row and the look at what is under way."""
    changes = tuple(PinChange(name=name, after=PinState.RELEASING) for name in step.names)
    event = NewEvent(
        name="pins_given_up", message=f"of an attempt that left no plan: {', '.join(step.names)}"
    )
    # if we die here, the pins are as they were and the next tick finds them again
    context.store.apply(lease, Change(*changes, event, expect_version=process.version))


def plan(context: Context, lease: Lease, process: Process) -> None:
    journaled = _journal(context, lease, process)
    pins = list(journaled)
    try:
        _plan(context, lease, process, pins)
    except (FenceLostError, ConflictError):
        _let_go(context, process, pins)
        raise


def _plan(context: Context, lease: Lease, process: Process, pins: list[Pin]) -> None:
    """`pins` become those that were taken."""
    journaled = list(pins)
    try:
        kind = context.kind(process)
        # if we die here, pins may exist and are journaled: the next attempt releases them by their names
        # and takes others, never the same name twice (D5)
        changes = kind.take(process, journaled)
        pins[:] = [_taken(pin, change) for pin, change in zip(journaled, changes, strict=True)]
        # if we die here, the destination may have been created; creating it again finds it
        planned = kind.plan(process, pins, _adopted(context, process))
        _record(context, lease, process, pins, planned)
    except StoreError:
        raise  # unknown whether the plan was written: read back at the next tick
    except CalveError as error:
        _record_error(context, lease, process, journaled, error)


def _journal(context: Context, lease: Lease, process: Process) -> list[Pin]:
    """Pins of this attempt, in the store before they exist."""
    kind = context.kinds.get(process.kind)
    # Not the budget's count, which can be refunded: a name must never come again.
    attempt = len(context.store.pins(process.id)) + 1
    new = kind.pins(process, attempt) if kind is not None else ()
    # if we die here, the journal names pins that do not exist; releasing them is harmless
    context.store.apply(lease, Change(CountAttempt(Budget.PLAN), *new, expect_version=process.version))
    names = {pin.name for pin in new}
    return [pin for pin in context.store.pins(process.id) if pin.name in names]


def _taken(pin: Pin, change: PinChange) -> Pin:
    return replace(pin, state=PinState.TAKEN, detail=pin.detail if change.detail is None else change.detail)


def _adopted(context: Context, process: Process) -> AdoptedWork | None:
    """What a retry may rely on: the plan and the receipts of the process whose files it won."""
    if not process.adopted or process.retry_of is None:
        return None
    plan = context.store.plan(process.retry_of)
    if plan is None:
        return None
    done = context.store.tasks(process.retry_of, frozenset({TaskState.DONE}))
    return AdoptedWork(plan=plan, receipts=tuple(task.receipt for task in done))


def _record(
    context: Context, lease: Lease, process: Process, taken: Sequence[Pin], planned: Planned | NothingToDo
) -> None:
    version = process.version + 1  # the journal's write; any other change of the row is a conflict
    spent = planned.spent_pins if isinstance(planned, Planned) else ()
    pins = tuple(
        PinChange(
            name=pin.name,
            after=PinState.RELEASING if pin.name in spent else PinState.TAKEN,
            detail=pin.detail,
        )
        for pin in taken
    )
    match planned:
        case Planned():
            move = MoveTo(ProcessState.RUNNING)
            event = NewEvent(
                name="planned", message=f"{len(planned.tasks)} task{'s' * (len(planned.tasks) != 1)}"
            )
            change = Change(
                move,
                WritePlan(planned.plan),
                *planned.tasks,
                *pins,
                ClearWait(),
                event,
                expect_version=version,
            )
        case NothingToDo():
            move = MoveTo(ProcessState.COMPLETED)
            event = NewEvent(name=NOTHING_TO_DO, message=planned.message)
            change = Change(move, planned.result, *pins, event, expect_version=version)
    context.plans.forget(process.id)
    # if we die here, nothing was recorded: the pins are released and another attempt is made
    context.store.apply(lease, change)
    _log.info("process %s is %s: %s", process.id, move.state, event.message)
    context.breakers.answered(process)


def _record_error(
    context: Context, lease: Lease, process: Process, journaled: Sequence[Pin], error: CalveError
) -> None:
    pins = tuple(PinChange(name=pin.name, after=PinState.RELEASING) for pin in journaled)
    refund = [RefundAttempt(Budget.PLAN)] if is_unavailable(error.info) else []
    context.met(lease, process, error.info, *pins, *refund, tries=process.plan_attempts + 1)


def _let_go(context: Context, process: Process, pins: Sequence[Pin]) -> None:
    """The process is another's or has ended, and its drain may have passed before our pin existed: what we
    took, or may have taken before an error, and no plan will use, we release here."""
    kind: Kind | None = context.kinds.get(process.kind)
    for pin in pins:
        if kind is not None:
            try:
                # if we die here, the journal still has the pin as RELEASING or RELEASED; only a
                # worker that stopped right between its take and this line can leave it behind
                kind.release(pin)
            except CalveError:
                continue  # the drain tries it as well
