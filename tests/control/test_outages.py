"""A destination that is down: nothing is lost, nothing is burnt, others go on, it heals by itself."""

import pytest

from calve.control.why import why
from calve.model.errors import ErrorInfo, TemporaryError, UnavailableError
from calve.model.limits import Limits
from calve.model.states import ProcessState, TaskState
from calve.testing.fake_runner import Ends
from calve.testing.scene import Deferred, Scene

DOWN = "catalog:lake"


def test_L1_a_cancel_stops_running_tasks_and_frees_slot_and_pin(scene: Scene) -> None:
    hanging = Deferred()
    process_id = scene.submit(tasks=2)
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()  # planned
    worker.tick()  # a wave hangs in the runner
    assert scene.row(process_id).tasks.running == 2
    scene.store.request_cancel(process_id)
    worker.tick()
    assert scene.state(process_id) is ProcessState.CANCELLED
    hanging.run()  # the runner was told to stop, the drain releases
    worker.tick()
    assert len(scene.runner.cancelled) == 1
    assert not scene.world.pins
    other = scene.submit(tasks=2)
    scene.run(scene.worker())
    assert scene.state(other) is ProcessState.COMPLETED


def test_L3_all_exports_are_accepted_while_the_worker_is_full_and_done_in_the_end(scene: Scene) -> None:
    scene.world.down.add(DOWN)
    ids = [scene.submit(tasks=1, key=f"part-{n}") for n in range(10)]
    worker = scene.worker()
    scene.run(worker, ticks=20)
    assert {scene.state(key) for key in ids} == {ProcessState.PENDING}
    scene.world.down.clear()
    scene.run(worker)
    assert {scene.state(key) for key in ids} == {ProcessState.COMPLETED}
    scene.check_settled()


@pytest.mark.parametrize("at", ["before planning", "while tasks run", "while publishing"])
def test_L5_waiting_exports_go_on_by_themselves_when_the_endpoint_returns(scene: Scene, at: str) -> None:
    process_id = scene.submit(tasks=4)
    worker = scene.worker()
    ticks = {"before planning": 0, "while tasks run": 2, "while publishing": 4}[at]
    for _ in range(ticks):
        worker.tick()
        scene.clock.advance(1)
    scene.world.down.add(DOWN)
    scene.run(worker, ticks=50, seconds=60.0)
    worker.tick()
    row = scene.row(process_id)
    assert row.state not in (ProcessState.FAILED, ProcessState.COMPLETED)
    assert [breaker.service for breaker in scene.store.breakers()] == [DOWN]
    assert "has been down since" in why(scene.store, row)
    # An open breaker holds no lease and no slot, and used no budget.
    assert row.owner is None and row.tasks.running == 0
    assert row.plan_attempts <= 1 and row.publish_attempts <= 1
    scene.world.down.clear()
    scene.run(worker)
    scene.check_settled()
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert not scene.store.breakers()


def test_L6_a_dead_destination_does_not_slow_another(scene: Scene) -> None:
    scene.world.down.add(DOWN)
    dead = [scene.submit(tasks=4, key=f"dead-{n}") for n in range(40)]
    alive = scene.submit(tasks=4, lane="catalog:pond")
    worker = scene.worker()
    scene.run(worker, ticks=12)
    assert scene.state(alive) is ProcessState.COMPLETED
    assert {scene.state(key) for key in dead} == {ProcessState.PENDING}


def test_L6_a_full_worker_gives_up_one_that_waits_for_a_lane_that_has_none(scene: Scene) -> None:
    hanging = Deferred()
    limits = Limits(slots=2, processes_per_worker=3)
    slow = [scene.submit(tasks=4, key=f"slow-{n}") for n in range(3)]
    worker = scene.worker(spawn=hanging, limits=limits)
    worker.tick()
    hanging.run()  # all planned
    worker.tick()  # the slots are taken, and hang
    other = scene.submit(tasks=1, lane="catalog:pond")
    for _ in range(3):
        worker.tick()
    assert scene.row(other).owner == worker.id
    assert sum(scene.row(key).owner == worker.id for key in slow) == 2


