"""What a change does to a process: checked and derived here once, written by each store.

The invariant of this module: a change is refused whole or derived whole. Nothing here
touches anything; a store locks the row, asks, and writes the answer in the same transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from calve.model.change import (
    Budget,
    Change,
    CleanUpIn,
    ClearWait,
    CountAttempt,
    LeftoversTo,
    Met,
    MoveTo,
    NewEvent,
    NewPin,
    NoCleanUp,
    OfProcess,
    PinChange,
    PublishNote,
    RefundAttempt,
    Result,
    TaskChange,
    Unlock,
    WaitFor,
    WritePlan,
)
from calve.model.errors import Outcome
from calve.model.process import Lease, NewTask, Pin, Process, Task, TaskCounts
from calve.model.refusals import conflict, fence_lost, illegal_change, illegal_transition
from calve.model.seen import Attempt, Ending
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
    attempts: tuple[Attempt, ...]  # that ended
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
    changed_tasks = tuple(_task_after(process, lease, item, tasks, now) for item in change.all(TaskChange))
    after = _process_after(process, change, now)
    _check_agreement(after)
    ends = change.state in PROCESS_TERMINAL
    unlocks = change.one(Unlock) is not None
    return Applied(
        process=after,
        events=change.all(NewEvent) or _default_events(process, change),
        tasks=changed_tasks,
        attempts=tuple(
            _ended_attempt(lease, item, tasks[item.number], now)
            for item in change.all(TaskChange)
            if item.before is TaskState.RUNNING
        ),
        new_tasks=tuple(_new_task(process, item, now) for item in change.all(NewTask)),
        pins=tuple(_pin_after(process, item, pins) for item in change.all(PinChange)),
        new_pins=_new_pins(process, change, pins, now),
        ends=ends,
        frees_locks=unlocks or (ends and not _ended_as(after, Outcome.UNKNOWN)),
        hands_back=process.adopted and _needs_adopted_no_longer(process, after, unlocks=unlocks),
    )


def _needs_adopted_no_longer(before: Process, after: Process, *, unlocks: bool) -> bool:
    """It ended before it relied on anything, its work is published (the rest of the adopted files
    can go), or its own files, the adopted ones among them, were given up."""
    ends = after.state is not before.state and after.state in PROCESS_TERMINAL
    published = (ends and after.state is ProcessState.COMPLETED) or (
        unlocks and _ended_as(after, Outcome.APPLIED)
    )
    gone = after.leftovers is not before.leftovers and after.leftovers is Leftovers.GONE
    return (ends and not after.planned) or published or gone


def _ended_as(after: Process, outcome: Outcome) -> bool:
    return after.error is not None and after.error.outcome is outcome


def _check_lease(process: Process, lease: Lease) -> None:
    """Expiry does not matter: an expired lease that no other worker took is still ours."""
    if process.owner != lease.worker or process.fence != lease.fence:
        raise fence_lost(process, lease)


def _check_version(process: Process, change: Change) -> None:
    if change.expect_version is None:
        if change.one(MoveTo) or change.one(LeftoversTo):
            raise illegal_change(
                process.id, "a change of state or leftovers needs the version it was read at"
            )
    elif change.expect_version != process.version:
        raise conflict(process.id, f"version {process.version}, expected {change.expect_version}")


def _check_shape(process: Process, change: Change) -> None:
    move, plan, tasks = change.one(MoveTo), change.one(WritePlan), change.all(TaskChange)
    grows = plan or change.one(NewTask) or change.one(NewPin)
    if grows and process.state in PROCESS_TERMINAL:
        raise illegal_transition(process.id, f"it is {process.state}: no plan, tasks or pins can be added")
    if plan and process.planned:
        raise conflict(process.id, "it already has a plan, and a plan is written once")
    if any(item.free and item.before is not TaskState.RUNNING for item in tasks):
        raise illegal_change(process.id, "only an attempt that ran can be free of charge")
    if any(item.after is TaskState.DONE and not item.receipt for item in tasks):
        raise illegal_change(process.id, "a task is DONE only with its receipt")
    if move and move.state is ProcessState.FAILED and move.error is None:
        raise illegal_change(process.id, "FAILED needs the error that was the reason")
    if change.one(Unlock) and process.state not in PROCESS_TERMINAL and change.state not in PROCESS_TERMINAL:
        raise illegal_change(process.id, "a live process cannot free its locks")
    named: tuple[tuple[str, Sequence[object]], ...] = (
        ("part of a process", [_part_of(item) for item in change.of_process]),
        ("task", [item.number for item in tasks]),
        ("new task", [item.number for item in change.all(NewTask)]),
        ("pin", [item.name for item in change.all(PinChange)]),
        ("new pin", [item.name for item in change.all(NewPin)]),
    )
    for what, names in named:
        if len(set(names)) != len(names):
            raise illegal_change(process.id, f"one {what} is named twice in the change")


def _part_of(item: OfProcess) -> str:
    """What a change says of a process at most once."""
    match item:
        case CountAttempt() | RefundAttempt():
            return f"{type(item).__name__} {item.budget}"
        case _:
            return type(item).__name__


def _check_transition(process: Process, change: Change) -> None:
    move, leftovers = change.one(MoveTo), change.one(LeftoversTo)
    if move and not may_move(PROCESS_TRANSITIONS, process.state, move.state):
        raise illegal_transition(process.id, f"no transition from {process.state} to {move.state}")
    if leftovers and not may_move(LEFTOVERS_TRANSITIONS, process.leftovers, leftovers.state):
        raise illegal_transition(
            process.id, f"no transition of its leftovers from {process.leftovers} to {leftovers.state}"
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
    state = change.state
    if state is None:
        return ()
    return (NewEvent(name=state.value.lower(), message=f"{process.state} -> {state}"),)


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


_ENDINGS = {TaskState.DONE: Ending.DONE, TaskState.FAILED: Ending.FAILED, TaskState.CANCELLED: Ending.ENDED}


def _ended_attempt(lease: Lease, change: TaskChange, task: Task, now: datetime) -> Attempt:
    """`task` is as it was while it ran. PostgreSQL's time of a statement is older than a lock's wait, so that
    an end can seem to lie before its start."""
    again = Ending.FREE if change.free else Ending.AGAIN
    started_at = task.started_at or now
    spent = {phase: round(seconds * 1000) for phase, seconds in change.spent.items()}
    return Attempt(
        process_id=task.process_id,
        number=task.number,
        attempt=task.attempt,
        started_at=started_at,
        ended_at=max(now, started_at),
        ending=_ENDINGS.get(change.after, again),
        code=change.error.code if change.error else "",
        worker=lease.worker if task.fence == lease.fence else "",
        rows=change.rows,
        bytes=change.bytes,
        read_ms=spent.get("read"),
        write_ms=spent.get("write"),
        upload_ms=spent.get("upload"),
    )


def _new_task(process: Process, new: NewTask, now: datetime) -> Task:
    adopted = bool(new.adopted_receipt)
    return Task(
        process_id=process.id,
        number=new.number,
        state=TaskState.DONE if adopted else TaskState.PENDING,
        attempt=new.attempts_before,
        free_attempts=new.attempts_before,
        spec=new.spec,
        finished_at=now if adopted else None,
        receipt=new.adopted_receipt,
    )


def _new_pins(process: Process, change: Change, pins: Mapping[str, Pin], now: datetime) -> tuple[Pin, ...]:
    new_pins = change.all(NewPin)
    for new in new_pins:
        if new.name in pins:
            raise conflict(process.id, f"pin {new.name!r} already exists")
    return tuple(
        Pin(name=new.name, process_id=process.id, source=new.source, detail=new.detail, created_at=now)
        for new in new_pins
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
    again = change.one(CleanUpIn)
    return replace(
        old,
        version=old.version + 1,
        leftovers=Leftovers.KEPT,
        cleanup_at=now + timedelta(seconds=again.seconds if again else 0.0),
    )


def handed_back_message(retry: Process, change: Change) -> str:
    """What becomes of `old` by the retry that had adopted its files."""
    if change.one(Result) is not None:
        return f"retry {retry.id} is done; what it published of them stays, the rest is deleted"
    return f"retry {retry.id} ended without publishing them"


def _process_after(process: Process, change: Change, now: datetime) -> Process:
    after = _progressed(process, change)
    # A result replaces what the tasks added up to; a terminal state overrides everything else.
    for item in sorted(change.of_process, key=lambda item: isinstance(item, MoveTo)):
        after = _folded(after, item, now)
    return replace(after, version=process.version + 1)


def _folded(process: Process, item: OfProcess, now: datetime) -> Process:
    match item:
        case MoveTo() if item.state in PROCESS_TERMINAL:
            return replace(
                process,
                state=item.state,
                finished_at=now,
                # The error of the end, not one met and survived on the way: locks depend on its outcome.
                error=item.error,
                owner=None,
                lease_until=None,
                not_before=None,
                tasks=replace(process.tasks, running=0),
            )
        case MoveTo():
            return replace(process, state=item.state, error=item.error or process.error)
        case Met():
            return replace(process, error=item.error)
        case WritePlan():
            return replace(process, planned=True)
        case CountAttempt():
            return _with_attempts(process, item.budget, 1)
        case RefundAttempt():
            return _with_attempts(process, item.budget, -1)
        case WaitFor():
            return replace(process, not_before=now + timedelta(seconds=item.seconds))
        case ClearWait():
            return replace(process, not_before=None)
        case PublishNote():
            return replace(process, publish_note=item.text, publish_sent=bool(item.text))
        case LeftoversTo():
            return replace(process, leftovers=item.state)
        case CleanUpIn():
            return replace(process, cleanup_at=now + timedelta(seconds=item.seconds))
        case NoCleanUp():
            return replace(process, cleanup_at=None)
        case Unlock():
            return process  # of its row nothing changes; the store frees its locks
        case Result():
            return replace(
                process,
                rows=item.rows,
                files=item.files,
                bytes=item.bytes,
                snapshot_id=item.snapshot_id,
                result=item.detail,
            )
        case unreachable:
            assert_never(unreachable)


def _with_attempts(process: Process, budget: Budget, more: int) -> Process:
    used: int = getattr(process, budget.value)
    return replace(process, **{budget.value: max(used + more, 0)})  # type: ignore[arg-type]


def _progressed(process: Process, change: Change) -> Process:
    """Counts and amounts after all task changes, at once: a plan may have very many tasks."""
    tasks, new = change.all(TaskChange), change.all(NewTask)
    done = [item for item in tasks if item.after is TaskState.DONE]
    adopted = [item for item in new if item.adopted_receipt]
    left = sum(item.before is TaskState.RUNNING for item in tasks)
    began = sum(item.after is TaskState.RUNNING for item in tasks)
    counts = TaskCounts(
        total=process.tasks.total + len(new),
        done=process.tasks.done + len(done) + len(adopted),
        failed=process.tasks.failed + sum(item.after is TaskState.FAILED for item in tasks),
        running=process.tasks.running + began - left,
    )
    return replace(
        process,
        tasks=counts,
        rows=process.rows + sum(item.rows for item in done) + sum(item.rows for item in adopted),
        files=process.files + sum(item.files for item in done) + sum(item.files for item in adopted),
        bytes=process.bytes + sum(item.bytes for item in done) + sum(item.bytes for item in adopted),
    )
