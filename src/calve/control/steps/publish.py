"""Publishing, making sure that nothing is published, and ending: the steps around the one atomic commit.

Invariants: an attempt is counted before it is tried; `publish_sent` is durable before anything is
sent; unknown is never failed; a process that may have sent ends only once it is fenced or found.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from calve.control.budget import is_unavailable
from calve.control.kind import Fenced, Published
from calve.control.ports import Store
from calve.control.step import End, Fence
from calve.control.steps.context import Context
from calve.model.change import (
    COMPLETED,
    RESOLVED,
    Budget,
    Change,
    CleanUpIn,
    ClearWait,
    CountAttempt,
    Item,
    LeftoversTo,
    Met,
    MoveTo,
    NewEvent,
    NoCleanUp,
    PublishNote,
    RefundAttempt,
    Unlock,
    WaitFor,
)
from calve.model.errors import CalveError, ConflictError, ErrorInfo, Outcome, StoreError, TemporaryError
from calve.model.process import Lease, Process, ProcessQuery, Task
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState, TaskState

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
    elif _is_retried(context.store, process):
        # A restore and its retry share what they stage and gather: a sweep would take it from the retry.
        wait = CleanUpIn(context.limits.task_seconds)
        context.store.apply(lease, Change(wait, expect_version=process.version))
        return
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
    if (rest := _attempts_alive(context, process)) > 0:
        # if we die here, it is undone once more than it must be
        context.store.apply(lease, Change(CleanUpIn(rest), expect_version=process.version))
        return
    message = f"{LEFT_IN_PLACE}{left}" if left else "nothing of it is left to delete"
    event = NewEvent(name="undone", message=message)
    change = Change(LeftoversTo(Leftovers.GONE), NoCleanUp(), event, expect_version=process.version)
    # if we die here, it is undone again, and finds nothing left to delete
    context.store.apply(lease, change)


def _is_retried(store: Store, process: Process) -> bool:
    """Whether a retry of it goes on, or has left something that another may adopt."""
    return any(
        retry.state not in PROCESS_TERMINAL
        or retry.leftovers not in (Leftovers.NONE, Leftovers.GONE)
        or _is_retried(store, retry)
        for retry in store.processes(ProcessQuery(retry_of=process.id))
    )


def _attempts_alive(context: Context, process: Process) -> float:
    """For how many seconds an attempt that lost may still write, so that what it leaves is swept then (T13)."""
    assert process.finished_at is not None
    since = (context.store.now() - process.finished_at).total_seconds()
    rest = context.limits.task_seconds - since
    if rest <= 0:
        return 0.0
    lost = any(task.attempt > (task.state is TaskState.DONE) for task in context.store.tasks(process.id))
    return rest if lost else 0.0


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


def publish(context: Context, lease: Lease, process: Process) -> None:
    # if we die here, one attempt more is counted than was made: the budget still ends
    row = context.store.apply(
        lease, Change(CountAttempt(Budget.PUBLISH), ClearWait(), expect_version=process.version)
    )
    try:
        done = context.store.tasks(row.id, frozenset({TaskState.DONE}))
        receipts = _receipts(row, done)
        # if we die here, the commit may have landed: the note says what to look for, and the next
        # attempt searches before it does anything else
        published = context.kind(row).publish(
            row, context.plans.require(row.id), receipts, _note(context, lease)
        )
    except StoreError:
        raise  # the note was refused or its fate is unknown: nothing was sent by this attempt
    except CalveError as error:
        refund = [RefundAttempt(Budget.PUBLISH)] if is_unavailable(error.info) else []
        context.met(lease, row, error.info, *refund, tries=row.publish_attempts)
        return
    complete(context, lease, published)


def _receipts(process: Process, done: Sequence[Task]) -> list[str]:
    receipts = [task.receipt for task in done if task.receipt]
    if len(receipts) != process.tasks.total:
        raise TemporaryError(
            f"process {process.id} has {len(receipts)} receipts for {process.tasks.total} tasks",
            code="receipts_missing",
            hint=f"calve show {process.id}",
        )
    return receipts


def _note(context: Context, lease: Lease) -> Callable[[str], None]:
    def note(text: str) -> None:
        # if we die here, the process counts as sent though nothing was: it will be fenced
        context.store.apply(lease, Change(PublishNote(text)))

    return note


def complete(context: Context, lease: Lease, published: Published) -> None:
    """It is visible, so it is COMPLETED, even if a cancel was requested."""
    for _ in range(3):  # the row may move under us: a cancel that came too late
        process = context.store.process(lease.process_id)
        if process.state is not ProcessState.PUBLISHING:
            return
        items: list[Item] = [
            MoveTo(ProcessState.COMPLETED),
            published.result,
            NewEvent(name=COMPLETED, message=published.message),
        ]
        if process.cancel_requested:
            items.append(NewEvent(name="cancel_too_late", message="it was published before the cancel"))
        cleanup = 0.0 if published.unused else _attempts_end(context, process)
        if cleanup is not None:
            items += [LeftoversTo(Leftovers.KEPT), CleanUpIn(cleanup)]
        change = Change(*items, expect_version=process.version)
        try:
            # if we die here, the next attempt finds the commit and comes to this line again
            context.store.apply(lease, change)
        except ConflictError:
            continue
        _log.info("process %s is COMPLETED: %s", process.id, published.message)
        context.breakers.answered(process)
        return


def _attempts_end(context: Context, process: Process) -> float | None:
    """When no attempt that lost can be alive any more and what they left can be deleted (T13); None
    where none lost. An executor that lost its driver goes on until its attempt's time is over."""
    done = context.store.tasks(process.id, frozenset({TaskState.DONE}))
    return context.limits.task_seconds if any(task.attempt > 1 for task in done) else None


