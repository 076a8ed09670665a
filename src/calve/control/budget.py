"""How often and how long: back-off, and what one ended attempt means for its task. Pure.

A permanent error uses the budget at once (P9); a service that is down uses none; everything
else counts, and a task that used its budget fails, and with it its process.
"""

from collections.abc import Callable

from calve.control.ports import TaskResult
from calve.model.change import TaskChange
from calve.model.errors import ErrorInfo, Outcome
from calve.model.limits import Limits
from calve.model.process import Task
from calve.model.states import TaskState

Random = Callable[[], float]  # in [0, 1)


def backoff_seconds(tries: int, limits: Limits, random: Random) -> float:
    """Doubled each time up to a bound, with jitter so that what failed together parts ways."""
    exponent = min(max(tries - 1, 0), 30)
    whole = min(limits.backoff_most_seconds, limits.backoff_first_seconds * 2.0**exponent)
    return whole * (0.5 + random() / 2)


def is_unavailable(error: ErrorInfo) -> bool:
    """A named service could not be reached, and certainly nothing was done."""
    return error.retryable and bool(error.service) and error.outcome is not Outcome.UNKNOWN


def budget_used(task: Task, attempt: int) -> int:
    """Attempts that count, with `attempt` the one that runs or just ended."""
    return attempt - task.free_attempts


def judge(
    task: Task, result: TaskResult, limits: Limits, random: Random, *, free: bool = False
) -> TaskChange:
    """What an ended attempt makes of its task. `free`: it used no budget."""
    error = result.error
    if error is None:
        return TaskChange(
            number=task.number,
            before=TaskState.RUNNING,
            after=TaskState.DONE,
            attempt=result.attempt,
            receipt=result.receipt,
            rows=result.rows,
            files=result.files,
            bytes=result.bytes,
        )
    free = free or is_unavailable(error)
    used = budget_used(task, result.attempt)
    failed = not error.retryable or (not free and used >= limits.task_attempts)
    return TaskChange(
        number=task.number,
        before=TaskState.RUNNING,
        after=TaskState.FAILED if failed else TaskState.PENDING,
        attempt=result.attempt,
        error=error,
        free=free and not failed,
        wait_seconds=0.0 if failed else backoff_seconds(1 if free else used, limits, random),
    )
