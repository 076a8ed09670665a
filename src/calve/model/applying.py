"""What a change does to a process: checked and derived here once, written by each store.

The invariant of this module: a change is refused whole or derived whole. Nothing here
touches anything; a store holds the row still (a lock, an immediate transaction), asks, and
writes the answer in that same transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from calve.model.change import Change, NewEvent, PinChange, TaskChange
from calve.model.errors import Outcome
from calve.model.process import Lease, NewTask, Pin, Process, Task, TaskCounts
from calve.model.refusals import conflict, fence_lost, illegal_change, illegal_transition
from calve.model.states import (
    LEFTOVERS_TRANSITIONS,
    PIN_TRANSITIONS,
    PROCESS_TERMINAL,
    PROCESS_TRANSITIONS,
    TASK_TERMINAL,
    TASK_TRANSITIONS,
    Leftovers,
    PinState,
    ProcessState,
    TaskState,
    may_move,
)

# PUBLISHING and COMPLETED say that every task is done (L24); RUNNING says that there is a plan.
ALL_DONE = frozenset({ProcessState.PUBLISHING, ProcessState.COMPLETED})
PLANNED = frozenset({ProcessState.RUNNING, ProcessState.PUBLISHING})


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Everything that must be written together."""

    process: Process
    events: tuple[NewEvent, ...]
    tasks: tuple[Task, ...]  # rows that changed
    new_tasks: tuple[Task, ...]
    pins: tuple[Pin, ...]
    new_pins: tuple[Pin, ...]
    ends: bool  # also: cancel the tasks that have not ended, set held pins RELEASING
    frees_locks: bool
    hands_back: bool  # a retry no longer relies on the files of `retry_of`: they are KEPT again


def apply_change(
    process: Process,
    lease: Lease,
    change: Change,
    *,
    tasks: Mapping[int, Task],
    pins: Mapping[str, Pin],
    now: datetime,
) -> Applied:
    """Check a change against the row and derive what follows. `tasks` and `pins` hold at least
    those that the change names and the store has."""
    _check_lease(process, lease)
    _check_version(process, change)
    _check_shape(process, change)
    _check_transition(process, change)
    changed_tasks = tuple(_task_after(process, lease, item, tasks, now) for item in change.tasks)
    new_tasks = tuple(_new_task(process, item, now) for item in change.new_tasks)
    after = _process_after(process, change, now)
    _check_agreement(after)
    ends = change.state in PROCESS_TERMINAL
    return Applied(
        process=after,
        events=change.events or _default_events(process, change),
        tasks=changed_tasks,
        new_tasks=new_tasks,
        pins=tuple(_pin_after(process, item, pins) for item in change.pins),
        new_pins=_new_pins(process, change, pins, now),
        ends=ends,
        frees_locks=change.unlock or (ends and not _outcome_unknown(change)),
        hands_back=process.adopted and _needs_adopted_no_longer(after, change),
    )


def _needs_adopted_no_longer(after: Process, change: Change) -> bool:
    """It ended before it relied on anything, its work is published (the rest of the adopted files
    can go), or its own files, the adopted ones among them, were given up."""
    ends = change.state in PROCESS_TERMINAL
    published = change.state is ProcessState.COMPLETED or (
        change.unlock and change.error is not None and change.error.outcome is Outcome.APPLIED
    )
    return (ends and not after.planned) or published or change.leftovers is Leftovers.GONE


def _outcome_unknown(change: Change) -> bool:
    return change.error is not None and change.error.outcome is Outcome.UNKNOWN


def _check_lease(process: Process, lease: Lease) -> None:
    """Expiry is not asked: a lease that ran out and that nobody took is still ours."""
    if process.owner != lease.worker or process.fence != lease.fence:
        raise fence_lost(process, lease)


def _check_version(process: Process, change: Change) -> None:
    if change.expect_version is None:
        if change.state is not None or change.leftovers is not None:
            raise illegal_change(
                process.id, "a change of state or leftovers needs the version it was read at"
            )
    elif change.expect_version != process.version:
        raise conflict(process.id, f"version {process.version}, expected {change.expect_version}")


