"""`decide`, one situation at a time: exactly which step, or what is waited for, until when, and whether the lease goes."""

from dataclasses import replace
from typing import Any

import pytest
from test_decide import BEFORE, HALT, LANE, LATER, LIMITS, NOW, PERMANENT, SOURCE, TEMPORARY, UNKNOWN, process

from calve.control.decide import decide
from calve.control.facts import Facts
from calve.control.step import (
    End,
    Fence,
    HandBackTasks,
    Plan,
    Publish,
    RecoverTasks,
    Resolve,
    RunTasks,
    StartPublishing,
    Step,
    StopTasks,
    Undo,
    Wait,
)
from calve.model.errors import Outcome
from calve.model.process import Process, TaskCounts
from calve.model.states import Leftovers, ProcessState

P = ProcessState
PENDING = process()
PUBLISHING = process(state=P.PUBLISHING, planned=True, tasks=TaskCounts(total=2, done=2))
SENT = replace(PUBLISHING, publish_sent=True)
ENDED = process(state=P.FAILED, finished_at=NOW, error=PERMANENT)


def running(total: int = 4, done: int = 0, failed: int = 0, running: int = 0, **more: Any) -> Process:
    counts = TaskCounts(total=total, done=done, failed=failed, running=running)
    return process(state=P.RUNNING, planned=True, tasks=counts, **more)


def ended(leftovers: Leftovers, **more: Any) -> Process:
    return replace(ENDED, leftovers=leftovers, **more)


def decided(row: Process, **around: Any) -> Step | Wait:
    return decide(Facts(process=row, now=NOW, limits=LIMITS, **around))


