"""What one change does to a process, derived by `apply_change` alone: every rule that a store relies on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calve.model.apply import Applied, apply_change, handed_back, handed_back_message
from calve.model.change import (
    Budget,
    Change,
    CleanUpIn,
    Item,
    LeftoversTo,
    MoveTo,
    NewEvent,
    RefundAttempt,
    Result,
    TaskChange,
    Unlock,
    WritePlan,
)
from calve.model.errors import CalveError, ErrorInfo, Outcome
from calve.model.process import Lease, NewTask, Process, ProcessId, Task, TaskCounts, WorkerId
from calve.model.seen import Ending
from calve.model.states import Leftovers, ProcessState, TaskState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = WorkerId("w")
LEASE = Lease(process_id=ProcessId("p"), worker=WORKER, fence=1)
FAILURE = ErrorInfo(code="broken", message="broken")
P, T = ProcessState, TaskState


def process(state: ProcessState = P.RUNNING, **given: Any) -> Process:
    known: dict[str, Any] = {
        "id": ProcessId("p"), "kind": "fake", "state": state, "version": 7, "source": "main:db.t",
        "destination": "lake.ns.t", "lane": "lake", "needs": (), "request": "{}", "partitions": (), "batch": None,
        "priority": 0, "retry_of": None, "adopted": False, "created_at": NOW, "deadline_at": NOW,
        "owner": WORKER, "fence": 1, "planned": state is not P.PENDING,
    }  # fmt: skip
    return Process(**known | given)


def task(state: TaskState = T.RUNNING, **given: Any) -> Task:
    known: dict[str, Any] = {
        "process_id": ProcessId("p"), "number": 0, "state": state, "attempt": 1, "spec": "{}", "fence": 1,
        "started_at": NOW - timedelta(seconds=5),
    }  # fmt: skip
    return Task(**known | given)


def applied(before: Process, *items: Item, tasks: tuple[Task, ...] = ()) -> Applied:
    change = Change(*items, expect_version=before.version)
    return apply_change(before, LEASE, change, tasks={one.number: one for one in tasks}, pins={}, now=NOW)


def refused(before: Process, *items: Item, words: str, tasks: tuple[Task, ...] = ()) -> None:
    with pytest.raises(CalveError, match=words):
        applied(before, *items, tasks=tasks)


def ended(after: TaskState, before: TaskState = T.RUNNING, **given: Any) -> TaskChange:
    return TaskChange(number=0, before=before, after=after, attempt=1, **given)


def test_a_state_that_says_that_all_is_done_is_refused_while_a_task_is_not() -> None:
    refused(
        process(P.PENDING),
        WritePlan("{}"),
        NewTask(number=0, spec="{}"),
        MoveTo(P.COMPLETED),
        words="0 of 1 tasks done",
    )
    refused(process(tasks=TaskCounts(total=1)), MoveTo(P.PUBLISHING), words="0 of 1 tasks done")


def test_a_state_that_says_that_there_is_a_plan_is_refused_without_one() -> None:
    refused(process(P.PENDING), MoveTo(P.RUNNING), words="without a plan")
    refused(process(planned=False), MoveTo(P.PUBLISHING), words="without a plan")


def test_what_no_change_may_say_is_refused() -> None:
    refused(
        process(), ended(T.FAILED, T.PENDING, free=True), words="free of charge", tasks=(task(T.PENDING),)
    )
    refused(process(), Unlock(), words="cannot free its locks")
    refused(process(), ended(T.FAILED), words="no task 0")
    assert applied(process(), MoveTo(P.FAILED, FAILURE), Unlock()).frees_locks


def test_files_that_a_retry_adopted_go_back_once_and_only_when_it_ends_or_gives_them_up() -> None:
    retry = process(P.PENDING, adopted=True)
    assert applied(retry, MoveTo(P.CANCELLED)).hands_back
    assert not applied(retry, WritePlan("{}"), MoveTo(P.RUNNING)).hands_back
    assert not applied(
        process(P.CANCELLED, adopted=True, planned=False), NewEvent(name="seen", message="")
    ).hands_back
    assert not applied(process(P.COMPLETED, adopted=True), NewEvent(name="seen", message="")).hands_back
    assert applied(process(P.PUBLISHING, adopted=True), MoveTo(P.COMPLETED)).hands_back
    assert not applied(process(P.PUBLISHING, adopted=True), MoveTo(P.FAILED, FAILURE)).hands_back
    given_up = process(P.FAILED, adopted=True, leftovers=Leftovers.UNDOING)
    assert applied(given_up, LeftoversTo(Leftovers.GONE)).hands_back


@pytest.mark.parametrize("outcome", Outcome)
def test_an_unknown_outcome_that_is_resolved_hands_files_back_only_if_they_were_published(
    outcome: Outcome,
) -> None:
    found = process(P.FAILED, adopted=True, error=replace(FAILURE, outcome=outcome))
    assert applied(found, Unlock()).hands_back is (outcome is Outcome.APPLIED)


def test_an_attempt_that_is_repeated_at_once_waits_for_nothing() -> None:
    change = ended(T.PENDING)
    assert (change.rows, change.files, change.bytes, change.wait_seconds, change.free) == (
        0,
        0,
        0,
        0.0,
        False,
    )
    [again] = applied(process(), change, tasks=(task(),)).tasks
    assert (again.state, again.not_before, again.finished_at) == (T.PENDING, None, None)
    [later] = applied(process(), ended(T.PENDING, wait_seconds=5.0), tasks=(task(),)).tasks
    assert later.not_before == NOW + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        (ended(T.DONE, receipt="{}"), Ending.DONE),
        (ended(T.FAILED, error=FAILURE), Ending.FAILED),
        (ended(T.CANCELLED), Ending.ENDED),
        (ended(T.PENDING), Ending.AGAIN),
        (ended(T.PENDING, free=True), Ending.FREE),
    ],
    ids=lambda value: str(getattr(value, "value", "")),
)
def test_how_an_attempt_ended_is_kept(change: TaskChange, ending: Ending) -> None:
    [attempt] = applied(process(), change, tasks=(task(),)).attempts
    assert (attempt.ending, attempt.rows, attempt.bytes, attempt.worker) == (ending, 0, 0, WORKER)


def test_a_task_that_adopts_a_receipt_is_done_when_it_is_made_and_no_other_is() -> None:
    found = applied(
        process(P.PENDING),
        WritePlan("{}"),
        NewTask(number=0, spec="{}", adopted_receipt="{}"),
        NewTask(number=1, spec="{}"),
    )
    assert [(one.state, one.finished_at) for one in found.new_tasks] == [(T.DONE, NOW), (T.PENDING, None)]


def test_an_error_that_was_met_stays_while_the_process_goes_on_and_goes_when_it_ends() -> None:
    met = process(error=FAILURE)
    assert applied(met, MoveTo(P.PUBLISHING)).process.error == FAILURE
    assert applied(met, MoveTo(P.CANCELLED)).process.error is None


def test_a_budget_that_is_given_back_is_never_below_nothing() -> None:
    assert applied(process(), RefundAttempt(Budget.PLAN)).process.plan_attempts == 0
    assert applied(process(plan_attempts=2), RefundAttempt(Budget.PLAN)).process.plan_attempts == 1


def test_what_is_handed_back_is_kept_for_as_long_as_the_retry_says() -> None:
    old = process(P.FAILED, leftovers=Leftovers.ADOPTED)
    kept = handed_back(old, Change(CleanUpIn(60.0)), NOW)
    assert (kept.version, kept.leftovers, kept.cleanup_at) == (8, Leftovers.KEPT, NOW + timedelta(seconds=60))
    assert handed_back(old, Change(), NOW).cleanup_at == NOW
    assert "is done" in handed_back_message(process(), Change(Result(rows=1, files=1, bytes=1)))
    assert "without publishing" in handed_back_message(process(), Change())
