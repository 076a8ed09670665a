"""One owner at a time: by the database's clock, with fences, whatever this machine's clock says."""

from datetime import datetime

import pytest

from calve.model.errors import StoreError
from calve.model.states import ProcessState, TaskState
from calve.testing.faults import Break, Faults
from calve.testing.scene import Deferred, Scene


def test_L22_a_lost_acknowledgement_on_taking_a_lease_is_no_deadlock(scene: Scene) -> None:
    process_id = scene.submit()
    faults = Faults(how=Break.REPORTED_FAILED)
    worker = scene.worker(faults=faults)
    faults.at = 2  # the heartbeat is the first call, the claim the second
    worker.tick()
    assert faults.calls[:2] == ["heartbeat", "claim"]
    assert scene.row(process_id).owner == worker.id
    scene.run(worker, ticks=30, seconds=0.1)  # well within the lease
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert scene.row(process_id).fence == 1


def test_a_stopped_worker_that_wakes_up_writes_nothing_and_its_tasks_count_for_nothing(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    hanging = Deferred()
    old = scene.worker(spawn=hanging)
    old.tick()
    hanging.run()
    old.tick()  # its wave is under way, then it is stopped (SIGSTOP) for three lease times
    scene.clock.advance(3 * scene.limits.lease_seconds)
    new = scene.worker()
    new.tick()
    assert scene.row(process_id).owner == new.id
    old.tick()  # the old worker wakes up: it stops what it runs, its tasks end
    assert len(hanging.works) == 2
    hanging.run()
    assert len(scene.runner.cancelled) == 1
    for _ in range(3):
        old.tick()
        hanging.run()
    scene.run(new)
    scene.check_settled()
    assert scene.state(process_id) is ProcessState.COMPLETED
    assert scene.world.runs[process_id, 0] == 1  # what was stopped wrote nothing
    assert old.in_flight.leases() == set(), "what a lost lease left is kept in memory"
    published = scene.world.snapshots[0].files
    assert [name.rsplit("-", 1)[1] for name in published] == ["2", "2"]


def test_D4_a_zombie_attempt_shares_no_file_name_and_is_not_recorded(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    hanging = Deferred()
    old = scene.worker(spawn=hanging)
    old.tick()
    hanging.run()
    old.tick()
    scene.clock.advance(2 * scene.limits.lease_seconds)
    new = scene.worker()
    scene.run(new, ticks=20)
    assert scene.state(process_id) is ProcessState.COMPLETED
    hanging.run()  # the zombie writes its file after everything is published
    old.tick()
    hanging.run()  # it may look for what the first attempt began to upload: anybody may
    (task,) = scene.store.tasks(process_id)
    assert (task.state, task.attempt) == (TaskState.DONE, 2)
    scene.check_settled()


def test_D11_a_fast_local_clock_steals_no_lease(scene: Scene) -> None:
    """A worker's own clock is hours ahead; only the database's clock decides."""
    process_id = scene.submit(tasks=2)
    hanging = Deferred()
    owner = scene.worker(spawn=hanging)
    owner.tick()
    thief = scene.worker(monotonic=lambda: 1e9)
    for _ in range(5):
        thief.tick()
    assert scene.row(process_id).owner == owner.id
    assert scene.row(process_id).fence == 1


def test_a_worker_that_cannot_renew_stops_its_tasks_before_another_can_take_them(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    hanging.run()
    worker.tick()
    assert scene.row(process_id).tasks.running == 2
    down = _store_goes_down(scene)
    lease_until = scene.row(process_id).lease_until
    assert lease_until is not None
    while not worker.in_flight.waves()[0].stop:
        assert scene.clock.now() < lease_until, "the lease ran out before the tasks were stopped"
        scene.clock.advance(1)
        worker.tick()
    down.clear()
    for _ in range(10):
        hanging.run()
        worker.tick()
        scene.clock.advance(0.5)
    assert len(scene.runner.cancelled) == 1
    for task in scene.store.tasks(process_id):
        assert task.free_attempts == task.attempt - 1, "silence is not the task's fault"
    for _ in range(10):
        worker.tick()
        hanging.run()
    assert scene.state(process_id) is ProcessState.COMPLETED


def _store_goes_down(scene: Scene) -> list[bool]:
    down = [True]
    for name in ("renew", "claim", "apply", "heartbeat", "breakers", "claim_releases"):
        call = getattr(scene.store, name)

        def failing(*args: object, _call=call, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            if down:
                raise StoreError("the store is down", code="store_down")
            return _call(*args, **kwargs)

        setattr(scene.store, name, failing)
    return down


def test_leases_are_renewed_while_work_hangs(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    hanging = Deferred()
    worker, other = scene.worker(spawn=hanging), scene.worker()
    worker.tick()
    for _ in range(100):  # planning hangs for many leases
        scene.clock.advance(scene.limits.lease_seconds / 5)
        worker.tick()
        other.tick()
    assert scene.row(process_id).owner == worker.id
    hanging.run()
    worker.tick()
    assert scene.state(process_id) is ProcessState.RUNNING


@pytest.mark.parametrize("workers", [2, 3])
def test_several_workers_share_one_store_and_every_process_is_done_once(scene: Scene, workers: int) -> None:
    ids = [scene.submit(tasks=3, key=f"k{n}") for n in range(9)]
    team = [scene.worker() for _ in range(workers)]
    for _ in range(60):
        for worker in team:
            worker.tick()
            scene.clock.advance(0.3)
    scene.check_settled()
    assert {scene.state(key) for key in ids} == {ProcessState.COMPLETED}
    assert set(scene.world.runs.values()) == {1}


def test_a_lease_that_a_step_gives_up_in_the_middle_of_a_tick_is_no_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow steps end in threads of their own, also between the claim and the reading of what was claimed."""
    process_id = scene.submit()
    worker = scene.worker(spawn=Deferred())
    now = scene.store.now

    def step_ends_then_now() -> datetime:
        held = [lease for lease in worker.holding.leases() if lease.process_id == process_id]
        for lease in held:
            worker.holding.drop(lease)
        return now()

    monkeypatch.setattr(scene.store, "now", step_ends_then_now)
    worker.tick()
    assert scene.row(process_id).owner == worker.id, "it was claimed, so the lease was there"
    assert caplog.records == []
    monkeypatch.undo()
    scene.run(scene.worker(), ticks=200)
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_workers_beside_each_other_share_what_is_submitted(scene: Scene) -> None:
    """Bench `two-workers`: the first to look took all of it, up to 32 processes, and the other had none."""
    workers = [scene.worker(spawn=Deferred()) for _ in range(2)]
    for worker in workers:
        worker.tick()
    scene.clock.advance(scene.limits.lease_seconds / 4)
    workers[0].tick()  # its next heartbeat sees the other
    ids = [scene.submit(key=f"part-{number}") for number in range(8)]
    for _ in range(4):
        for worker in workers:
            worker.tick()
    owners = [scene.row(process_id).owner for process_id in ids]
    slots = scene.limits.slots
    assert [owners.count(worker.id) for worker in workers] == [slots, slots], "no more than they can begin"


def test_a_worker_without_a_free_slot_leaves_work_to_the_others_but_not_for_ever(scene: Scene) -> None:
    hanging = Deferred()
    full, other = scene.worker(spawn=hanging), scene.worker(spawn=Deferred())
    other.tick()
    scene.submit(key="big", tasks=2 * full.slots)
    full.tick()
    hanging.run()
    full.tick()  # its slots are taken
    late = scene.submit(key="late")
    full.tick()
    assert scene.row(late).owner is None
    scene.clock.advance(3)
    full.tick()
    assert scene.row(late).owner == full.id
