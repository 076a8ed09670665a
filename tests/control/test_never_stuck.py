"""A failure at any write heals at the next tick: without a restart, without a second export."""

from random import Random

import pytest

from calve.control.background import Pool
from calve.control.ports import TaskResult
from calve.control.worker import WorkerLoop
from calve.model.change import Change, Met, MoveTo, TaskChange
from calve.model.errors import ErrorInfo, PermanentError, StoreError
from calve.model.process import Lease, Process, ProcessId
from calve.model.states import ProcessState, TaskState
from calve.testing.fake_runner import Ends
from calve.testing.faults import Break, Crash, Faults, crashing_store
from calve.testing.scene import Deferred, Scene


class FailingApply:
    """The store's `apply` fails, before or after it was carried out, for the changes it is told."""

    def __init__(self, scene: Scene, *, times: int = 1, applied: bool = False) -> None:
        self._apply = scene.store.apply
        self.times = times
        self.applied = applied
        self.failed = 0
        scene.store.apply = self  # type: ignore[method-assign,assignment]

    def fits(self, change: Change) -> bool:
        raise NotImplementedError

    def __call__(self, lease: Lease, change: Change) -> Process:
        if self.failed < self.times and self.fits(change):
            self.failed += 1
            if self.applied:
                self._apply(lease, change)
            raise StoreError("the store timed out", code="timeout")
        return self._apply(lease, change)


class FailsToPublishing(FailingApply):
    def fits(self, change: Change) -> bool:
        return change.state is ProcessState.PUBLISHING


class FailsTheLastCompletion(FailingApply):
    """The very write that ends the last task, in the real completion path."""

    def fits(self, change: Change) -> bool:
        return any(task.number == 2 and task.after is TaskState.DONE for task in change.all(TaskChange))


class FailsToFail(FailingApply):
    def fits(self, change: Change) -> bool:
        errors = [item.error for kind in (MoveTo, Met, TaskChange) for item in change.all(kind)]
        return any(errors) or change.state is ProcessState.FAILED


@pytest.mark.parametrize("applied", [False, True])
def test_L33_a_lost_step_to_publishing_heals_at_the_next_tick(scene: Scene, applied: bool) -> None:
    process_id = scene.submit(tasks=3)
    failing = FailsToPublishing(scene, applied=applied)
    scene.run(scene.worker())
    assert failing.failed == 1
    assert scene.state(process_id) is ProcessState.COMPLETED
    scene.check_settled()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("times", [1, 3])
def test_L34_the_write_that_ends_the_last_task_fails_while_its_work_is_done(
    scene: Scene, applied: bool, times: int
) -> None:
    process_id = scene.submit(tasks=3)
    failing = FailsTheLastCompletion(scene, applied=applied, times=times)
    scene.run(scene.worker())
    assert failing.failed >= 1
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert scene.world.runs[process_id, 2] == 1, "the work was done twice"
    scene.check_settled()


def test_L34_the_worker_dies_as_well_and_the_next_one_finds_the_receipt(scene: Scene) -> None:
    process_id = scene.submit(tasks=3)
    FailsTheLastCompletion(scene, times=10**6)
    worker = scene.worker()
    for _ in range(6):
        worker.tick()
    assert scene.row(process_id).tasks.done < 3
    scene.store.apply = type(scene.store).apply.__get__(scene.store)  # type: ignore[method-assign]
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert scene.world.runs[process_id, 2] == 1
    scene.check_settled()


def test_L25_a_store_that_fails_as_a_task_ends_costs_no_second_export(scene: Scene) -> None:
    process_id = scene.submit(tasks=3)
    scene.runner.always = Ends.DONE_BUT_LOST
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert set(scene.world.runs.values()) == {1}
    scene.check_settled()


