"""Ending a process, and deleting what an ended one left."""

import logging
from functools import partial

from calve.control.ports import Store
from calve.control.step import End
from calve.control.steps.context import Context
from calve.model.change import (
    Budget,
    Change,
    CleanUpIn,
    CountAttempt,
    Item,
    LeftoversTo,
    MoveTo,
    NewEvent,
    NoCleanUp,
)
from calve.model.errors import CalveError, ErrorInfo, Outcome, StoreError
from calve.model.process import Lease, Process, ProcessQuery
from calve.model.states import Leftovers, ProcessState, TaskState

_log = logging.getLogger("calve.control")

_CLEANUP_MOST_SECONDS = 3600.0
LEFT_IN_PLACE = "left in place: "  # how the event of an undo that could not delete all begins
ENDED = ErrorInfo(code="process_ended", message="its process ended", retryable=True)


def apply_end(context: Context, lease: Lease, process: Process, step: End) -> None:
    """Move to the terminal state in one change, then stop what still runs here."""
    # if we die here, the process is as it was, and its reason to end is still there; pins, tasks,
    # locks and lease go with the state in one transaction
    context.store.apply(lease, _end_change(context, process, step))
    reason = step.error.message if step.error else step.message
    _log.info("process %s is %s: %s", process.id, step.state, reason)
    stop_waves(context, lease, ENDED)


def stop_waves(context: Context, lease: Lease, error: ErrorInfo, *, look: bool = False) -> None:
    groups = context.in_flight.stop(context.in_flight.waves(lease), error, free=True, look=look)
    for group in groups:
        # if we die here, the group dies with us
        context.spawn(partial(context.runner.cancel, group))


def _end_change(context: Context, process: Process, step: End) -> Change:
    limits = context.limits
    items: list[Item] = [
        MoveTo(step.state, step.error),
        NewEvent(name=step.state.value.lower(), message=step.error.message if step.error else step.message),
    ]
    if step.error is not None and step.error.outcome is Outcome.UNKNOWN:
        items.append(CleanUpIn(limits.backoff_most_seconds))  # looked for again
    elif process.planned and step.state is not ProcessState.COMPLETED:
        items += [LeftoversTo(Leftovers.KEPT), CleanUpIn(limits.keep_failed_hours * 3600)]
    return Change(*items, expect_version=process.version)


def undo(context: Context, lease: Lease, process: Process) -> None:
    """Delete what no retry will adopt any more. KEPT -> UNDOING is the compare-and-set that an adopting
    retry would lose or win (D3)."""
    if process.leftovers is Leftovers.KEPT:
        message = "its files are no longer kept for a retry"
        if process.state is ProcessState.COMPLETED:
            message = "files that it did not publish are looked for"
        event = NewEvent(name="undoing", message=message)
        # if we die here, they are UNDOING and the next worker to claim it goes on
        process = context.store.apply(
            lease,
            Change(LeftoversTo(Leftovers.UNDOING), event, expect_version=process.version),
        )
    try:
        done = context.store.tasks(process.id, frozenset({TaskState.DONE}))
        receipts, used = [task.receipt for task in done], used_by_retries(context.store, process)
        plan = context.plans.require(process.id)
        # if we die here, some files are gone; undoing again deletes the rest
        left = context.kind(process).undo(process, plan, receipts, used)
    except StoreError:
        raise
    except CalveError as error:
        clean_up_again(context, lease, process, "undo_failed", error)
        return
    message = f"{LEFT_IN_PLACE}{left}" if left else "nothing of it is left to delete"
    event = NewEvent(name="undone", message=message)
    change = Change(LeftoversTo(Leftovers.GONE), NoCleanUp(), event, expect_version=process.version)
    # if we die here, it is undone again, and finds nothing left to delete
    context.store.apply(lease, change)


def used_by_retries(store: Store, process: Process) -> list[str]:
    """Receipts of retries that were published, or may have been: they may name files of this process.
    The store knows them, whatever a catalog that lags behind shows (T2)."""
    found: list[str] = []
    for retry in store.processes(ProcessQuery(retry_of=process.id)):
        if _may_have_published(retry):
            found += [task.receipt for task in store.tasks(retry.id, frozenset({TaskState.DONE}))]
        found += used_by_retries(store, retry)  # which may have adopted what that one adopted
    return found


def _may_have_published(process: Process) -> bool:
    match process.state:
        case ProcessState.FAILED | ProcessState.CANCELLED:
            return process.error is not None and process.error.outcome is not Outcome.NOT_APPLIED
        case ProcessState.COMPLETED:
            return process.publish_sent or process.files > 0  # otherwise it found the work done by others
        case _:
            return True


def clean_up_again(context: Context, lease: Lease, process: Process, event: str, error: CalveError) -> None:
    """Retry with exponential back-off."""
    again = min(_CLEANUP_MOST_SECONDS, 60.0 * 2.0 ** min(process.cleanup_attempts, 10))
    said = NewEvent(name=event, message=f"{error.code}: {error.message}")
    context.store.apply(lease, Change(CountAttempt(Budget.CLEANUP), CleanUpIn(again), said))
