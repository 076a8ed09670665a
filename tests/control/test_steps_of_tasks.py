"""The steps that run tasks, one by one: what is recorded, what is forgotten, and which pins nobody needs any more."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from test_steps_one_by_one import LANE, LIMITS, Store, Told, context

from calve.control.inflight import started
from calve.control.ports import TaskResult
from calve.control.steps import tasks as steps
from calve.control.steps.context import Context
from calve.model.change import PinChange, TaskChange
from calve.model.errors import (
    ConflictError,
    ErrorInfo,
    FenceLostError,
    StoreError,
    TemporaryError,
    UnavailableError,
)
from calve.model.process import Process, Task
from calve.model.states import PinState, ProcessState, TaskState
from calve.testing.contracts.contract import FAILURE, done, finish_task, lease_of, move, running, start_task

AWAY = ErrorInfo(code="away", message="away", retryable=True, service=LANE)
FLAKY = replace(FAILURE, retryable=True)
CONFLICT = ConflictError("it moved", code="conflict")


@pytest.fixture
def store() -> Store:
    return Store()


@dataclass
class Spans(Told):
    """Each pin is read by a run of tasks of its own."""

    spans: dict[str, range] = field(default_factory=dict)

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        return next(((name, span) for name, span in self.spans.items() if number in span), None)

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        return self._told(task.number)  # type: ignore[no-any-return]


def made(store: Store, answer: Any = None, **spans: range) -> Context:
    first, kind = context(store)
    return replace(first, kinds={"export": Spans(world=kind.world, answer=answer, spans=spans)})


def begun(store: Store, here: Context, tasks: int = 1, run: int = 1) -> Process:
    """So many tasks, the first of them under way in this worker."""
    row = running(store, tasks)
    ready = store.ready_tasks(row.id, run)
    for task in ready:
        row = start_task(store, row, task.number)
    here.in_flight.begin(lease_of(row), [started(task) for task in ready], 0.0)
    return row


def arrived(here: Context, row: Process, number: int = 1, **given: Any) -> None:
    [wave] = here.in_flight.waves(lease_of(row))
    here.in_flight.arrive(wave, TaskResult(number=number, attempt=1, **given), 1.0)


# ---- pins that nobody needs any more


def test_a_pin_is_spent_once_no_task_that_reads_it_runs_or_waits(store: Store) -> None:
    here = made(store, a=range(1, 3), b=range(3, 5), c=range(5, 6))
    row = start_task(store, running(store, 5), 2)
    spent = steps.spent_pins
    assert spent(here, row, [done(1)]) == (), "task 2 runs"
    assert spent(here, row, [done(3)]) == (), "task 4 waits"
    assert spent(here, row, [done(1), done(2)]) == (PinChange(name="a", after=PinState.RELEASING),)
    assert [one.name for one in spent(here, row, [done(1), done(2), done(5)])] == ["a", "c"]
    earlier = finish_task(store, start_task(store, running(store, 2)))
    assert [one.name for one in spent(here, earlier, [done(2)])] == ["a"], "task 1 has ended long since"
    again = TaskChange(number=5, before=TaskState.RUNNING, after=TaskState.PENDING, attempt=1, error=FAILURE)
    assert spent(here, row, [again]) == ()
    assert spent(replace(here, kinds={}), row, [done(1), done(2)]) == ()
    assert spent(made(store), row, [done(1)]) == ()


def test_of_a_pin_beyond_many_waiting_tasks_it_is_not_known(store: Store) -> None:
    here = made(store, early=range(1, 2), late=range(111, 113))
    row = running(store, 112)
    assert [one.name for one in steps.spent_pins(here, row, [done(1), done(111), done(112)])] == ["early"]


# ---- what ended


def test_what_was_recorded_is_forgotten_here_and_a_success_closes_the_breaker(store: Store) -> None:
    here = made(store)
    row = begun(store, here, tasks=2, run=2)
    here.breakers.failed(LANE, "away")
    arrived(here, row, 1, receipt="{}", rows=5)
    arrived(here, row, 2, error=AWAY)
    after = steps.record_results(here, lease_of(row), row)
    assert (after.tasks.done, after.tasks.running, after.rows) == (1, 0, 5)
    assert here.in_flight.results(lease_of(row)) == {}
    assert here.breakers.failed(LANE, "away") == 1
    assert [task.free_attempts for task in store.tasks(row.id)] == [0, 1]


def test_results_of_a_process_that_runs_no_more_are_dropped(store: Store) -> None:
    here = made(store)
    row = begun(store, here)
    arrived(here, row, receipt="{}")
    ended = move(store, finish_task(store, row), ProcessState.PUBLISHING)
    assert steps.record_results(here, lease_of(row), ended) is ended
    assert here.in_flight.results(lease_of(row)) == {}


def test_a_result_that_the_store_refuses_is_kept_while_its_attempt_runs_there(store: Store) -> None:
    here = made(store)
    row = begun(store, here)
    arrived(here, row, receipt="{}")
    store.fails = [CONFLICT]
    with pytest.raises(ConflictError):
        steps.record_results(here, lease_of(row), row)
    assert len(here.in_flight.results(lease_of(row))) == 1
    finish_task(store, row)
    store.fails = [CONFLICT]
    with pytest.raises(ConflictError):
        steps.record_results(here, lease_of(row), row)
    assert here.in_flight.results(lease_of(row)) == {}


# ---- what was lost


def test_an_attempt_that_nobody_knows_of_counts_as_a_try(store: Store) -> None:
    row = start_task(store, running(store))
    here = made(store)
    steps.recover_tasks(here, lease_of(row), row)
    [task] = store.tasks(row.id)
    assert (task.state, task.free_attempts, task.error) == (TaskState.PENDING, 0, steps.LOST)


def test_an_attempt_that_was_lost_for_a_reason_carries_it_and_is_forgotten_here(store: Store) -> None:
    here = made(store)
    row = begun(store, here)
    [wave] = here.in_flight.waves(lease_of(row))
    here.in_flight.end(wave, FLAKY, free=True)
    steps.recover_tasks(here, lease_of(row), row)
    [task] = store.tasks(row.id)
    assert (task.state, task.free_attempts, task.error) == (TaskState.PENDING, 1, FLAKY)
    assert here.in_flight.lost(lease_of(row)) == {}


def test_what_is_lost_here_and_ended_in_the_store_needs_nothing_and_what_runs_here_stays(
    store: Store,
) -> None:
    here = made(store)
    row = begun(store, here, tasks=2)
    other = begun_beside(store, here, row)
    [first, _] = here.in_flight.waves(lease_of(row))
    here.in_flight.end(first, FAILURE)
    row = finish_task(store, row)
    steps.recover_tasks(here, lease_of(row), row)
    assert here.in_flight.lost(lease_of(row)) == {}
    assert here.in_flight.known(lease_of(row)) == {(2, 1)}
    assert store.tasks(other.id)[1].state is TaskState.RUNNING


def begun_beside(store: Store, here: Context, row: Process) -> Process:
    [task] = store.ready_tasks(row.id, 1)
    row = start_task(store, row, task.number)
    here.in_flight.begin(lease_of(row), [started(task)], 0.0)
    return row


def test_a_receipt_that_is_found_ends_the_task(store: Store) -> None:
    row = start_task(store, running(store))
    found = TaskResult(number=1, attempt=1, receipt="{}", rows=7)
    steps.recover_tasks(made(store, found), lease_of(row), row)
    assert (store.process(row.id).rows, store.tasks(row.id)[0].state) == (7, TaskState.DONE)


def test_a_service_that_does_not_say_whether_there_is_a_receipt_is_asked_again(store: Store) -> None:
    row = start_task(store, running(store))
    lease = lease_of(row)
    steps.recover_tasks(made(store, UnavailableError("away", code="away", service="source:main")), lease, row)
    after = store.process(row.id)
    assert after.not_before == store.now() + timedelta(seconds=0.75 * LIMITS.backoff_first_seconds)
    assert store.tasks(row.id)[0].state is TaskState.RUNNING
    steps.recover_tasks(made(store, TemporaryError("not now", code="busy")), lease, row)
    after = store.process(row.id)
    assert after.not_before == store.now() + timedelta(seconds=0.75 * LIMITS.backoff_first_seconds)
    with pytest.raises(StoreError):
        steps.recover_tasks(made(store, StoreError("away", code="store_failed")), lease, row)


def test_a_recovery_that_the_store_refuses_forgets_only_what_moved_on(store: Store) -> None:
    here = made(store)
    row = begun(store, here)
    [wave] = here.in_flight.waves(lease_of(row))
    here.in_flight.stop([wave], FAILURE, free=True, look=False)
    here.in_flight.end(wave, FAILURE)
    store.fails = [CONFLICT]
    with pytest.raises(ConflictError):
        steps.hand_back_tasks(here, lease_of(row))
    assert len(here.in_flight.lost(lease_of(row))) == 1
    steps.hand_back_tasks(here, lease_of(row))
    assert here.in_flight.lost(lease_of(row)) == {}
    [task] = store.tasks(row.id)
    assert (task.state, task.free_attempts) == (TaskState.PENDING, 1)


@pytest.mark.parametrize(
    ("failure", "kept"),
    [(FenceLostError("another's", code="fence_lost"), 0), (CONFLICT, 0), (StoreError("away", code="x"), 1)],
)
def test_a_start_that_was_refused_took_place_nowhere(store: Store, failure: Any, kept: int) -> None:
    here = made(store)
    row = running(store)
    ready = store.ready_tasks(row.id, 1)
    store.fails = [failure]
    with pytest.raises(type(failure)):
        steps.run_tasks(here, lease_of(row), row, ready)
    assert len(here.in_flight.lost(lease_of(row))) == kept
    assert here.in_flight.waves() == []
    assert all(lost.error.retryable for lost in here.in_flight.lost(lease_of(row)).values())
