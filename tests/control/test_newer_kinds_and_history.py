"""During an upgrade an older worker meets newer kinds; and history does not pile up for ever."""

from calve.control.background import HISTORY_PIECE, HISTORY_REST_SECONDS
from calve.control.why import why
from calve.control.worker import WorkerLoop
from calve.model.states import ProcessState
from calve.testing.fake_kind import FakeKind
from calve.testing.faults import Break, Faults
from calve.testing.scene import REACH, Scene

DAY_SECONDS = 86_400.0


def older_worker(scene: Scene) -> WorkerLoop:
    """Of a version that knows another kind only."""
    return WorkerLoop(
        store=scene.store, kinds={"older": FakeKind(scene.world, name="older")}, runner=scene.runner,
        limits=scene.limits, reach=REACH, spawn=lambda work: work(),
    )  # fmt: skip


def test_a_worker_that_does_not_know_a_kind_leaves_it_to_one_that_does(scene: Scene) -> None:
    process_id = scene.submit()
    older = older_worker(scene)
    for _ in range(5):
        older.tick()
    row = scene.row(process_id)
    assert (row.state, row.owner, row.plan_attempts, row.error) == (ProcessState.PENDING, None, 0, None)
    assert "a version that knows the kind 'fake'" in why(scene.store, row)
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.COMPLETED


def test_it_leaves_their_cancels_and_their_pins_alone_too(scene: Scene) -> None:
    process_id = scene.submit(pins=2)
    knows = scene.worker()
    knows.tick()
    scene.store.request_cancel(process_id)
    knows.request_stop()
    knows.tick()  # the cancel ends it, and its pins are due
    before = [(pin.state, pin.release_attempts) for pin in scene.store.pins(process_id)]
    older = older_worker(scene)
    for _ in range(5):
        older.tick()
        scene.clock.advance(scene.limits.query_seconds)
    after = [(pin.state, pin.release_attempts) for pin in scene.store.pins(process_id)]
    assert all(attempts == 0 for _, attempts in after)
    assert len(after) == len(before) == 2
    scene.run(scene.worker())
    scene.check_settled()


def test_a_worker_says_which_kinds_it_knows(scene: Scene) -> None:
    scene.worker().tick()
    (row,) = scene.store.workers()
    assert {"kind:fake", *REACH} == set(row.reach)


def test_a_tick_forgets_a_bounded_piece_then_rests(scene: Scene) -> None:
    ids = [scene.submit(tasks=1, key=f"k{n}") for n in range(HISTORY_PIECE // 5)]
    scene.run(scene.worker())
    total = sum(len(scene.store.events(key)) for key in ids)
    assert total > HISTORY_PIECE
    scene.clock.advance((scene.limits.keep_history_days + 1) * DAY_SECONDS)
    worker = scene.worker()
    worker.tick()
    left = sum(len(scene.store.events(key)) for key in ids)
    assert left > 0 and total - left <= HISTORY_PIECE
    for _ in range(total // HISTORY_PIECE + 1):
        worker.tick()
    assert [key for key in ids if scene.store.events(key) or scene.store.pins(key)] == []
    assert {scene.state(key) for key in ids} == {ProcessState.COMPLETED}
    # It rests now: what became old meanwhile waits for the next round.
    late = scene.submit(key="late")
    scene.run(worker)
    scene.clock.advance((scene.limits.keep_history_days + 1) * DAY_SECONDS - HISTORY_REST_SECONDS)
    worker.tick()
    assert scene.store.events(late) == []


def test_a_worker_shows_what_went_wrong_lately_and_forgets_it_when_all_is_well(scene: Scene) -> None:
    faults = Faults(how=Break.FAILED)
    worker = scene.worker(faults=faults)
    faults.at = 2  # the claim
    worker.tick()
    scene.clock.advance(scene.limits.lease_seconds)
    worker.tick()
    (row,) = scene.store.workers()
    assert row.error is not None and row.error.code == "injected"
    for _ in range(60):
        scene.clock.advance(scene.limits.lease_seconds / 2)
        worker.tick()
    (row,) = scene.store.workers()
    assert row.error is None