def test_L24_the_ends_of_tasks_and_of_their_process_agree_after_every_write(scene: Scene) -> None:
    good, bad = scene.submit(tasks=5), scene.submit(tasks=5)
    scene.runner.script[bad, 3] = [ErrorInfo(code="denied", message="no")]
    apply = scene.store.apply

    def checked(lease: Lease, change: Change) -> Process:
        row = apply(lease, change)
        scene.check()
        return row

    scene.store.apply = checked  # type: ignore[method-assign]
    scene.run(scene.worker())
    assert (scene.state(good), scene.state(bad)) == (ProcessState.COMPLETED, ProcessState.FAILED)


def test_L35_a_second_completion_after_a_failed_first_is_counted(scene: Scene) -> None:
    """The first result is an error that was not recorded yet; then the attempt reports success."""
    process_id = scene.submit(tasks=1)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    run = scene.runner.run

    def twice(group, orders, on_result) -> None:  # type: ignore[no-untyped-def]
        error = ErrorInfo(code="flaky", message="a hiccup", retryable=True)
        on_result(TaskResult(number=0, attempt=1, error=error))
        run(group, orders, on_result)

    scene.runner.run = twice  # type: ignore[method-assign]
    hanging.run()
    worker.tick()
    (task,) = scene.store.tasks(process_id)
    assert (task.state, task.attempt) == (TaskState.DONE, 1)


def test_L35_an_attempt_that_is_reported_twice_counts_once(scene: Scene) -> None:
    process_id = scene.submit(tasks=4)
    scene.runner.always = Ends.TWICE
    scene.run(scene.worker())
    row = scene.row(process_id)
    assert (row.state, row.tasks.done, row.rows) == (ProcessState.COMPLETED, 4, 400)


def test_L36_a_tick_costs_the_same_whatever_is_finished(scene: Scene) -> None:
    def reads_of_a_tick() -> list[str]:
        names: list[str] = []
        for name in ("process", "tasks", "ready_tasks", "pins", "plan", "processes", "live", "events"):
            _count(scene.store, name, names)
        worker = scene.worker()
        worker.tick()
        worker.tick()
        for name in ("process", "tasks", "ready_tasks", "pins", "plan", "processes", "live", "events"):
            delattr(scene.store, name)
        return names

    empty = reads_of_a_tick()
    for n in range(20):
        scene.submit(tasks=5, key=f"k{n}")
    scene.run(scene.worker())
    scene.check_settled()
    assert reads_of_a_tick() == empty


def _count(store: object, name: str, names: list[str]) -> None:
    call = getattr(store, name)

    def counted(*args: object, **kwargs: object) -> object:
        names.append(name)
        return call(*args, **kwargs)

    setattr(store, name, counted)


def test_L36_a_tick_of_a_running_process_reads_no_rows_of_tasks_that_are_not_ready(scene: Scene) -> None:
    scene.submit(tasks=500)
    worker = scene.worker()
    for _ in range(50):
        worker.tick()
    names: list[str] = []
    _count(scene.store, "tasks", names)
    scene.store.ready_tasks = _bounded(scene)  # type: ignore[method-assign]
    worker.tick()
    assert names == []


def _bounded(scene: Scene):  # type: ignore[no-untyped-def]
    ready_tasks = scene.store.ready_tasks

    def bounded(process_id: ProcessId, limit: int):  # type: ignore[no-untyped-def]
        assert limit <= scene.limits.slots
        return type(scene.store).tasks(scene.store, process_id, frozenset({TaskState.PENDING}), limit)  # type: ignore[arg-type]

    assert ready_tasks
    return bounded


def test_L37_a_worker_that_dies_between_taking_a_task_and_starting_it_leaves_no_orphan(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)

    def dies(group: str, orders: object, on_result: object) -> None:
        raise Crash(group)

    run, scene.runner.run = scene.runner.run, dies  # type: ignore[method-assign,assignment]
    worker = scene.worker()
    worker.tick()
    with pytest.raises(Crash):
        worker.tick()
    assert scene.row(process_id).tasks.running == 2
    scene.runner.run = run  # type: ignore[method-assign]
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    scene.check_settled()


class FailsToStart(FailingApply):
    def fits(self, change: Change) -> bool:
        return any(task.after is TaskState.RUNNING for task in change.all(TaskChange))


