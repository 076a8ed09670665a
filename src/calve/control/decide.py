"""The next step of a process, from facts alone: pure, total, the same at start-up and at every tick.

Invariants, checked over all combinations of facts in `tests/control/test_decide.py`: there is
always a step or a named thing that is waited for; no step leaves a terminal state; once a commit
may have been sent, a process ends only through the fence.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from calve.control.facts import Facts
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
    Wait,
)
from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import Process
from calve.model.states import Leftovers, ProcessState


def decide(facts: Facts) -> Step | Wait:
    """One step, or what is waited for."""
    match facts.process.state:
        case ProcessState.PENDING:
            return _pending(facts)
        case ProcessState.RUNNING:
            return _running(facts)
        case ProcessState.PUBLISHING:
            return _publishing(facts)
        case ProcessState.COMPLETED | ProcessState.FAILED | ProcessState.CANCELLED:
            return _ended(facts)
        case unreachable:
            assert_never(unreachable)


def _pending(facts: Facts) -> Step | Wait:
    process = facts.process
    end = _must_end(facts)
    if end is not None:
        return end
    if facts.busy:
        return Wait(reason="is being planned")
    if facts.stale_pins:
        return ReleaseStalePins(names=facts.stale_pins)
    if process.plan_attempts >= facts.limits.plan_attempts:
        return End(
            state=ProcessState.FAILED, error=_gave_up("planning", process.plan_attempts, process.error)
        )
    return _halted(facts) or _held_back(facts) or Plan()


def _running(facts: Facts) -> Step | Wait:
    process, tasks = facts.process, facts.process.tasks
    end = _must_end(facts)
    if end is not None:
        return end
    if tasks.failed:
        return End(state=ProcessState.FAILED, error=facts.failed_task or _inconsistent(process))
    if facts.stopped:
        return HandBackTasks()
    if facts.down is not None and facts.in_flight:
        return _stop(facts, "destination_down", f"{facts.down.service} is down: {facts.down.reason}")
    if facts.drain_over and facts.in_flight:
        return _stop(facts, "worker_stopped", "the worker is stopping")
    if facts.lost:
        return _recover(facts)
    halted = _halted(facts)
    if halted is not None:
        return halted
    if tasks.done >= tasks.total:
        return StartPublishing()
    if facts.in_flight and (facts.draining or facts.down is not None):
        return Wait(reason=f"{facts.in_flight} running tasks finish before the worker stops")
    held_back = _held_back(facts)
    if held_back is not None:
        return held_back
    if facts.ready and facts.slots:
        return RunTasks(count=min(facts.ready, facts.slots))
    return _wait_for_tasks(facts)


def _recover(facts: Facts) -> Step | Wait:
    if facts.busy:
        return Wait(reason="looks for receipts of lost attempts")
    if facts.in_flight and (facts.down is not None or facts.draining):
        return Wait(reason=f"{facts.in_flight} running tasks finish first")
    held_back = _held_back(facts, also_draining=False)
    # Kept, where it may be: this worker knows why they were lost, and that an outage uses no budget.
    # Whoever took the process next could only call it a try.
    return RecoverTasks() if held_back is None else replace(held_back, yields=facts.draining)


def _stop(facts: Facts, code: str, reason: str) -> Step | Wait:
    if facts.stopping:
        return Wait(reason=f"{facts.in_flight} tasks are being stopped: {reason}")
    return StopTasks(code=code, reason=reason)


def _wait_for_tasks(facts: Facts) -> Step | Wait:
    tasks = facts.process.tasks
    pending = tasks.total - tasks.done - tasks.failed - tasks.running
    if facts.ready:
        return Wait(reason=f"{facts.ready} tasks wait for a free slot")
    if facts.next_task_at is not None:
        return Wait(reason="tasks back off after an error", until=facts.next_task_at)
    if facts.in_flight:
        return Wait(reason=f"{facts.in_flight} tasks are running")
    if pending > 0:
        return Wait(reason=f"{pending} tasks wait for a free slot")
    if tasks.running:
        return Wait(reason=f"{tasks.running} tasks are being looked for")
    return End(state=ProcessState.FAILED, error=_inconsistent(facts.process))


def _publishing(facts: Facts) -> Step | Wait:
    process, limits = facts.process, facts.limits
    end = _must_end(facts)
    if end is None and process.publish_attempts >= limits.publish_attempts:
        if facts.busy:
            return Wait(reason="makes its last try at publishing")
        end = End(
            state=ProcessState.FAILED, error=_gave_up("publishing", process.publish_attempts, process.error)
        )
    if end is not None:
        return _end_publishing(facts, end)
    if facts.busy:
        return Wait(reason="is publishing")
    return _held_back(facts) or Publish()


def _end_publishing(facts: Facts, end: End) -> Step | Wait:
    """A commit that may have been sent is fenced first; one that was not can no longer be: the
    note before the send is a write that a terminal process refuses."""
    process = facts.process
    if not process.publish_sent:
        return end
    if facts.busy == Fence.__name__:
        return Wait(reason="is being fenced")
    if process.fence_attempts >= facts.limits.fence_attempts:
        return End(state=ProcessState.FAILED, error=_unknown(process, end))
    # An open breaker does not hold back a fence: its few tries are what bounds the end.
    if process.fence_attempts and _backing_off(facts):
        return Wait(reason="backs off before it fences again", until=process.not_before)
    return Fence(then=end)


def _ended(facts: Facts) -> Step | Wait:
    process = facts.process
    if facts.busy:
        return Wait(reason="is being cleaned up")
    if process.cleanup_at is not None and process.cleanup_at <= facts.now:
        if facts.draining:
            return Wait(reason="another worker: this one is stopping", yields=True)
        if process.error is not None and process.error.outcome is Outcome.UNKNOWN:
            return Resolve()
        if process.leftovers in (Leftovers.KEPT, Leftovers.UNDOING):
            return Undo()
    match process.leftovers:
        case Leftovers.KEPT | Leftovers.UNDOING:
            reason = "its files are kept for a retry"
            if process.state is ProcessState.COMPLETED:
                reason = "attempts that lost are given their time; then files that they left are deleted"
            return Wait(reason=reason, until=process.cleanup_at, yields=True)
        case Leftovers.ADOPTED:
            return Wait(reason="the retry that adopted its files", yields=True)
        case Leftovers.NONE | Leftovers.GONE:
            return Wait(reason=f"nothing: it is {process.state}", until=process.cleanup_at, yields=True)
        case unreachable:
            assert_never(unreachable)


def _must_end(facts: Facts) -> End | None:
    """What ends a live process in any state: a cancel, its deadline, a permanent error."""
    process = facts.process
    if process.cancel_requested:
        return End(state=ProcessState.CANCELLED, message="cancelled on request")
    if process.deadline_at <= facts.now:
        return End(state=ProcessState.FAILED, error=_deadline(process))
    if process.error is not None and not process.error.retryable:
        return End(state=ProcessState.FAILED, error=process.error)
    return None


def _halted(facts: Facts) -> Wait | None:
    """What is halted is passed over when claiming, so the lease can go once running tasks have finished.
    Nothing is stopped half-way, and a publish that has begun goes on."""
    if facts.halted is None:
        return None
    finishing = f"; {facts.in_flight} running tasks finish" if facts.in_flight else ""
    return Wait(reason=f"{facts.halted}{finishing}", yields=not facts.in_flight)


def _held_back(facts: Facts, *, also_draining: bool = True) -> Wait | None:
    """What keeps a process from trying anything now."""
    down = facts.down
    if facts.draining and also_draining:
        return Wait(reason="another worker: this one is stopping", yields=not facts.in_flight)
    if down is not None:
        # A lane that is down is passed over when claiming, so the lease can go. A source that is
        # down is not: giving up that lease would only take it again at the next tick.
        mine = down.service == facts.process.lane
        return Wait(
            reason=f"{down.service} is down: {down.reason}",
            until=down.probe_at,
            yields=mine and not facts.in_flight,
        )
    if _backing_off(facts):
        return Wait(
            reason=f"backs off after: {_said(facts.process.error)}",
            until=facts.process.not_before,
            yields=not facts.in_flight,
        )
    return None


def _backing_off(facts: Facts) -> bool:
    until: datetime | None = facts.process.not_before
    return until is not None and until > facts.now


def _said(error: ErrorInfo | None) -> str:
    return error.message if error else "an error that was not recorded"


def _gave_up(what: str, attempts: int, cause: ErrorInfo | None) -> ErrorInfo:
    """Attempts that run out are a failure that names its cause (L14, L17)."""
    if cause is None:
        return ErrorInfo(
            code="attempts_used",
            message=f"{what} was tried {attempts} times and never finished",
            hint="see the workers' logs; `calve retry` runs it again",
            retryable=True,
        )
    # The outcome of one try says nothing of the whole: by now it is fenced, or was never sent.
    return replace(
        cause,
        message=f"{what} failed {attempts} times, the last time with: {cause.message}",
        outcome=Outcome.NOT_APPLIED,
    )


def _unknown(process: Process, end: End) -> ErrorInfo:
    why = end.error.message if end.error else "a cancel was requested"
    last = f"; the last error: {process.error.message}" if process.error else ""
    return ErrorInfo(
        code="outcome_unknown",
        message=f"a commit to {process.destination} was sent and could neither be found nor fenced in "
        f"{process.fence_attempts} tries ({why}{last}); nothing was deleted; Calve keeps looking for it",
        hint=f"calve why {process.id}",
        retryable=True,
        outcome=Outcome.UNKNOWN,
    )


def _deadline(process: Process) -> ErrorInfo:
    last = f"; the last error: {process.error.message}" if process.error else ""
    return ErrorInfo(
        code="deadline",
        message=f"not finished by its deadline, {process.deadline_at:%Y-%m-%d %H:%M:%S} UTC{last}",
        hint=f"calve retry {process.id}",
        retryable=True,
    )


def _inconsistent(process: Process) -> ErrorInfo:
    return ErrorInfo(
        code="inconsistent",
        message=f"the tasks of {process.id} are in states that no step leads to: {process.tasks}",
        hint="please report this with the output of `calve show --json`",
    )
