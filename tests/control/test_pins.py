"""Pins: journaled before they exist, released whatever happened, by a drain that holds nothing else up."""

from copy import deepcopy
from typing import Any

import pytest

from calve.control.client import cancel
from calve.model.errors import ErrorInfo, TemporaryError
from calve.model.states import PIN_HELD, PinState, ProcessState
from calve.testing.faults import Break, Crash, Faults
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import Deferred, Scene


def test_L29_no_slot_and_no_lease_is_held_while_a_pin_is_released(scene: Scene) -> None:
    hanging = Deferred()
    first = scene.submit(tasks=2, key="a")
    worker = scene.worker(spawn=hanging)
    while scene.state(first) is not ProcessState.COMPLETED:
        worker.tick()
        hanging.run()
    worker.tick()  # the release is under way, and hangs
    releases = list(hanging.works)
    assert releases and scene.row(first).owner is None
    second = scene.submit(tasks=2, key="b")
    for _ in range(10):
        worker.tick()
        running = [work for work in hanging.works if work not in releases]
        hanging.works = []
        for work in running:
            work()
    assert scene.state(second) is ProcessState.COMPLETED


def test_L29_the_drain_is_bounded(scene: Scene) -> None:
    hanging = Deferred()
    for n in range(10):
        scene.submit(nothing=True, pins=2, key=f"k{n}")
    scene.run(scene.worker(), ticks=1)
    drain = scene.worker(spawn=hanging)
    for _ in range(5):
        drain.tick()
    assert len(hanging.works) == scene.limits.releases_at_once


def test_L29_a_release_that_takes_many_leases_is_one_worker_s_and_another_s_a_lease_after_that_one_died(
    scene: Scene,
) -> None:
    hanging, idle = Deferred(), Deferred()
    process_id = scene.submit(tasks=1)
    first, second = scene.worker(spawn=hanging), scene.worker(spawn=idle)
    while scene.state(process_id) is not ProcessState.COMPLETED:
        first.tick()
        hanging.run()
    for _ in range(20):
        first.tick()
        second.tick()
        scene.clock.advance(scene.limits.lease_seconds / 2)
    assert len(hanging.works) == 1 and not idle.works
    second.tick()
    scene.clock.advance(scene.limits.lease_seconds)  # the first says nothing any more
    second.tick()
    assert len(idle.works) == 1
    idle.run()
    (pin,) = scene.store.pins(process_id)
    assert pin.state is PinState.RELEASED
    hanging.run()  # it was only slow: twice is harmless
    scene.check_settled()


@pytest.mark.parametrize("end", ["success", "failure", "cancel", "nothing to do"])
def test_L30_pins_are_released_however_the_process_ends(scene: Scene, end: str) -> None:
    process_id = scene.submit(tasks=2, pins=3, nothing=end == "nothing to do")
    worker = scene.worker()
    if end == "failure":
        scene.runner.script[process_id, 0] = [ErrorInfo(code="denied", message="no")]
    worker.tick()
    if end == "cancel":
        cancel(scene.store, process_id)
    scene.run(worker)
    scene.check_settled()
    assert {pin.state for pin in scene.store.pins(process_id)} == {PinState.RELEASED}


def test_a_store_that_lost_the_plan_is_given_another_and_tasks_read_what_that_one_pins(scene: Scene) -> None:
    """A fail-over to a replica that lagged: what was acknowledged is gone, and the worker remembers it."""
    assert isinstance(scene.store, MemoryStore)
    process_id, earlier = scene.submit(tasks=1), list[Any]()
    scene.world.before["plan"] = lambda: earlier.append(deepcopy(scene.store.rows))
    scene.runner.script[process_id, 0] = [ErrorInfo(code="slow", message="again", retryable=True)] * 2
    worker = scene.worker()
    while "task_again" not in scene.events(process_id):
        worker.tick()
        scene.clock.advance(0.5)
    scene.store.rows = earlier[0]
    assert scene.state(process_id) is ProcessState.PENDING
    scene.run(worker)
    scene.check_settled()
    assert scene.state(process_id) is ProcessState.COMPLETED
    released, held = (pin.name for pin in scene.store.pins(process_id))
    assert scene.world.ordered[0] == (released,) and scene.world.ordered[-1] == (held,)


@pytest.mark.parametrize("how", [Break.BEFORE, Break.AFTER])
@pytest.mark.parametrize("call", ["apply", "take", "plan"])
def test_L30_a_pin_taken_by_a_worker_that_was_killed_is_released(scene: Scene, call: str, how: Break) -> None:
    process_id = scene.submit(tasks=1)
    faults = Faults(how=how)
    worker = scene.worker(faults=faults)
    scene.world.before["take"] = lambda: None
    order = ["heartbeat", "claim", "apply", "take", "plan", "apply"]
    faults.at = order.index(call) + 1
    with pytest.raises(Crash):
        worker.tick()
    assert faults.calls[-1] == call
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.run(scene.worker())
    scene.check_settled()
    assert scene.state(process_id) is ProcessState.COMPLETED
    names = [pin.name for pin in scene.store.pins(process_id)]
    assert len(names) == len(set(names))


def test_L31_a_release_that_fails_is_retried_and_fails_nothing_else(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.fail("release", *[TemporaryError("the server is busy", code="busy")] * 3)
    worker = scene.worker()
    scene.run(worker, ticks=8)
    assert scene.state(process_id) is ProcessState.COMPLETED
    (pin,) = scene.store.pins(process_id)
    assert pin.state is PinState.RELEASING
    assert pin.error is not None and "busy" in pin.error.message
    scene.run(worker, ticks=60, seconds=5.0)
    scene.check_settled()


def test_L31_a_release_that_always_fails_is_shown_and_still_tried(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.fail("release", *[TemporaryError("no", code="no")] * 20)
    worker = scene.worker()
    for _ in range(60):
        worker.tick()
        scene.clock.advance(600)
    scene.check_settled()
    (pin,) = scene.store.pins(process_id)
    assert pin.release_attempts == 20 > scene.limits.release_attempts


def test_planning_again_takes_another_name_and_releases_the_first(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.fail("plan", *[TemporaryError("no", code="no")] * 2)
    scene.run(scene.worker(), seconds=3.0)
    scene.check_settled()
    assert len(scene.store.pins(process_id)) == 3
    assert set(scene.world.takes.values()) == {1}


def test_a_draining_worker_keeps_the_pins_of_what_has_not_ended(scene: Scene) -> None:
    process_id = scene.submit(tasks=3)
    worker = scene.worker()
    worker.tick()
    worker.tick()
    worker.drain()
    assert scene.state(process_id) is ProcessState.RUNNING
    assert len(scene.store.pins(process_id, PIN_HELD)) == len(scene.world.pins) == 1
    scene.run(scene.worker())
    scene.check_settled()