BACKS_OFF = "backs off after: flaky"
DOWN = "lake is down: down"
STOPPING = "another worker: this one is stopping"
HALTED = str(HALT)
# process, around it, the words of what is waited for, until when, and whether the lease goes
WAITS: dict[str, tuple[Process, dict[str, Any], str, Any, bool]] = {
    "being planned": (PENDING, {"busy": "Plan"}, "is being planned", None, False),
    "planning backs off": (
        replace(PENDING, not_before=LATER, error=TEMPORARY), {}, BACKS_OFF, LATER, True,
    ),
    "an error that nobody wrote": (
        replace(PENDING, not_before=LATER), {}, "backs off after: an error that was not recorded", LATER, True,
    ),
    "the lane is down": (PENDING, {"down": LANE}, DOWN, LATER, True),
    "the source is down": (PENDING, {"down": SOURCE}, "source:main is down: down", LATER, False),
    "the worker stops": (PENDING, {"draining": True}, STOPPING, None, True),
    "halted": (PENDING, {"halted": HALT}, HALTED, None, True),
    "halted while tasks run": (
        running(running=2), {"halted": HALT, "in_flight": 2}, f"{HALTED}; 2 running tasks finish", None, False,
    ),
    "tasks are being stopped": (
        running(running=2), {"down": LANE, "in_flight": 2, "stopping": True}, f"2 tasks are being stopped: {DOWN}",
        None, False,
    ),
    "tasks finish before the worker stops": (
        running(running=2), {"draining": True, "in_flight": 2}, "2 running tasks finish before the worker stops",
        None, False,
    ),
    "receipts are looked for": (
        running(running=1), {"lost": 1, "busy": "RecoverTasks"}, "looks for receipts of lost attempts", None, False,
    ),
    "others run while some are lost, and the worker stops": (
        running(running=2), {"lost": 1, "draining": True, "in_flight": 1}, "1 running tasks finish first", None, False,
    ),
    "lost, and the source is down": (
        running(running=1), {"lost": 1, "down": SOURCE}, "source:main is down: down", LATER, False,
    ),
    "lost, the lane is down, and the worker stops": (
        running(running=1), {"lost": 1, "down": LANE, "draining": True}, DOWN, LATER, True,
    ),
    "no slot": (running(), {"ready": 2}, "2 tasks wait for a free slot", None, False),
    "no slot, and nobody looked": (running(), {}, "4 tasks wait for a free slot", None, False),
    "no slot for the only one": (running(total=1), {}, "1 tasks wait for a free slot", None, False),
    "no slot, and others run elsewhere": (running(done=1, running=1), {}, "2 tasks wait for a free slot", None, False),
    "all back off": (running(), {"next_task_at": LATER}, "tasks back off after an error", LATER, False),
    "all run": (running(running=4), {"in_flight": 4}, "4 tasks are running", None, False),
    "nobody is known to run them": (running(done=2, running=2), {}, "2 tasks are being looked for", None, False),
    "the process backs off while tasks run": (
        running(running=1, not_before=LATER, error=TEMPORARY), {"in_flight": 1}, BACKS_OFF, LATER, False,
    ),
    "publishing": (PUBLISHING, {"busy": "Publish"}, "is publishing", None, False),
    "the last try": (
        replace(PUBLISHING, publish_attempts=LIMITS.publish_attempts), {"busy": "Publish"},
        "makes its last try at publishing", None, False,
    ),
    "being fenced": (replace(SENT, cancel_requested=True), {"busy": "Fence"}, "is being fenced", None, False),
    "a fence backs off": (
        replace(SENT, cancel_requested=True, fence_attempts=1, not_before=LATER), {}, "backs off before it fences again",
        LATER, False,
    ),
    "being cleaned up": (
        ended(Leftovers.KEPT, cleanup_at=BEFORE), {"busy": "Undo"}, "is being cleaned up", None, False,
    ),
    "due, and the worker stops": (ended(Leftovers.KEPT, cleanup_at=NOW), {"draining": True}, STOPPING, None, True),
    "kept": (ended(Leftovers.KEPT, cleanup_at=LATER), {}, "its files are kept for a retry", LATER, True),
    "adopted": (ended(Leftovers.ADOPTED), {}, "the retry that adopted its files", None, True),
    "nothing left": (ended(Leftovers.GONE), {}, "nothing: it is FAILED", None, True),
    "what attempts left that lost": (
        ended(Leftovers.KEPT, state=P.COMPLETED, error=None, cleanup_at=LATER), {},
        "attempts that lost are given their time; then files that they left are deleted", LATER, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("row", "around", "reason", "until", "yields"), WAITS.values(), ids=WAITS)
def test_what_is_waited_for(
    row: Process, around: dict[str, Any], reason: str, until: Any, yields: bool
) -> None:
    assert decided(row, **around) == Wait(reason=reason, until=until, yields=yields)


STEPS: dict[str, tuple[Process, dict[str, Any], Step]] = {
    "plan": (PENDING, {}, Plan()),
    "plan, once the back-off is over": (replace(PENDING, not_before=NOW), {}, Plan()),
    "hand back": (running(), {"stopped": 1}, HandBackTasks()),
    "stop, the lane is down": (
        running(running=1), {"down": LANE, "in_flight": 1}, StopTasks(code="destination_down", reason=DOWN),
    ),
    "stop, the worker had its time": (
        running(running=1), {"draining": True, "drain_over": True, "in_flight": 1},
        StopTasks(code="worker_stopped", reason="the worker is stopping"),
    ),
    "recover, while others run": (running(running=2), {"lost": 1, "in_flight": 1}, RecoverTasks()),
    "recover, though the worker stops": (running(running=1), {"lost": 1, "draining": True}, RecoverTasks()),
    "run as many as there are slots": (running(), {"ready": 3, "slots": 2}, RunTasks(count=2)),
    "run as many as are ready": (running(), {"ready": 1, "slots": 2}, RunTasks(count=1)),
    "start publishing": (running(done=4), {}, StartPublishing()),
    "publish": (PUBLISHING, {}, Publish()),
    "undo": (ended(Leftovers.UNDOING, cleanup_at=NOW), {}, Undo()),
    "resolve": (ended(Leftovers.NONE, error=UNKNOWN, cleanup_at=NOW), {}, Resolve()),
}  # fmt: skip


@pytest.mark.parametrize(("row", "around", "step"), STEPS.values(), ids=STEPS)
def test_what_is_done(row: Process, around: dict[str, Any], step: Step) -> None:
    assert decided(row, **around) == step


# process, around it, the code that it ends with, and words of the message
ENDS: dict[str, tuple[Process, dict[str, Any], str, str]] = {
    "the deadline, to the instant": (replace(PENDING, deadline_at=NOW), {}, "deadline", "2026-01-01 00:00:00 UTC"),
    "the deadline, after an error": (
        replace(PENDING, deadline_at=BEFORE, error=TEMPORARY), {}, "deadline", "; the last error: flaky",
    ),
    "planning gave up without an error": (
        replace(PENDING, plan_attempts=LIMITS.plan_attempts), {}, "attempts_used", f"tried {LIMITS.plan_attempts} times",
    ),
    "publishing gave up": (
        replace(PUBLISHING, publish_attempts=LIMITS.publish_attempts, error=TEMPORARY), {}, "flaky",
        f"publishing failed {LIMITS.publish_attempts} times, the last time with: flaky",
    ),
    "a task failed": (running(failed=1), {"failed_task": PERMANENT}, "denied", "denied"),
    "a task failed that nobody can find": (running(failed=1), {}, "inconsistent", "no step leads to"),
    "neither found nor fenced": (
        replace(SENT, deadline_at=BEFORE, fence_attempts=LIMITS.fence_attempts, error=TEMPORARY), {}, "outcome_unknown",
        f"in {LIMITS.fence_attempts} tries",
    ),
}  # fmt: skip
RETRYABLE = {"deadline", "attempts_used", "flaky", "outcome_unknown"}


@pytest.mark.parametrize(("row", "around", "code", "words"), ENDS.values(), ids=ENDS)
def test_with_what_error_it_ends(row: Process, around: dict[str, Any], code: str, words: str) -> None:
    step = decided(row, **around)
    assert isinstance(step, End) and step.state is P.FAILED and step.error is not None
    assert (step.error.code, step.error.retryable) == (code, code in RETRYABLE)
    assert words in step.error.message
    assert (step.error.outcome is Outcome.UNKNOWN) == (code == "outcome_unknown")


def test_a_cancel_ends_it_and_of_what_was_sent_only_behind_the_fence() -> None:
    ends = End(state=P.CANCELLED, message="cancelled on request")
    assert decided(replace(PENDING, cancel_requested=True)) == ends
    assert decided(replace(PUBLISHING, cancel_requested=True)) == ends
    assert decided(replace(SENT, cancel_requested=True)) == Fence(then=ends)
    assert decided(replace(SENT, cancel_requested=True, fence_attempts=1, not_before=NOW)) == Fence(then=ends)