def _check_shape(process: Process, change: Change) -> None:
    grows = change.plan is not None or change.new_tasks or change.new_pins
    if grows and process.state in PROCESS_TERMINAL:
        raise illegal_transition(
            process.id, f"it is {process.state}, and gets no plan, tasks or pins any more"
        )
    if change.plan is not None and process.planned:
        raise conflict(process.id, "its plan is written already, and a plan is written once")
    if any(item.free and item.before is not TaskState.RUNNING for item in change.tasks):
        raise illegal_change(process.id, "only an attempt that ran can have used no budget")
    if any(item.after is TaskState.DONE and not item.receipt for item in change.tasks):
        raise illegal_change(process.id, "a task is DONE only with its receipt")
    if change.state is ProcessState.FAILED and change.error is None:
        raise illegal_change(process.id, "FAILED needs the error that was the reason")
    if change.unlock and process.state not in PROCESS_TERMINAL and change.state not in PROCESS_TERMINAL:
        raise illegal_change(process.id, "a live process cannot give its locks away")
    for what, names in (
        ("task", [item.number for item in change.tasks]),
        ("new task", [item.number for item in change.new_tasks]),
        ("pin", [item.name for item in change.pins]),
        ("new pin", [item.name for item in change.new_pins]),
    ):
        if len(set(names)) != len(names):
            raise illegal_change(process.id, f"one {what} is named twice in one change")


def _check_transition(process: Process, change: Change) -> None:
    if change.state is not None and not may_move(PROCESS_TRANSITIONS, process.state, change.state):
        raise illegal_transition(process.id, f"no transition from {process.state} to {change.state}")
    if change.leftovers is not None and not may_move(
        LEFTOVERS_TRANSITIONS, process.leftovers, change.leftovers
    ):
        raise illegal_transition(
            process.id, f"no transition of its leftovers from {process.leftovers} to {change.leftovers}"
        )


def _check_agreement(after: Process) -> None:
    counts = after.tasks
    if after.state in ALL_DONE and counts.done != counts.total:
        raise illegal_transition(
            after.id, f"it cannot be {after.state} with {counts.done} of {counts.total} tasks done"
        )
    if after.state in PLANNED and not after.planned:
        raise illegal_transition(after.id, f"it cannot be {after.state} without a plan")


def _default_events(process: Process, change: Change) -> tuple[NewEvent, ...]:
    """A change of state never goes unrecorded."""
    if change.state is None:
        return ()
    return (NewEvent(name=change.state.value.lower(), message=f"{process.state} -> {change.state}"),)


def _task_after(
    process: Process, lease: Lease, change: TaskChange, tasks: Mapping[int, Task], now: datetime
) -> Task:
    if not may_move(TASK_TRANSITIONS, change.before, change.after):
        raise illegal_transition(
            process.id, f"task {change.number}: no transition from {change.before} to {change.after}"
        )
    task = tasks.get(change.number)
    if task is None:
        raise conflict(process.id, f"it has no task {change.number}")
    starts = change.after is TaskState.RUNNING
    expected_attempt = change.attempt - 1 if starts else change.attempt
    if task.state is not change.before or task.attempt != expected_attempt:
        raise conflict(
            process.id,
            f"task {task.number} is {task.state} with attempt {task.attempt},"
            f" expected {change.before} with attempt {expected_attempt}",
        )
    if starts:
        return replace(
            task,
            state=change.after,
            attempt=change.attempt,
            fence=lease.fence,
            started_at=now,
            finished_at=None,
            not_before=None,
        )
    backs_off = change.after is TaskState.PENDING and change.wait_seconds > 0
    return replace(
        task,
        state=change.after,
        free_attempts=task.free_attempts + change.free,
        finished_at=now if change.after in TASK_TERMINAL else None,
        not_before=now + timedelta(seconds=change.wait_seconds) if backs_off else None,
        receipt=change.receipt,
        error=None if change.after is TaskState.DONE else change.error or task.error,
    )


def _new_task(process: Process, new: NewTask, now: datetime) -> Task:
    adopted = bool(new.adopted_receipt)
    return Task(
        process_id=process.id,
        number=new.number,
        state=TaskState.DONE if adopted else TaskState.PENDING,
        attempt=0,
        spec=new.spec,
        finished_at=now if adopted else None,
        receipt=new.adopted_receipt,
    )


def _new_pins(process: Process, change: Change, pins: Mapping[str, Pin], now: datetime) -> tuple[Pin, ...]:
    for new in change.new_pins:
        if new.name in pins:
            raise conflict(process.id, f"there is a pin {new.name!r} already")
    return tuple(
        Pin(name=new.name, process_id=process.id, source=new.source, detail=new.detail, created_at=now)
        for new in change.new_pins
    )


