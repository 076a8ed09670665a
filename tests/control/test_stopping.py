"""Stopping a worker: drain, hand back, give up leases; a second time quickly, and still safely.

The loop runs here with its threads, as in production. Nothing sleeps: events say when to go on.
"""

import linecache
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.model.limits import Limits
from calve.model.process import ProcessId
from calve.model.states import ProcessState, TaskState
from calve.testing.clock import FakeClock
from calve.testing.fake_kind import FakeKind
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import REACH, Deferred, Scene

TraceFunction = Callable[[FrameType, str, Any], Any]


class BlockingRunner:
    """Attempts run until they are let go or stopped."""

    def __init__(self, scene: Scene) -> None:
        self.slots = 4
        self.scene = scene
        self.started = threading.Event()
        self.let_go = threading.Event()

    def run(self, group: str, orders: list[TaskOrder], on_result) -> None:  # type: ignore[no-untyped-def]
        self.started.set()
        assert self.let_go.wait(30)
        for order in orders:
            if group not in self.scene.runner.cancelled:
                result: TaskResult = self.scene.world.write(order)
                on_result(result)

    def cancel(self, group: str) -> None:
        self.scene.runner.cancelled.append(group)
        self.let_go.set()

    def close(self) -> None: ...


@pytest.fixture
def threaded() -> Scene:
    clock = FakeClock()
    return Scene(store=MemoryStore(clock), clock=clock, limits=Limits(slots=2, tick_seconds=0.01))


def worker_of(scene: Scene, runner: object) -> WorkerLoop:
    return WorkerLoop(
        store=scene.store, kinds={"fake": FakeKind(scene.world)}, runner=runner, limits=scene.limits, reach=REACH
    )  # type: ignore[arg-type]  # fmt: skip


def test_the_loop_with_its_threads_ends_everything_and_leaves_no_worker_behind(threaded: Scene) -> None:
    ids = [threaded.submit(tasks=5, key=f"k{n}") for n in range(6)]
    worker = worker_of(threaded, threaded.runner)
    worker.run(until=lambda: all(threaded.row(key).finished_at for key in ids))
    threaded.check_settled()
    assert {threaded.state(key) for key in ids} == {ProcessState.COMPLETED}
    assert threaded.store.workers() == []


def test_a_drain_lets_running_tasks_finish_and_starts_no_more(threaded: Scene) -> None:
    process_id = threaded.submit(tasks=6)
    runner = BlockingRunner(threaded)
    worker = worker_of(threaded, runner)
    loop = threading.Thread(target=worker.run)
    loop.start()
    assert runner.started.wait(30)
    worker.request_stop()
    runner.let_go.set()
    loop.join(30)
    assert not loop.is_alive()
    row = threaded.row(process_id)
    assert (row.state, row.owner) == (ProcessState.RUNNING, None)
    assert (row.tasks.done, row.tasks.running) == (2, 0)
    assert threaded.runner.cancelled == []
    threaded.run(threaded.worker())
    threaded.check_settled()


def test_a_second_stop_is_quick_uses_no_budget_and_the_next_worker_goes_on(threaded: Scene) -> None:
    process_id = threaded.submit(tasks=2)
    runner = BlockingRunner(threaded)
    worker = worker_of(threaded, runner)
    loop = threading.Thread(target=worker.run)
    loop.start()
    assert runner.started.wait(30)
    worker.request_stop()
    worker.request_stop()
    loop.join(30)
    assert not loop.is_alive()
    assert threaded.row(process_id).owner is None
    assert len(threaded.runner.cancelled) == 1
    tasks = threaded.store.tasks(process_id)
    assert {(task.state, task.attempt, task.free_attempts) for task in tasks} == {(TaskState.PENDING, 1, 1)}
    threaded.run(threaded.worker())
    threaded.check_settled()
    assert threaded.state(process_id) is ProcessState.COMPLETED


def test_a_signal_in_the_middle_of_the_loop_s_own_locks_stops_it_too(threaded: Scene) -> None:
    """A handler runs in the loop's thread between any two lines, also where that holds a lock."""
    worker = worker_of(threaded, BlockingRunner(threaded))
    stopped = threading.Event()

    def between_lines(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename != threading.__file__ or stopped.is_set():
            return None
        if event == "line" and frame.f_code is threading.Event.clear.__code__ and "_flag" in _line(frame):
            stopped.set()
            worker.request_stop()
        return between_lines

    def loop() -> None:
        sys.settrace(between_lines)
        worker.run()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    thread.join(30)
    assert stopped.is_set() and not thread.is_alive()


def _line(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def test_tasks_that_do_not_finish_in_time_are_handed_back_at_no_cost(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    worker.request_stop()
    worker.tick()
    assert scene.row(process_id).tasks.running == 2
    scene.clock.advance(scene.limits.lease_seconds + 1)
    for _ in range(4):
        worker.tick()
        hanging.works.reverse()  # the order to stop comes before the end of the wave
        hanging.run()
    tasks = scene.store.tasks(process_id)
    assert {(task.state, task.attempt, task.free_attempts) for task in tasks} == {(TaskState.PENDING, 1, 1)}
    assert scene.row(process_id).owner is None


def test_a_draining_worker_takes_nothing_new_and_says_that_it_drains(scene: Scene) -> None:
    worker = scene.worker()
    worker.tick()
    worker.request_stop()
    process_id = scene.submit()
    worker.tick()
    assert scene.row(process_id).owner is None
    (row,) = scene.store.workers()
    assert row.draining


def test_what_another_program_submits_is_begun_long_before_the_next_tick_is_due() -> None:
    clock = FakeClock()
    scene = Scene(store=MemoryStore(clock), clock=clock, limits=Limits(slots=2, tick_seconds=600.0))
    worker = worker_of(scene, scene.runner)
    looks: list[int] = []
    submitted: list[ProcessId] = []
    last_event = scene.store.last_event

    def watched() -> int:
        if len(looks) == 1:
            submitted.append(scene.submit(tasks=1, key="later"))  # after the first tick
        looks.append(last_event())
        return looks[-1]

    scene.store.last_event = watched  # type: ignore[method-assign]
    ended = lambda: bool(submitted and scene.row(submitted[0]).finished_at)  # noqa: E731
    thread = threading.Thread(target=worker.run, args=(ended,), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    scene.check_settled()
