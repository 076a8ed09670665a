"""`why` says in one sentence what a process waits for."""

from dataclasses import replace

import pytest

from calve.control.client import cancel
from calve.control.why import why
from calve.model.errors import ErrorInfo, TemporaryError
from calve.model.process import Granted, ProcessId
from calve.testing.scene import Deferred, Scene


def said(scene: Scene, process_id: ProcessId) -> str:
    sentence = why(scene.store, scene.row(process_id))
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_no_worker_is_running(scene: Scene) -> None:
    assert "No worker is running" in said(scene, scene.submit())


def test_no_worker_reaches_it(scene: Scene) -> None:
    scene.worker().tick()
    sentence = said(scene, scene.submit(source="far"))
    assert "whose configuration reaches" in sentence and "source:far" in sentence


def test_it_is_in_the_queue(scene: Scene) -> None:
    scene.worker().tick()
    assert "in the queue" in said(scene, scene.submit())


def test_its_worker_is_silent(scene: Scene) -> None:
    process_id = scene.submit()
    scene.worker(spawn=Deferred()).tick()
    scene.clock.advance(scene.limits.lease_seconds + 1)
    assert "another worker to take over" in said(scene, process_id)


def test_it_backs_off(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.fail("plan", TemporaryError("the source is busy", code="busy"))
    scene.worker().tick()
    assert "is backing off until 2026-01-01 00:00:00 UTC after: the source is busy" in said(scene, process_id)


def test_its_tasks_back_off_or_run_or_wait_for_a_slot(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    scene.runner.script[process_id, 0] = [ErrorInfo(code="flaky", message="it broke", retryable=True)]
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    assert "is pinning and planning it" in said(scene, process_id)
    hanging.run()
    assert "waits for a free slot" in said(scene, process_id)
    worker.tick()
    assert "1 of its 1 tasks are running" in said(scene, process_id)
    hanging.run()
    worker.tick()
    assert "backing off until" in said(scene, process_id) and "it broke" in said(scene, process_id)


def test_it_publishes(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    for _ in range(2):
        worker.tick()
        hanging.run()
    worker.tick()
    assert "is publishing it" in said(scene, process_id) or "about to publish" in said(scene, process_id)


def test_a_cancel_or_a_deadline_waits_for_a_worker(scene: Scene) -> None:
    process_id = scene.submit()
    cancel(scene.store, process_id)
    assert "A cancel was requested" in said(scene, process_id)
    other = scene.submit(deadline_seconds=1)
    scene.clock.advance(2)
    assert "deadline passed" in said(scene, other)


@pytest.mark.parametrize("fails", [False, True])
def test_it_has_ended(scene: Scene, fails: bool) -> None:
    process_id = scene.submit(tasks=1)
    if fails:
        scene.runner.script[process_id, 0] = [ErrorInfo(code="denied", message="wrong credentials")]
    scene.run(scene.worker())
    sentence = said(scene, process_id)
    assert sentence.startswith("It failed at " if fails else "It completed at ")
    assert ("wrong credentials" in sentence and f"calve retry {process_id}" in sentence) == fails


def test_its_tasks_wait_for_executors_that_the_cluster_does_not_grant(scene: Scene) -> None:
    process_id, hanging = scene.submit(tasks=1), Deferred()
    grants = [Granted(executors=0, at_once=0)]
    worker = scene.worker(spawn=hanging, granted=lambda: grants[-1])
    worker.tick()
    hanging.run()
    worker.tick()
    sentence = said(scene, process_id)
    assert (
        f"1 of its 1 tasks wait for executors, 0 are done: Spark has granted {worker.id} no executor"
        in sentence
    )
    grants.append(Granted(executors=2, at_once=8))
    scene.clock.advance(scene.limits.lease_seconds / 2)
    worker.tick()
    assert "are running, 0 are done. Spark grants 2 executors for 8 tasks at a time." in said(
        scene, process_id
    )


def test_no_attempt_is_late_while_the_cluster_grants_no_executor(scene: Scene) -> None:
    process_id, hanging = scene.submit(tasks=1), Deferred()
    grants = [Granted(executors=0, at_once=0)]
    short = replace(scene.limits, task_seconds=scene.limits.lease_seconds / 3)
    worker = scene.worker(spawn=hanging, granted=lambda: grants[-1], limits=short)
    worker.tick()
    hanging.run()
    worker.tick()
    for _ in range(6):
        scene.clock.advance(short.task_seconds / 2)
        worker.tick()
    assert "wait for executors" in said(scene, process_id)
    assert not any(wave.stop for wave in worker.in_flight.waves())
    grants.append(Granted(executors=1, at_once=1))
    for _ in range(5):
        scene.clock.advance(short.task_seconds / 2)
        worker.tick()
    [late] = {wave.stop.code for wave in worker.in_flight.waves() if wave.stop}
    assert late == "task_timeout"