def test_an_outage_of_a_source_holds_back_only_what_needs_it(scene: Scene) -> None:
    scene.world.down.add("source:other")
    waits = scene.submit(source="other")
    worker = scene.worker()
    scene.run(worker, ticks=20)
    assert [breaker.service for breaker in scene.store.breakers()] == ["source:other"]
    goes = scene.submit(source="main")
    for _ in range(20):
        worker.tick()
    assert scene.state(goes) is ProcessState.COMPLETED
    assert scene.state(waits) is ProcessState.PENDING
    assert "source:other" in why(scene.store, scene.row(waits))
    scene.world.down.clear()
    scene.run(worker)
    assert scene.state(waits) is ProcessState.COMPLETED


def test_tasks_running_when_the_breaker_opens_are_stopped_at_no_cost(scene: Scene) -> None:
    hanging = Deferred()
    first, second = scene.submit(tasks=1, key="a"), scene.submit(tasks=1, key="b")
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    assert scene.row(first).tasks.running == scene.row(second).tasks.running == 1
    scene.store.trip(DOWN, "does not answer", 5.0)
    scene.world.down.add(DOWN)
    for _ in range(4):
        worker.tick()
        hanging.run()
    for key in (first, second):
        (task,) = scene.store.tasks(key)
        assert (task.state, task.attempt, task.free_attempts) == (TaskState.PENDING, 1, 1)
        assert scene.row(key).owner is None
    scene.world.down.clear()
    scene.run(scene.worker())
    scene.check_settled()


def test_an_outage_lasts_no_longer_than_the_deadline(scene: Scene) -> None:
    process_id = scene.submit(deadline_seconds=3600)
    scene.world.down.add(DOWN)
    scene.run(scene.worker(), ticks=200, seconds=60.0)
    row = scene.row(process_id)
    assert row.state is ProcessState.FAILED
    assert row.error is not None and row.error.code == "deadline"
    assert "does not answer" in row.error.message
    scene.check_settled()


def test_slots_are_shared_between_lanes_whatever_their_queues(scene: Scene) -> None:
    hanging = Deferred()
    many = [scene.submit(tasks=8, key=f"many-{n}") for n in range(5)]
    one = scene.submit(tasks=8, lane="catalog:pond")
    worker = scene.worker(spawn=hanging, limits=Limits(slots=4))
    worker.tick()
    hanging.run()
    worker.tick()
    assert scene.row(one).tasks.running == 2
    assert sum(scene.row(key).tasks.running for key in many) == 2


def test_higher_priority_gets_the_slots_first(scene: Scene) -> None:
    hanging = Deferred()
    low, high = scene.submit(tasks=4), scene.submit(tasks=4, priority=5)
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    assert (scene.row(low).tasks.running, scene.row(high).tasks.running) == (0, 2)