def test_L37_a_start_that_the_store_recorded_and_reported_failed_is_handed_back_at_no_cost(
    scene: Scene,
) -> None:
    process_id = scene.submit(tasks=1)
    FailsToStart(scene, times=2 * scene.limits.task_attempts, applied=True)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert scene.world.runs[process_id, 0] == 1
    (task,) = scene.store.tasks(process_id)
    assert task.free_attempts == 2 * scene.limits.task_attempts


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("how", ["plan", "task", "publish"])
def test_L38_a_failure_to_record_a_failure_is_itself_retried(scene: Scene, how: str, applied: bool) -> None:
    process_id = scene.submit(tasks=1)
    denied = PermanentError("denied", code="denied")
    if how == "task":
        scene.runner.script[process_id, 0] = [denied.info] * 9
    else:
        scene.world.fail(how, *[denied] * 9)
    failing = FailsToFail(scene, times=2, applied=applied)
    scene.run(scene.worker())
    assert failing.failed == 2
    row = scene.row(process_id)
    assert row.state is ProcessState.FAILED
    assert row.error is not None and row.error.code == "denied"
    scene.check_settled()


def test_L10_an_exception_while_handling_one_process_loses_no_others_progress(scene: Scene) -> None:
    ids = [scene.submit(tasks=2, key=f"k{n}") for n in range(4)]
    poisoned = ids[0]
    ready_tasks = scene.store.ready_tasks

    def poison(process_id: ProcessId, limit: int):  # type: ignore[no-untyped-def]
        if process_id == poisoned:
            raise ValueError("a row that nobody can read")
        return ready_tasks(process_id, limit)

    scene.store.ready_tasks = poison  # type: ignore[method-assign]
    worker = scene.worker()
    scene.run(worker, ticks=40)
    assert {scene.state(key) for key in ids[1:]} == {ProcessState.COMPLETED}
    assert scene.state(poisoned) is ProcessState.RUNNING
    scene.clock.advance(20)
    worker.tick()
    (row,) = scene.store.workers()
    assert row.error is not None and "nobody can read" in row.error.message
    scene.store.ready_tasks = ready_tasks  # type: ignore[method-assign]
    scene.run(worker)
    scene.check_settled()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", [Break.FAILED, Break.REPORTED_FAILED])
def test_a_store_that_fails_a_third_of_its_calls_still_ends_everything(
    scene: Scene, seed: int, how: Break
) -> None:
    ids = [scene.submit(tasks=3, key=f"k{n}") for n in range(3)]
    chance = Random(seed)
    faults = Faults(how=how)
    scene.store = crashing_store(scene.store, faults)
    worker = scene.worker()
    for _ in range(60):
        faults.at = len(faults.calls) + chance.randint(1, 6)
        worker.tick()
        scene.clock.advance(0.5)
        scene.check()
    faults.armed = False
    scene.run(worker, seconds=10.0)
    assert {scene.state(key) for key in ids} <= {ProcessState.COMPLETED, ProcessState.FAILED}
    scene.check_settled()


def test_start_up_is_the_same_code(scene: Scene) -> None:
    """A new worker for every single tick ends everything as well."""
    process_id = scene.submit(tasks=3)
    made: list[WorkerLoop] = []
    for _ in range(40):
        made.append(scene.worker())
        made[-1].tick()
        scene.clock.advance(scene.limits.lease_seconds + 1)
    assert scene.state(process_id) is ProcessState.COMPLETED
    scene.check_settled()


def test_work_beside_the_loop_that_meets_a_store_that_is_away_says_so_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it did not record is found at the next tick; a traceback would be taken for a defect."""
    pool = Pool(threads=1)

    def fails() -> None:
        raise StoreError("the store does not answer", code="unavailable")

    with caplog.at_level("INFO"):
        pool(fails)
        pool.close(wait=True)
    [said] = caplog.records
    assert said.exc_info is None and "the store does not answer" in said.message
