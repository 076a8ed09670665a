"""L35 to L38 for optimize, ticked by hand: what is lost is found, what died is taken over, at no cost.

L33 and L34 stand in `test_found_again`, with Spark, and in `test_breaking_anywhere`, at every write.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from optimize_ticked import OptimizeTicked, catalog_in
from pyiceberg.catalog import Catalog

from calve.control.ports import TaskOrder, TaskResult
from calve.model.change import Change, Met, MoveTo, TaskChange
from calve.model.errors import ErrorInfo, StoreError
from calve.model.process import Lease, Process
from calve.model.states import ProcessState, TaskState
from calve.testing.faults import Break, Crash, Faults
from calve.testing.scene import Deferred

pytestmark = pytest.mark.usefixtures("a_task_for_each_partition")
READS = ("process", "tasks", "ready_tasks", "pins", "plan", "processes", "live", "events")
OnResult = Callable[[TaskResult], None]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return catalog_in(tmp_path)


@pytest.fixture
def ticked(catalog: Catalog) -> OptimizeTicked:
    return OptimizeTicked(catalog, "t")


def fail(
    ticked: OptimizeTicked, fits: Callable[[Change], bool], *, times: int, applied: bool
) -> list[Change]:
    """The store fails that many fitting writes, before or after they were carried out."""
    apply = ticked.store.apply
    failed: list[Change] = []

    def failing(lease: Lease, change: Change) -> Process:
        if len(failed) < times and fits(change):
            failed.append(change)
            if applied:
                apply(lease, change)
            raise StoreError("the store timed out", code="timeout")
        return apply(lease, change)

    ticked.store.apply = failing  # type: ignore[method-assign]
    return failed


def ends_the_last_task(change: Change) -> bool:
    return any(task.number == 1 and task.after is TaskState.DONE for task in change.all(TaskChange))


def starts_a_task(change: Change) -> bool:
    return any(task.after is TaskState.RUNNING for task in change.all(TaskChange))


def records_a_failure(change: Change) -> bool:
    errors = [item.error for kind in (MoveTo, Met, TaskChange) for item in change.all(kind)]
    return any(errors) or change.state is ProcessState.FAILED


@pytest.mark.parametrize("applied", [False, True])
def test_L34_the_completion_of_the_last_task_fails_again_and_again_while_its_rewrite_stands(
    ticked: OptimizeTicked, applied: bool
) -> None:
    process_id = ticked.submit()
    failed = fail(ticked, ends_the_last_task, times=5, applied=applied)
    ticked.settle(process_id)
    assert failed
    ticked.check_done_once(process_id)
    assert [task.attempt for task in ticked.store.tasks(process_id)] == [1, 1]


def test_L35_a_second_completion_after_a_failed_first_is_counted(ticked: OptimizeTicked) -> None:
    """The first answer is an error that nobody recorded yet; then the rewrite reports its success."""
    process_id, hanging = ticked.submit(), Deferred()
    worker, run = ticked.worker(spawn=hanging), ticked.runner.run
    worker.tick()
    hanging.run()
    worker.tick()

    def twice(group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        hiccup = ErrorInfo(code="flaky", message="a hiccup", retryable=True)
        for order in orders:
            on_result(TaskResult(number=order.number, attempt=order.attempt, error=hiccup))
        run(group, orders, on_result)

    ticked.runner.run = twice  # type: ignore[method-assign]
    hanging.run()
    worker.tick()
    found = [(task.state, task.attempt) for task in ticked.store.tasks(process_id)]
    assert found == [(TaskState.DONE, 1), (TaskState.DONE, 1)]
    for _ in range(3):
        hanging.run()
        worker.tick()
    ticked.check_done_once(process_id)


def counted(ticked: OptimizeTicked, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every read of the store and every look at a table, from now on."""
    calls: list[str] = []

    def count(owner: object, name: str) -> None:
        call = getattr(owner, name)

        def counting(*args: object, **kwargs: object) -> object:
            calls.append(name)
            return call(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    for name in READS:
        count(ticked.store, name)
    count(ticked.catalog_, "load_table")
    return calls


def test_L36_a_tick_costs_the_same_however_many_optimizes_have_ended(
    ticked: OptimizeTicked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def idle_tick() -> list[str]:
        with monkeypatch.context() as patched:
            calls = counted(ticked, patched)
            worker = ticked.worker()
            worker.tick()
            worker.tick()
        return calls

    before = idle_tick()
    for _ in range(5):
        ticked.settle(ticked.submit())
    assert idle_tick() == before and "load_table" not in before


def test_L36_while_tasks_run_a_tick_looks_at_no_table_and_at_no_row_of_theirs(
    ticked: OptimizeTicked, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id, hanging = ticked.submit(), Deferred()
    worker = ticked.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    assert ticked.row(process_id).tasks.running == 2 and hanging.works
    calls = counted(ticked, monkeypatch)
    for _ in range(3):
        worker.tick()
    assert calls == ["pins"] * 3, "the drain's one look for pins to release, and nothing else"


def test_L37_a_worker_that_dies_between_taking_a_rewrite_and_starting_it_leaves_no_orphan(
    ticked: OptimizeTicked,
) -> None:
    process_id, run = ticked.submit(), ticked.runner.run

    def dies(group: str, orders: Sequence[TaskOrder], on_result: OnResult) -> None:
        raise Crash(group)

    ticked.runner.run = dies  # type: ignore[method-assign]
    worker = ticked.worker()
    worker.tick()
    with pytest.raises(Crash):
        worker.tick()
    assert ticked.row(process_id).tasks.running == 2
    ticked.runner.run = run  # type: ignore[method-assign]
    ticked.clock.advance(ticked.limits.lease_seconds + 1)
    ticked.settle(process_id)
    ticked.check_done_once(process_id)


def test_L37_a_worker_that_dies_in_mid_rewrite_leaves_nothing_running_for_ever(
    ticked: OptimizeTicked,
) -> None:
    process_id = ticked.submit()

    def dies(order: TaskOrder) -> None:
        if order.number == 1:
            raise Crash("in the middle of task 1; task 0 has committed, and nobody recorded it")

    ticked.runner.before_commit = dies
    with pytest.raises(Crash):
        ticked.settle(process_id)
    assert ticked.row(process_id).tasks.running == 2
    assert ticked.rewrite_snapshots(process_id) == {"0": 1, "1": 0}
    ticked.runner.before_commit = lambda _: None
    ticked.clock.advance(ticked.limits.lease_seconds + 1)
    ticked.settle(process_id)
    ticked.check_done_once(process_id)
    assert [task.attempt for task in ticked.store.tasks(process_id)] == [1, 2], "what landed was found"


def test_L37_starts_that_the_store_recorded_and_reported_failed_cost_no_attempt(
    ticked: OptimizeTicked,
) -> None:
    process_id = ticked.submit()
    failed = fail(ticked, starts_a_task, times=2 * ticked.limits.task_attempts, applied=True)
    ticked.settle(process_id)
    assert len(failed) == 2 * ticked.limits.task_attempts
    ticked.check_done_once(process_id)


@pytest.mark.parametrize("applied", [False, True])
def test_L38_a_failure_to_record_a_failed_rewrite_is_itself_retried(
    ticked: OptimizeTicked, applied: bool
) -> None:
    process_id = ticked.submit()
    ticked.runner.fails = [ErrorInfo(code="denied", message="wrong credentials")] * 2
    failed = fail(ticked, records_a_failure, times=2, applied=applied)
    ticked.settle(process_id)
    row = ticked.row(process_id)
    assert len(failed) == 2 and row.state is ProcessState.FAILED and row.tasks.running == 0
    assert row.error is not None and row.error.code == "denied"
    assert ticked.runner.rewrites == []


@pytest.mark.parametrize("how", [Break.FAILED, Break.REPORTED_FAILED])
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_fails_a_third_of_its_calls_still_ends_the_process_with_one_rewrite_each(
    ticked: OptimizeTicked, seed: int, how: Break
) -> None:
    process_id, chance, faults = ticked.submit(), Random(seed), Faults(how=how)
    worker = ticked.worker(faults, only_the_store=True)
    for _ in range(40):
        faults.at = len(faults.calls) + chance.randint(1, 5)
        worker.tick()
        ticked.clock.advance(0.5)
    faults.armed = False
    ticked.clock.advance(ticked.limits.lease_seconds + 1)
    ticked.settle(process_id, worker)
    ticked.check_done_once(process_id)
