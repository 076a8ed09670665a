"""Running tasks in waves, recording how attempts ended, recovering those that were lost.

Invariant: one change starts a wave and one records all that ended since; a completion belongs to
its own attempt, and a lost attempt is looked for before it is repeated (L25).

Pins that the tasks which just ended were the last to need: released while other tasks go on (L29).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from calve.control.budget import budget_used, is_unavailable, judge
from calve.control.inflight import Attempt, Wave, started
from calve.control.kind import Kind
from calve.control.ports import TaskOrder, TaskResult
from calve.control.steps.context import Context
from calve.model.change import Change, ClearWait, MoveTo, NewEvent, PinChange, TaskChange
from calve.model.errors import CalveError, ConflictError, ErrorInfo, FenceLostError, StoreError
from calve.model.process import Lease, Process, Task
from calve.model.states import PinState, ProcessState, TaskState

# Tasks start in order, so those that wait lie behind those that run, but for the few that back off.
# Of pins whose tasks lie beyond so many waiting ones it is not known; they are released later.
_LOOKED_AT = 100

_log = logging.getLogger("calve.control")


def spent_pins(context: Context, process: Process, changes: Sequence[TaskChange]) -> tuple[PinChange, ...]:
    """Costs two reads of few rows, and only for a kind that has such pins. A kind that this worker does not
    know has none here: its pins go when the process ends."""
    done = {change.number for change in changes if change.after is TaskState.DONE}
    kind = context.kinds.get(process.kind)
    if not done or kind is None:
        return ()
    plan = context.plans.require(process.id)
    spans = [found for number in done if (found := kind.pin_tasks(process, plan, number)) is not None]
    if not spans:
        return ()
    running = context.store.tasks(process.id, frozenset({TaskState.RUNNING}))
    waiting = context.store.tasks(process.id, frozenset({TaskState.PENDING}), limit=_LOOKED_AT)
    live = {task.number for task in (*running, *waiting)} - done
    known_to = waiting[-1].number if len(waiting) == _LOOKED_AT else None
    names = {
        name
        for name, numbers in spans
        if not any(number in numbers for number in live) and (known_to is None or numbers[-1] <= known_to)
    }
    return tuple(PinChange(name=name, after=PinState.RELEASING) for name in sorted(names))


LOST = ErrorInfo(
    code="attempt_lost",
    message="the attempt ended without an answer: its worker or executor stopped",
    retryable=True,
)
NOT_BEGUN = ErrorInfo(
    code="store_failed", message="the store failed when the attempt was to be started", retryable=True
)


def run_tasks(context: Context, lease: Lease, process: Process, ready: Sequence[Task]) -> None:
    """Start one wave: recorded first, then shipped."""
    kind = context.kind(process)
    plan = context.plans.require(process.id)
    tasks = [started(task) for task in ready]
    changes = tuple(
        TaskChange(
            number=task.number, before=TaskState.PENDING, after=TaskState.RUNNING, attempt=task.attempt
        )
        for task in tasks
    )
    try:
        # if we die here, the tasks are RUNNING under a fence that no worker holds: the next worker
        # finds no receipt and makes them PENDING (L37)
        context.store.apply(lease, Change(*changes))
    except (FenceLostError, ConflictError):
        raise
    except StoreError:
        context.in_flight.never_began(lease, tasks, NOT_BEGUN)
        raise
    wave = context.in_flight.begin(lease, tasks, context.monotonic())
    context.spawn(lambda: _run_wave(context, kind, process, plan, wave, tasks))


def _run_wave(
    context: Context, kind: Kind, process: Process, plan: str, wave: Wave, tasks: Sequence[Task]
) -> None:
    lost = LOST

    def on_result(result: TaskResult) -> None:
        context.in_flight.arrive(wave, result, context.monotonic())
        context.wake()

    try:
        orders = _orders(kind, process, plan, tasks, on_result)
        if orders and wave.stop is None:
            context.runner.run(wave.group, orders, on_result)
    except CalveError as error:
        lost = error.info
        if lost.service in context.probes:
            context.breakers.met(process, [lost])
        else:  # the runner's own failure: it is this worker's, not a service's
            lost = replace(lost, service="")
    finally:
        # A supervisor that stops the worker may have stopped the runner's programs as well.
        context.in_flight.end(wave, lost, free=context.draining())
        context.wake()


def _orders(
    kind: Kind,
    process: Process,
    plan: str,
    tasks: Sequence[Task],
    on_result: Callable[[TaskResult], None],
) -> list[TaskOrder]:
    """An order that cannot be made fails its own task, not the wave. A service that is down is asked
    once: asked for every task, one that hangs would hold the slots for as many times its bound."""
    orders: list[TaskOrder] = []
    down: ErrorInfo | None = None
    for task in tasks:
        try:
            if down is None:
                orders.append(kind.order(process, plan, task, task.attempt))
                continue
            error = down
        except CalveError as met:
            error = met.info
            down = error if is_unavailable(error) else None
        on_result(TaskResult(number=task.number, attempt=task.attempt, error=error))
    return orders


def record_results(context: Context, lease: Lease, process: Process) -> Process:
    """All completions that arrived, in one change. They are kept here until the store has them."""
    results = context.in_flight.results(lease)
    if not results:
        return process
    if process.state is not ProcessState.RUNNING:
        context.in_flight.recorded(lease, results)
        return process
    changes = {
        key: judge(task, result, context.limits, context.random) for key, (task, result) in results.items()
    }
    try:
        # if we die here, or the store does, the receipts stand and are found (L25, L34)
        after = context.store.apply(lease, _ended(context, process, changes))
    except ConflictError:
        _forget_refused(context, lease, process, results)
        raise
    context.in_flight.recorded(lease, changes)
    for key, (task, _) in results.items():
        _log_failed(context, process, task, changes[key])
    _tell_breakers(context, process, [result for _, result in results.values()])
    return after


def _log_failed(context: Context, process: Process, task: Task, change: TaskChange) -> None:
    if change.error is None:
        return
    used = (
        "not counted"
        if change.free
        else f"{budget_used(task, change.attempt)} of {context.limits.task_attempts}"
    )
    _log.warning(
        "process %s, task %d: attempt %d failed (%s): %s: %s",
        process.id, task.number, change.attempt, used, change.error.code, change.error.message,
    )  # fmt: skip


def _forget_refused(
    context: Context, lease: Lease, process: Process, results: Mapping[Attempt, object]
) -> None:
    """A completion of an attempt that the store does not have as RUNNING is recorded already (its
    acknowledgement was lost) or belongs to an older attempt (D4). The others are tried again."""
    running = context.store.tasks(process.id, frozenset({TaskState.RUNNING}))
    expected = {(task.number, task.attempt) for task in running}
    context.in_flight.recorded(lease, [key for key in results if key not in expected])


def _tell_breakers(context: Context, process: Process, results: Sequence[TaskResult]) -> None:
    if any(result.error is None for result in results):
        context.breakers.answered(process)
    else:
        context.breakers.met(process, [result.error for result in results if result.error])


def _ended(context: Context, process: Process, changes: Mapping[Attempt, TaskChange]) -> Change:
    events = tuple(
        NewEvent(
            name="task_failed" if change.after is TaskState.FAILED else "task_again",
            message=f"task {change.number}, attempt {change.attempt}: {change.error.message}",
        )
        for change in changes.values()
        if change.error is not None
    )
    pins = spent_pins(context, process, list(changes.values()))
    return Change(*changes.values(), *pins, *events)


def hand_back_tasks(context: Context, lease: Lease) -> None:
    """Attempts that this worker stopped: PENDING again, free of charge. Their receipts are not
    looked for, because the service that would be asked is down; a later attempt writes elsewhere."""
    stopped = {key: lost for key, lost in context.in_flight.lost(lease).items() if lost.stopped}
    changes = {
        (number, attempt): TaskChange(
            number=number,
            before=TaskState.RUNNING,
            after=TaskState.PENDING,
            attempt=attempt,
            error=lost.error,
            free=True,
        )
        for (number, attempt), lost in stopped.items()
    }
    process = context.store.process(lease.process_id)
    _apply_ended(context, lease, process, changes)
    for key, lost in stopped.items():
        _log_failed(context, process, lost.task, changes[key])


def recover_tasks(context: Context, lease: Lease, process: Process) -> None:
    """Tasks that are RUNNING in the store and that this worker does not run."""
    lost = context.in_flight.lost(lease)
    known = context.in_flight.known(lease)
    running = context.store.tasks(process.id, frozenset({TaskState.RUNNING}))
    orphans = [task for task in running if (task.number, task.attempt) not in known]
    try:
        kind = context.kind(process)
        plan = context.plans.require(process.id)
        changes: dict[Attempt, TaskChange] = {}
        for task in orphans:
            key = (task.number, task.attempt)
            reason = lost.get(key)
            found = kind.find_receipt(process, plan, task)  # read-only: dying here changes nothing
            error = reason.error if reason else LOST
            ended = found or TaskResult(number=task.number, attempt=task.attempt, error=error)
            free = reason.free if reason else False
            changes[key] = judge(task, ended, context.limits, context.random, free=free)
    except StoreError:
        raise
    except CalveError as error:
        context.met(lease, process, error.info, tries=1)
        return
    _apply_ended(context, lease, process, changes)
    for task in orphans:
        _log_failed(context, process, task, changes[(task.number, task.attempt)])
    # What was lost here and is no longer RUNNING in the store needs nothing.
    context.in_flight.recorded(lease, [key for key in lost if key not in known])


def _apply_ended(
    context: Context, lease: Lease, process: Process, changes: Mapping[Attempt, TaskChange]
) -> None:
    if changes:
        try:
            # if we die here, they are still RUNNING and are recovered again
            context.store.apply(lease, _ended(context, process, changes))
        except ConflictError:
            _forget_moved(context, lease, changes)
            raise
    context.in_flight.recorded(lease, changes)


def _forget_moved(context: Context, lease: Lease, changes: Mapping[Attempt, TaskChange]) -> None:
    running = context.store.tasks(lease.process_id, frozenset({TaskState.RUNNING}))
    expected = {(task.number, task.attempt) for task in running}
    context.in_flight.recorded(lease, [key for key in changes if key not in expected])


def start_publishing(context: Context, lease: Lease, process: Process) -> None:
    tasks = f"{process.tasks.total} task{'s' * (process.tasks.total != 1)}"
    event = NewEvent(name="publishing", message=f"{tasks} done, {process.rows} rows")
    change = Change(MoveTo(ProcessState.PUBLISHING), ClearWait(), event, expect_version=process.version)
    # if we die here, or the store loses it, all tasks are still done and the next tick does it (L33)
    context.store.apply(lease, change)
