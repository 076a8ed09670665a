"""Performing a step that was decided. Exhaustive: a step without a performer does not type-check."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from calve.control.step import (
    End,
    Fence,
    HandBackTasks,
    Plan,
    Publish,
    RecoverTasks,
    ReleaseStalePins,
    Resolve,
    RunTasks,
    StartPublishing,
    Step,
    StopTasks,
    Undo,
)
from calve.control.steps import plan, publish, tasks
from calve.control.steps.context import Context
from calve.control.steps.publish import apply_end, stop_waves, undo
from calve.model.errors import ErrorInfo
from calve.model.process import Lease, Process, Task


def performer(
    context: Context, lease: Lease, process: Process, step: Step, ready: Sequence[Task]
) -> Callable[[], None]:
    """What to call to perform the step."""
    match step:
        case ReleaseStalePins():
            return partial(plan.release_stale_pins, context, lease, process, step)
        case Plan():
            return partial(plan.plan, context, lease, process)
        case RunTasks():
            return partial(tasks.run_tasks, context, lease, process, ready[: step.count])
        case StopTasks():
            return partial(stop_waves, context, lease, stopped(step))
        case HandBackTasks():
            return partial(tasks.hand_back_tasks, context, lease)
        case RecoverTasks():
            return partial(tasks.recover_tasks, context, lease, process)
        case StartPublishing():
            return partial(tasks.start_publishing, context, lease, process)
        case Publish():
            return partial(publish.publish, context, lease, process)
        case Fence():
            return partial(publish.fence, context, lease, process, step)
        case End():
            return partial(apply_end, context, lease, process, step)
        case Resolve():
            return partial(publish.resolve, context, lease, process)
        case Undo():
            return partial(undo, context, lease, process)
        case unreachable:
            assert_never(unreachable)


def stopped(step: StopTasks) -> ErrorInfo:
    return ErrorInfo(code=step.code, message=step.reason, retryable=True)