def test_a_runner_that_fails_counts_and_trips_no_breaker(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    scene.runner.raises = [TemporaryError("the session died", code="spark", service="spark")] * 2
    scene.run(scene.worker(), seconds=5.0)
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert not scene.store.breakers()


def test_an_attempt_that_runs_too_long_is_stopped_and_counted(scene: Scene) -> None:
    hanging = Deferred()
    process_id = scene.submit(tasks=1)
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()  # hangs
    for _ in range(2 * int(scene.limits.task_seconds / 5)):
        scene.clock.advance(5)
        worker.tick()
    assert scene.runner.cancelled == [] and len(hanging.works) == 2  # the wave, and the order to stop
    hanging.works.reverse()
    hanging.run()
    scene.runner.always = Ends.WELL
    for _ in range(20):
        worker.tick()
        hanging.run()
        scene.clock.advance(2)
    (task,) = scene.store.tasks(process_id)
    assert (task.attempt, task.free_attempts) == (2, 0)
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_a_destination_that_comes_and_goes_uses_no_attempts_of_tasks(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    away = ErrorInfo(code="unreachable", message="does not answer", retryable=True, service=DOWN)
    scene.runner.script[process_id, 0] = [away] * (3 * scene.limits.task_attempts)
    scene.run(scene.worker(), seconds=5.0)
    assert scene.state(process_id) is ProcessState.COMPLETED
    (task,) = scene.store.tasks(process_id)
    assert task.attempt == task.free_attempts + 1 == 3 * scene.limits.task_attempts + 1
    scene.check_settled()


def test_L2_one_failed_try_and_one_failed_probe_open_the_breaker(scene: Scene) -> None:
    """A second try would find out too, but in a slot, and only after its own timeout."""
    process_id = scene.submit(tasks=1)
    worker = scene.worker()
    worker.tick()  # planned
    away = ErrorInfo(code="unreachable", message="does not answer", retryable=True, service=DOWN)
    scene.runner.script[process_id, 0] = [away]
    worker.tick()  # tried once
    scene.world.down.add(DOWN)
    worker.tick()
    assert [breaker.service for breaker in scene.store.breakers()] == [DOWN]
    assert len(scene.runner.groups) == 1
    scene.world.down.clear()
    scene.run(worker)
    assert scene.state(process_id) is ProcessState.COMPLETED
    scene.check_settled()


def test_one_failed_try_at_a_service_that_answers_opens_no_breaker(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    worker = scene.worker()
    away = ErrorInfo(code="unreachable", message="does not answer", retryable=True, service=DOWN)
    scene.runner.script[process_id, 0] = [away]
    for _ in range(3):
        worker.tick()
    assert scene.world.calls["probe"] == 1
    assert scene.store.breakers() == []
    scene.run(worker)
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_attempts_that_a_silent_worker_stopped_stay_free_through_an_outage(scene: Scene) -> None:
    """Their receipts cannot be looked for while the destination is down. Had the worker given the
    process away meanwhile, nobody would know why they had ended, and each would count as a try."""
    hanging = Deferred()
    process_id = scene.submit(tasks=1)
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()  # hangs
    scene.clock.advance(0.8 * scene.limits.lease_seconds)
    scene.store.trip(DOWN, "does not answer", 5.0)
    scene.world.down.add(DOWN)
    worker.tick()  # it was silent for too long: told to stop
    hanging.works.reverse()
    for _ in range(6):
        hanging.run()
        worker.tick()
        scene.clock.advance(5)
    assert scene.row(process_id).tasks.running == 1, "not looked for yet"
    scene.world.down.clear()
    for _ in range(20):
        worker.tick()
        hanging.run()
        scene.clock.advance(5)
    (task,) = scene.store.tasks(process_id)
    assert (task.state, task.attempt, task.free_attempts) == (TaskState.DONE, 2, 1)
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_L2_a_service_that_is_down_is_asked_for_one_order_of_a_wave_and_not_for_each(scene: Scene) -> None:
    process_id = scene.submit(tasks=4)
    worker = scene.worker(limits=Limits(slots=4))
    worker.tick()  # planned
    scene.world.fail("order", UnavailableError("does not answer", code="unreachable", service=DOWN))
    worker.tick()
    assert scene.world.calls["order"] == 1
    scene.run(worker)
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert all(task.attempt - task.free_attempts == 1 for task in scene.store.tasks(process_id))


SPARK = "spark:spark://master:7077"


def _spark_away() -> UnavailableError:
    return UnavailableError("the master cannot be reached", code="spark_unavailable", service=SPARK)


def test_T14_a_cluster_that_is_away_holds_back_tasks_of_every_lane_and_uses_no_budget(scene: Scene) -> None:
    away = [True]

    def probe() -> None:
        if away:
            raise _spark_away()

    ids = [scene.submit(tasks=2), scene.submit(tasks=2, lane="catalog:pond")]
    scene.runner.raises = [_spark_away()] * 8
    worker = scene.worker(probes={SPARK: probe})
    scene.run(worker, ticks=50, seconds=5.0)
    assert [breaker.service for breaker in scene.store.breakers()] == [SPARK]
    for process_id in ids:
        assert scene.state(process_id) is ProcessState.RUNNING
        assert f"It waits for {SPARK}" in why(scene.store, scene.row(process_id))
    assert len(scene.runner.groups) <= 4, "nothing is tried while it is away"
    away.clear()
    scene.runner.raises = []
    scene.run(worker)
    scene.check_settled()
    for process_id in ids:
        assert scene.state(process_id) is ProcessState.COMPLETED
        assert all(task.attempt - task.free_attempts == 1 for task in scene.store.tasks(process_id))
    assert scene.store.breakers() == []


def test_T14_a_cluster_that_is_away_is_nothing_to_workers_that_use_another(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    scene.store.trip(SPARK, "the master cannot be reached", 5.0)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert "waits for" not in why(scene.store, scene.row(scene.submit(tasks=1)))
