"""Publishing, and making sure that nothing is published: the steps around the one atomic commit.

Invariants: an attempt is counted before it is tried; `publish_sent` is durable before anything is
sent; unknown is never failed; a process that may have sent ends only once it is fenced or found.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from calve.control.budget import is_unavailable
from calve.control.kind import Fenced, Published
from calve.control.step import Fence
from calve.control.steps.context import Context
from calve.control.steps.end import apply_end, clean_up_again
from calve.model.change import (
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
from calve.model.errors import CalveError, ConflictError, Outcome, StoreError, TemporaryError
from calve.model.process import Lease, Process, Task
from calve.model.states import Leftovers, ProcessState, TaskState

_log = logging.getLogger("calve.control")


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
            NewEvent(name="completed", message=published.message),
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
                NewEvent(name="resolved", message="nothing was published, and nothing can be"),
                expect_version=process.version,
            )
        case Published():
            return Change(
                Met(replace(process.error, outcome=Outcome.APPLIED)),
                answer.result,
                NoCleanUp(),
                Unlock(),
                NewEvent(name="resolved", message=f"it was published after all: {answer.message}"),
                expect_version=process.version,
            )
