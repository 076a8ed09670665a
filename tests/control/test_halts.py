"""A halt holds work back and breaks none off; it outlives every worker, and `why` names it."""

from calve.control.client import cancel
from calve.control.registry import ServedStore
from calve.control.why import why
from calve.model.access import Asked, Halt
from calve.model.states import ProcessState
from calve.testing.scene import Deferred, Scene

ASKED = Asked(who="anne", verb="halt")


def halt(scene: Scene, source: str = "", kind: str = "fake") -> None:
    _served(scene).put_halt(Halt(kind=kind, source=source, who="anne", reason="the disk is full"), ASKED)


def lift(scene: Scene, source: str = "") -> None:
    assert _served(scene).lift_halt("fake", source, ASKED)


def _served(scene: Scene) -> ServedStore:
    store: ServedStore = scene.store  # type: ignore[assignment]
    return store


def test_what_is_halted_waits_and_goes_on_once_the_halt_is_lifted(scene: Scene) -> None:
    halt(scene, "main:db.events")
    held, other = scene.submit(tasks=2), scene.submit(tasks=2, source="other")
    worker = scene.worker()
    scene.run(worker, ticks=10)
    assert scene.state(held) is ProcessState.PENDING and scene.row(held).fence == 0
    assert scene.state(other) is ProcessState.COMPLETED
    lift(scene, "main:db.events")
    scene.run(worker)
    assert scene.state(held) is ProcessState.COMPLETED
    scene.check_settled()


def test_tasks_that_run_finish_nothing_new_begins_and_the_lease_is_given_up(scene: Scene) -> None:
    process_id = scene.submit(tasks=scene.limits.slots + 2)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()  # planned
    worker.tick()
    running = scene.row(process_id).tasks.running
    assert running > 0
    halt(scene)
    worker.tick()
    assert scene.row(process_id).tasks.running == running and scene.row(process_id).owner == worker.id
    assert f"{running} running tasks finish first" in why(scene.store, scene.row(process_id))
    for _ in range(5):
        hanging.run()
        worker.tick()
    row = scene.row(process_id)
    assert (row.tasks.done, row.tasks.running, row.owner) == (running, 0, None)
    lift(scene)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED
    scene.check_settled()


def test_a_publish_that_has_begun_goes_on(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    scene.world.before["send"] = lambda: halt(scene)
    scene.world.commits = ["lost"]
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_a_halted_process_can_be_cancelled_and_ends_at_its_deadline(scene: Scene) -> None:
    halt(scene)
    cancelled, late = scene.submit(), scene.submit(deadline_seconds=60)
    cancel(scene.store, cancelled)
    worker = scene.worker()
    worker.tick()
    assert scene.state(cancelled) is ProcessState.CANCELLED
    scene.clock.advance(61)
    worker.tick()
    assert scene.state(late) is ProcessState.FAILED


def test_why_names_the_halt_who_made_it_and_how_it_ends(scene: Scene) -> None:
    process_id = scene.submit()
    halt(scene, "main:db.events")
    said = why(scene.store, scene.row(process_id))
    assert (
        said.startswith("Fakes of main:db.events are stopped since 2026-")
        and "by anne (the disk is full)" in said
    )
    assert "SYSTEM START FAKES main:db.events" in said and "deadline stays" in said
    cancel(scene.store, process_id)
    assert "A cancel was requested" in why(scene.store, scene.row(process_id))