def _pin_after(process: Process, change: PinChange, pins: Mapping[str, Pin]) -> Pin:
    if not any(change.after in following for following in PIN_TRANSITIONS.values()):
        raise illegal_transition(process.id, f"pin {change.name!r}: no transition leads to {change.after}")
    pin = pins.get(change.name)
    if pin is None or pin.process_id != process.id:
        raise conflict(process.id, f"it has no pin {change.name!r}")
    if not may_move(PIN_TRANSITIONS, pin.state, change.after):
        raise conflict(process.id, f"pin {pin.name!r} is {pin.state} and cannot become {change.after}")
    return replace(
        pin,
        state=change.after,
        detail=pin.detail if change.detail is None else change.detail,
        not_before=None,
    )


def releasing(pin: Pin) -> Pin:
    """A held pin whose process ended: due for the drain at once."""
    return replace(pin, state=PinState.RELEASING, not_before=None)


def handed_back(old: Process, change: Change, now: datetime) -> Process:
    """`old` once the retry that had adopted its files needs them no longer."""
    seconds = max(change.cleanup_in_seconds or 0.0, 0.0)
    return replace(
        old,
        version=old.version + 1,
        leftovers=Leftovers.KEPT,
        cleanup_at=now + timedelta(seconds=seconds),
    )


def _counts_after(process: Process, change: Change) -> TaskCounts:
    def moved_to(state: TaskState) -> int:
        return sum(item.after is state for item in change.tasks)

    adopted = sum(bool(item.adopted_receipt) for item in change.new_tasks)
    left_running = sum(item.before is TaskState.RUNNING for item in change.tasks)
    running = process.tasks.running + moved_to(TaskState.RUNNING) - left_running
    return TaskCounts(
        total=process.tasks.total + len(change.new_tasks),
        done=process.tasks.done + moved_to(TaskState.DONE) + adopted,
        failed=process.tasks.failed + moved_to(TaskState.FAILED),
        running=0 if change.state in PROCESS_TERMINAL else running,
    )


def _process_after(process: Process, change: Change, now: datetime) -> Process:
    updates: dict[str, Any] = {
        "version": process.version + 1,
        "tasks": _counts_after(process, change),
        "planned": process.planned or change.plan is not None,
        "plan_attempts": _budget(
            process.plan_attempts, change.count_plan_attempt, change.refund_plan_attempt
        ),
        "publish_attempts": _budget(
            process.publish_attempts, change.count_publish_attempt, change.refund_publish_attempt
        ),
        "fence_attempts": process.fence_attempts + change.count_fence_attempt,
        "cleanup_attempts": process.cleanup_attempts + change.count_cleanup_attempt,
        "error": change.error or process.error,
    }
    updates |= _amounts_after(process, change)
    if change.wait_seconds is not None:
        waits = change.wait_seconds > 0
        updates["not_before"] = now + timedelta(seconds=change.wait_seconds) if waits else None
    if change.publish_sent is not None:
        updates["publish_sent"] = change.publish_sent
    if change.publish_note is not None:
        updates["publish_note"] = change.publish_note
    if change.leftovers is not None:
        updates["leftovers"] = change.leftovers
    if change.cleanup_in_seconds is not None:
        updates["cleanup_at"] = _in(change.cleanup_in_seconds, now)
    if change.state is not None:
        updates["state"] = change.state
    if change.state in PROCESS_TERMINAL:
        # The error of the end, not one met and survived on the way: locks depend on its outcome.
        updates |= {"finished_at": now, "error": change.error, "owner": None, "lease_until": None}
        updates["not_before"] = None
    return replace(process, **updates)


def _in(seconds: float, now: datetime) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds >= 0 else None


def _budget(used: int, counted: bool, refunded: bool) -> int:
    return max(used + counted - refunded, 0)


def _amounts_after(process: Process, change: Change) -> dict[str, Any]:
    """Progress adds up as tasks end; the result, once known, replaces it."""
    result = change.result
    if result is not None:
        return {
            "rows": result.rows,
            "files": result.files,
            "bytes": result.bytes,
            "snapshot_id": result.snapshot_id,
            "result": result.detail,
        }
    done = [item for item in change.tasks if item.after is TaskState.DONE]
    adopted = [item for item in change.new_tasks if item.adopted_receipt]
    return {
        "rows": process.rows + sum(item.rows for item in done) + sum(item.rows for item in adopted),
        "files": process.files + sum(item.files for item in done) + sum(item.files for item in adopted),
        "bytes": process.bytes + sum(item.bytes for item in done) + sum(item.bytes for item in adopted),
    }