def fence(context: Context, lease: Lease, process: Process, step: Fence) -> None:
    """Fence, then end. The reasons to end (cancel, deadline, budget, a permanent error) are durable
    and never go away, so a worker that takes over decides the same."""
    # if we die here, one attempt more is counted than was made: the budget still ends
    row = context.store.apply(
        lease, Change(CountAttempt(Budget.FENCE), ClearWait(), expect_version=process.version)
    )
    try:
        # if we die here, the fence stands or does not; fencing again finds out
        answer = context.kind(row).fence(row, context.plans.require(row.id))
    except StoreError:
        raise
    except CalveError as error:
        _fence_failed(context, lease, row, error)
        return
    match answer:
        case Published():
            complete(context, lease, answer)
        case Fenced():
            current = context.store.process(row.id)
            if current.state is ProcessState.PUBLISHING:
                apply_end(context, lease, current, step.then)


def _fence_failed(context: Context, lease: Lease, process: Process, error: CalveError) -> None:
    """The reason to end stays: the error goes into an event and `error` stays as it was, so that
    a fence's own permanent failure is not taken for the process's."""
    event = NewEvent(name="fence_failed", message=f"{error.code}: {error.message}")
    wait = context.backoff(process.fence_attempts)
    context.store.apply(lease, Change(event, WaitFor(wait)))


def resolve(context: Context, lease: Lease, process: Process) -> None:
    """An ended process whose outcome is unknown. Its state stays; its outcome becomes known."""
    assert process.error is not None
    try:
        # if we die here, the lock is still held and the next try finds out
        answer = context.kind(process).fence(process, context.plans.require(process.id))
    except StoreError:
        raise
    except CalveError as error:
        clean_up_again(context, lease, process, "still_unknown", error)
        return
    context.store.apply(lease, _resolved(context, process, answer))


def _resolved(context: Context, process: Process, answer: Fenced | Published) -> Change:
    assert process.error is not None
    match answer:
        case Fenced():
            return Change(
                Met(replace(process.error, outcome=Outcome.NOT_APPLIED)),
                LeftoversTo(Leftovers.KEPT),
                CleanUpIn(context.limits.keep_failed_hours * 3600),
                Unlock(),
                NewEvent(name=RESOLVED, message="nothing was published, and nothing can be"),
                expect_version=process.version,
            )
        case Published():
            return Change(
                Met(replace(process.error, outcome=Outcome.APPLIED)),
                answer.result,
                NoCleanUp(),
                Unlock(),
                NewEvent(name=RESOLVED, message=f"it was published after all: {answer.message}"),
                expect_version=process.version,
            )
