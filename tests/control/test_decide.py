"""`decide` over all combinations of facts: never stuck without a reason, never out of a terminal state."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from calve.control.decide import decide
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
from calve.model.access import Halt
from calve.model.errors import ErrorInfo, Outcome
from calve.model.limits import Limits
from calve.model.process import Breaker, Process, ProcessId, TaskCounts
from calve.model.states import (
    PROCESS_LIVE,
    PROCESS_TERMINAL,
    PROCESS_TRANSITIONS,
    Leftovers,
    ProcessState,
    may_move,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE, LATER = NOW - timedelta(seconds=1), NOW + timedelta(seconds=60)
LIMITS = Limits()
TEMPORARY = ErrorInfo(code="flaky", message="flaky", retryable=True)
PERMANENT = ErrorInfo(code="denied", message="denied")
UNKNOWN = ErrorInfo(code="no_answer", message="no answer", retryable=True, outcome=Outcome.UNKNOWN)
LANE = Breaker(service="lake", reason="down", opened_at=BEFORE, probe_at=LATER)
HALT = Halt(kind="fake", source="", who="anne")
SOURCE = Breaker(service="source:main", reason="down", opened_at=BEFORE, probe_at=LATER)


def process(**fields: Any) -> Process:
    known: dict[str, Any] = {
        "id": ProcessId("p"), "kind": "fake", "state": ProcessState.PENDING, "version": 1, "source": "main:db.t",
        "destination": "lake.ns.t", "lane": "lake", "needs": ("source:main", "catalog:lake"), "request": "{}",
        "partitions": (), "batch": None, "priority": 0, "retry_of": None, "adopted": False,
        "created_at": BEFORE, "deadline_at": LATER,
    }  # fmt: skip
    return Process(**known | fields)


def combine(**choices: list[Any]) -> Iterator[dict[str, Any]]:
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


ENDING: dict[str, list[Any]] = {
    "cancel_requested": [False, True],
    "deadline_at": [BEFORE, LATER],
    "error": [None, TEMPORARY, PERMANENT, UNKNOWN],
    "not_before": [None, LATER],
}
AROUND: dict[str, list[Any]] = {
    "held": [(None, None), (LANE, None), (SOURCE, None), (None, HALT)],
    "drain": [(False, False), (True, False), (True, True)],
}


def facts_of(row: Process, around: dict[str, Any], **more: Any) -> Facts:
    draining, drain_over = around["drain"]
    down, halt = around["held"]
    halted = halt if halt is not None and halt.holds(row) else None  # as `gather` does
    return Facts(
        process=row, now=NOW, limits=LIMITS, down=down, halted=halted, draining=draining, drain_over=drain_over,
        **more,
    )  # fmt: skip


def pending_facts() -> Iterator[Facts]:
    for fields in combine(**ENDING, plan_attempts=[0, 1, LIMITS.plan_attempts]):
        for around in combine(**AROUND, busy=["", "Plan"], stale_pins=[(), ("pin",)]):
            more = {"busy": around["busy"], "stale_pins": around["stale_pins"]}
            yield facts_of(process(**fields), around, **more)


def running_facts() -> Iterator[Facts]:
    counts = [
        TaskCounts(total=4, done=done, failed=failed, running=running)
        for done, failed, running in ((0, 0, 0), (1, 0, 2), (1, 1, 0), (0, 1, 2), (4, 0, 0))
    ] + [TaskCounts()]
    for fields in combine(**ENDING | {"error": [None, TEMPORARY, PERMANENT]}, tasks=counts):
        row = process(state=ProcessState.RUNNING, planned=True, **fields)
        for around in combine(
            **AROUND,
            busy=["", "RecoverTasks"],
            flight=[(0, False), (2, False), (2, True)],
            gone=[(0, 0), (1, 0), (0, 1), (1, 1)],
            ready=[(0, 0, None), (0, 0, LATER), (1, 0, None), (2, 1, None)],
        ):
            ready, slots, next_task_at = around["ready"]
            in_flight, stopping = around["flight"]
            stopped, lost = around["gone"]
            yield facts_of(
                row, around, busy=around["busy"], in_flight=in_flight, stopping=stopping, stopped=stopped,
                lost=lost, ready=ready, slots=slots, next_task_at=next_task_at,
            )  # fmt: skip


def publishing_facts() -> Iterator[Facts]:
    budgets = {
        "publish_attempts": [0, 1, LIMITS.publish_attempts],
        "fence_attempts": [0, 1, LIMITS.fence_attempts],
        "publish_sent": [False, True],
    }
    for fields in combine(**ENDING, **budgets):
        row = process(
            state=ProcessState.PUBLISHING, planned=True, tasks=TaskCounts(total=2, done=2), **fields
        )
        for around in combine(**AROUND, busy=["", "Publish", "Fence"]):
            yield facts_of(row, around, busy=around["busy"])


def ended_facts() -> Iterator[Facts]:
    for fields in combine(
        error=ENDING["error"],
        cancel_requested=[False, True],
        state=sorted(PROCESS_TERMINAL),
        leftovers=list(Leftovers),
        cleanup_at=[None, BEFORE, LATER],
        finished_at=[NOW],
    ):
        for around in combine(**AROUND, busy=["", "Undo"]):
            yield facts_of(process(planned=True, **fields), around, busy=around["busy"])


ALL = {
    ProcessState.PENDING: pending_facts,
    ProcessState.RUNNING: running_facts,
    ProcessState.PUBLISHING: publishing_facts,
}


def target(step: Step | Wait) -> frozenset[ProcessState]:
    """The states that a step can lead to."""
    match step:
        case End():
            return frozenset({step.state})
        case Fence():
            return frozenset({step.then.state, ProcessState.COMPLETED})
        case Plan():
            return frozenset({ProcessState.RUNNING, ProcessState.COMPLETED})
        case StartPublishing():
            return frozenset({ProcessState.PUBLISHING})
        case Publish():
            return frozenset({ProcessState.COMPLETED})
        case _:
            return frozenset()


def test_every_live_state_is_covered() -> None:
    assert frozenset(ALL) == PROCESS_LIVE


@pytest.mark.parametrize("state", sorted(ALL))
def test_a_step_exists_or_something_named_is_waited_for(state: ProcessState) -> None:
    for facts in ALL[state]():
        step = decide(facts)
        if isinstance(step, Wait):
            assert step.reason
            # Nothing waits for ever: somebody here works, or it is looked at again by someone.
            known = (
                facts.busy or facts.in_flight or facts.draining or facts.down or facts.halted or step.until
            )
            slots = facts.process.tasks.running or facts.ready or _pending_tasks(facts)
            assert known or slots, (facts, step)
        for after in target(step):
            assert may_move(PROCESS_TRANSITIONS, state, after), (facts, step)


def _pending_tasks(facts: Facts) -> int:
    tasks = facts.process.tasks
    return tasks.total - tasks.done - tasks.failed - tasks.running


def test_no_step_leaves_a_terminal_state() -> None:
    for facts in ended_facts():
        step = decide(facts)
        assert isinstance(step, Wait | Undo | Resolve)
        assert not target(step)


def test_an_ended_process_is_undone_only_when_due_and_its_outcome_known() -> None:
    for facts in ended_facts():
        row, step = facts.process, decide(facts)
        due = row.cleanup_at is not None and row.cleanup_at <= facts.now
        unknown = row.error is not None and row.error.outcome is Outcome.UNKNOWN
        if isinstance(step, Undo):
            assert due and not unknown and row.leftovers in (Leftovers.KEPT, Leftovers.UNDOING)
        if isinstance(step, Resolve):
            assert due and unknown
        if due and unknown and not facts.busy and not facts.draining:
            assert isinstance(step, Resolve)


def test_what_may_have_been_sent_ends_only_through_the_fence() -> None:
    for facts in publishing_facts():
        row, step = facts.process, decide(facts)
        if isinstance(step, End) and row.publish_sent:
            assert row.fence_attempts >= LIMITS.fence_attempts
            assert step.state is ProcessState.FAILED
            assert step.error is not None and step.error.outcome is Outcome.UNKNOWN
        if isinstance(step, End) and not row.publish_sent:
            assert step.error is None or step.error.outcome is Outcome.NOT_APPLIED or step.error is row.error


@pytest.mark.parametrize("state", sorted(ALL))
def test_a_cancel_is_acted_on_whatever_else_is_true(state: ProcessState) -> None:
    for facts in ALL[state]():
        row, step = facts.process, decide(facts)
        if not row.cancel_requested:
            continue
        if not row.publish_sent:
            assert isinstance(step, End) and step.state is ProcessState.CANCELLED, (facts, step)
        else:
            ends = isinstance(step, Fence | End)
            fencing = facts.busy == "Fence" or row.not_before == LATER
            assert ends or fencing, (facts, step)


@pytest.mark.parametrize("state", sorted(ALL))
def test_a_passed_deadline_and_a_permanent_error_end_the_process(state: ProcessState) -> None:
    for facts in ALL[state]():
        row, step = facts.process, decide(facts)
        permanent = row.error is not None and not row.error.retryable
        if row.cancel_requested or row.publish_sent or not (row.deadline_at <= NOW or permanent):
            continue
        assert isinstance(step, End) and step.state is ProcessState.FAILED, (facts, step)


@pytest.mark.parametrize("state", sorted(ALL))
def test_nothing_is_tried_while_the_destination_is_down_or_the_worker_stops(state: ProcessState) -> None:
    trying = Plan | RunTasks | Publish
    for facts in ALL[state]():
        if facts.down is not None or facts.draining:
            assert not isinstance(decide(facts), trying), facts


@pytest.mark.parametrize("state", sorted(ALL))
def test_a_lease_is_never_given_up_while_work_is_under_way(state: ProcessState) -> None:
    for facts in ALL[state]():
        step = decide(facts)
        if isinstance(step, Wait) and step.yields:
            assert not facts.in_flight, (facts, step)


@pytest.mark.parametrize("state", sorted(ALL))
def test_what_is_halted_begins_nothing_and_lets_running_tasks_finish(state: ProcessState) -> None:
    met = 0
    for facts in ALL[state]():
        if facts.halted is None:
            continue
        met += 1
        step = decide(facts)
        assert not isinstance(step, Plan | RunTasks | StartPublishing), (facts, step)
        if isinstance(step, StopTasks):
            assert facts.down or facts.drain_over, (facts, step)
        if isinstance(step, Wait) and not (facts.busy or facts.in_flight or facts.down or facts.lost):
            assert (step.yields and "stopped" in step.reason) or facts.draining, (facts, step)
    assert bool(met) == (state is not ProcessState.PUBLISHING), "a publish that has begun goes on"


def test_a_lane_that_is_down_yields_its_leases() -> None:
    for state in (ProcessState.PENDING, ProcessState.PUBLISHING):
        step = decide(Facts(process=process(state=state, planned=True), now=NOW, limits=LIMITS, down=LANE))
        assert isinstance(step, Wait) and step.yields


def test_tasks_of_a_lane_that_goes_down_are_stopped_and_handed_back() -> None:
    row = process(state=ProcessState.RUNNING, planned=True, tasks=TaskCounts(total=4, running=2))
    running = Facts(process=row, now=NOW, limits=LIMITS, down=LANE, in_flight=2)
    assert isinstance(decide(running), StopTasks)
    ended = Facts(process=row, now=NOW, limits=LIMITS, down=LANE, stopped=2)
    assert isinstance(decide(ended), HandBackTasks)


def test_stale_pins_are_released_before_another_attempt_is_made() -> None:
    stale = Facts(process=process(plan_attempts=1), now=NOW, limits=LIMITS, stale_pins=("a", "b"))
    assert decide(stale) == ReleaseStalePins(names=("a", "b"))


def test_lost_attempts_are_recovered_before_anything_is_started() -> None:
    row = process(state=ProcessState.RUNNING, planned=True, tasks=TaskCounts(total=4, running=1))
    assert isinstance(
        decide(Facts(process=row, now=NOW, limits=LIMITS, lost=1, ready=3, slots=3)), RecoverTasks
    )
