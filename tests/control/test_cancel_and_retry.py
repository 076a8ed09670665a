"""Cancel, retry, undo: one winner each time, and a terminal state never turns."""

import pytest

from calve.control.client import cancel, retry
from calve.model.change import Change, MoveTo
from calve.model.errors import (
    ErrorInfo,
    Outcome,
    PermanentError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from calve.model.process import Lease, ProcessId
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState
from calve.testing.scene import Deferred, Scene

DENIED = ErrorInfo(code="denied", message="wrong credentials")


def failed(scene: Scene, *, key: str = "a") -> ProcessId:
    """A process with two tasks done and one that failed for good."""
    process_id = scene.submit(tasks=3, key=key)
    scene.runner.script[process_id, 2] = [DENIED]
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.FAILED
    return process_id


def publishing(scene: Scene, *commits: str) -> ProcessId:
    """A process whose commit was sent, with these answers."""
    process_id = scene.submit(tasks=2, key="a")
    scene.world.commits = list(commits)
    worker = scene.worker()
    while not scene.world.sent:
        worker.tick()
    worker.drain()
    return process_id


def test_a_pending_process_is_cancelled_at_the_next_tick(scene: Scene) -> None:
    process_id = scene.submit()
    assert cancel(scene.store, process_id).accepted
    scene.worker().tick()
    assert scene.state(process_id) is ProcessState.CANCELLED
    assert scene.row(process_id).leftovers is Leftovers.NONE


def test_a_cancel_while_planning_hangs_ends_at_once_and_the_late_pin_goes(scene: Scene) -> None:
    process_id = scene.submit()
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    worker.tick()
    scene.world.before["plan"] = lambda: _cancel_and_tick(scene, process_id)
    hanging.run()
    assert scene.state(process_id) is ProcessState.CANCELLED
    scene.run(scene.worker())
    scene.check_settled()


def test_the_late_pin_of_a_plan_that_fails_goes_too(scene: Scene) -> None:
    """Found by the simulator: a slow FREEZE after a take-over, of a part that was merged away meanwhile."""
    process_id = scene.submit()
    hanging = Deferred()
    scene.worker(spawn=hanging).tick()

    def end_and_fail() -> None:
        _cancel_and_tick(scene, process_id)
        raise PermanentError("the part was merged away", code="part_gone")

    scene.world.before["plan"] = end_and_fail
    hanging.run()
    assert scene.state(process_id) is ProcessState.CANCELLED
    scene.check_settled()


def _cancel_and_tick(scene: Scene, process_id: ProcessId) -> None:
    """While the pin is taken and planning goes on, a cancel ends the process and the drain passes."""
    cancel(scene.store, process_id)
    row = scene.row(process_id)
    assert row.owner is not None
    lease = Lease(process_id=process_id, worker=row.owner, fence=row.fence)
    scene.store.apply(lease, Change(MoveTo(ProcessState.CANCELLED), expect_version=row.version))
    for pin in scene.store.pins(process_id):
        scene.store.record_release(pin.name, None)


def test_L18_a_cancel_that_comes_too_late_says_so_and_changes_nothing(scene: Scene) -> None:
    process_id = scene.submit()
    scene.run(scene.worker())
    before = scene.row(process_id)
    answer = cancel(scene.store, process_id)
    assert not answer.accepted and "too late" in answer.message
    scene.run(scene.worker(), ticks=5)
    assert scene.row(process_id) == before


@pytest.mark.parametrize(
    ("commit", "state"),
    [("dropped", ProcessState.CANCELLED), ("late", ProcessState.CANCELLED), ("lost", ProcessState.COMPLETED)],
)
def test_L18_a_cancel_during_publishing_fences_or_is_too_late(
    scene: Scene, commit: str, state: ProcessState
) -> None:
    process_id = publishing(scene, commit)
    cancel(scene.store, process_id)
    scene.run(scene.worker())
    scene.world.land_late()
    scene.check_settled()
    assert scene.state(process_id) is state
    assert ("cancel_too_late" in scene.events(process_id)) == (state is ProcessState.COMPLETED)


def test_a_cancel_fences_beside_a_publish_that_hangs(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    hanging = Deferred()
    worker = scene.worker(spawn=hanging)
    while scene.state(process_id) is not ProcessState.PUBLISHING:
        worker.tick()
        hanging.run()
    scene.world.before["send"] = lambda: _fence_from_the_loop(scene, process_id)
    worker.tick()
    hanging.run()
    scene.run(scene.worker())
    scene.check_settled()
    assert scene.state(process_id) is ProcessState.CANCELLED
    assert not scene.world.snapshots


def _fence_from_the_loop(scene: Scene, process_id: ProcessId) -> None:
    """The publish has noted and is about to send; the same worker ticks on."""
    cancel(scene.store, process_id)
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.worker().tick()


def test_L18_terminal_states_never_change(scene: Scene) -> None:
    done, bad = scene.submit(key="b"), failed(scene)
    stopped = scene.submit(key="c")
    cancel(scene.store, stopped)
    scene.run(scene.worker())
    states = {key: scene.state(key) for key in (done, bad, stopped)}
    assert set(states.values()) == PROCESS_TERMINAL
    for key in states:
        cancel(scene.store, key)
    scene.clock.advance(scene.limits.keep_failed_hours * 3600 * 3)
    worker = scene.worker()
    for _ in range(20):
        worker.tick()
        scene.clock.advance(3600)
    assert {key: scene.state(key) for key in states} == states


def test_a_retry_adopts_the_receipts_that_stand(scene: Scene) -> None:
    old = failed(scene)
    new = retry(scene.store, old).process
    scene.ids.append(new.id)
    assert (new.retry_of, new.adopted, new.locks) == (old, True, scene.row(old).locks)
    assert scene.row(old).leftovers is Leftovers.ADOPTED
    scene.run(scene.worker())
    assert scene.state(new.id) is ProcessState.COMPLETED
    assert [scene.world.runs[new.id, number] for number in range(3)] == [0, 0, 1]
    assert scene.row(new.id).rows == 300
    scene.check_settled()
    # What was adopted and published stays, whatever becomes of the old process's other files.
    scene.clock.advance(scene.limits.keep_failed_hours * 3600 + 1)
    scene.run(scene.worker(), ticks=5)
    scene.check_settled()
    assert scene.row(old).leftovers is Leftovers.GONE


def test_T13_files_that_a_retry_hands_back_are_swept_again_once_no_attempt_can_write(scene: Scene) -> None:
    """Found by the simulator: what a request that came late wrote after the deletion stayed for ever."""
    old = failed(scene)  # one of its tasks was tried, and is not done
    scene.ids.append(retry(scene.store, old).process.id)
    worker = scene.worker()
    scene.run(worker)
    for _ in range(5):
        worker.tick()
    row = scene.row(old)
    assert row.leftovers is Leftovers.UNDOING and row.cleanup_at is not None and row.finished_at is not None
    assert (row.cleanup_at - row.finished_at).total_seconds() >= scene.limits.task_seconds
    scene.clock.advance(scene.limits.task_seconds + 1)
    for _ in range(5):
        worker.tick()
    assert scene.row(old).leftovers is Leftovers.GONE
    scene.check_settled()


def test_nothing_is_swept_again_while_another_retry_goes_on(scene: Scene) -> None:
    """A restore and its retries share what they stage."""
    old = failed(scene)
    scene.ids.append(retry(scene.store, old).process.id)
    worker = scene.worker()
    scene.run(worker)
    for _ in range(5):
        worker.tick()
    second = retry(scene.store, old).process
    scene.ids.append(second.id)
    assert not second.adopted
    scene.clock.advance(scene.limits.task_seconds + 1)
    worker.tick()
    row = scene.row(old)
    assert row.leftovers is Leftovers.UNDOING and row.cleanup_at is not None
    assert row.cleanup_at > scene.store.now()
    scene.run(worker)
    for _ in range(3):
        scene.clock.advance(scene.limits.keep_failed_hours * 3600 + 1)
        for _ in range(5):
            worker.tick()
    assert scene.row(old).leftovers is Leftovers.GONE, "the retry is over, and has nothing left"


def test_D3_undo_first_then_a_retry_adopts_nothing(scene: Scene) -> None:
    old = failed(scene)
    scene.clock.advance(scene.limits.keep_failed_hours * 3600 + 1)
    scene.world.before["undo"] = lambda: scene.ids.append(retry(scene.store, old).process.id)
    worker = scene.worker()
    worker.tick()
    new = scene.ids[-1]
    assert new != old and not scene.row(new).adopted
    assert scene.row(old).leftovers is Leftovers.GONE
    scene.run(worker)
    scene.check_settled()
    assert [scene.world.runs[new, number] for number in range(3)] == [1, 1, 1]


def test_D3_a_retry_first_then_undo_deletes_nothing(scene: Scene) -> None:
    old = failed(scene)
    scene.clock.advance(scene.limits.keep_failed_hours * 3600 + 1)
    worker = scene.worker(spawn=(hanging := Deferred()))
    worker.tick()  # undo was decided and hangs
    new = retry(scene.store, old).process
    scene.ids.append(new.id)
    hanging.run()
    assert new.adopted and scene.row(old).leftovers is Leftovers.ADOPTED
    assert scene.world.calls["undo"] == 0
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.run(scene.worker())
    scene.check_settled()


def test_a_failed_retry_gives_the_files_back_and_all_of_them_go(scene: Scene) -> None:
    first = failed(scene)
    second = retry(scene.store, first).process
    scene.ids.append(second.id)
    scene.runner.script[second.id, 2] = [DENIED]
    scene.run(scene.worker())
    assert scene.state(second.id) is ProcessState.FAILED
    assert scene.row(first).leftovers is Leftovers.ADOPTED
    worker = scene.worker()
    for _ in range(10):
        scene.clock.advance(scene.limits.keep_failed_hours * 3600)
        worker.tick()
    assert scene.row(second.id).leftovers is scene.row(first).leftovers is Leftovers.GONE
    assert not scene.world.files


def test_what_completed_or_runs_or_may_have_been_published_is_not_retried(scene: Scene) -> None:
    done = scene.submit(key="b")
    scene.run(scene.worker())
    with pytest.raises(RefusedError, match="nothing to retry"):
        retry(scene.store, done)
    with pytest.raises(RefusedError, match="has not ended"):
        retry(scene.store, scene.submit(key="c"))


def unknown(scene: Scene, commit: str) -> ProcessId:
    """A process that ended with an unknown outcome: the catalog was down when it had to be fenced."""
    process_id = publishing(scene, commit)
    scene.world.down.add("catalog:lake")
    scene.clock.advance(24 * 3600)
    scene.run(scene.worker(), seconds=30.0)
    row = scene.row(process_id)
    assert row.state is ProcessState.FAILED
    assert row.error is not None and row.error.outcome is Outcome.UNKNOWN
    assert row.fence_attempts == scene.limits.fence_attempts
    tries = [event.at for event in scene.store.events(process_id) if event.name == "fence_failed"]
    assert len(set(tries)) == len(tries) == scene.limits.fence_attempts, "it did not back off"
    return process_id


@pytest.mark.parametrize(
    ("commit", "outcome"),
    [("late", Outcome.NOT_APPLIED), ("dropped", Outcome.NOT_APPLIED), ("lost", Outcome.APPLIED)],
)
def test_an_unknown_outcome_keeps_its_lock_until_it_is_resolved(
    scene: Scene, commit: str, outcome: Outcome
) -> None:
    process_id = unknown(scene, commit)
    holder = scene.store.holder("a")
    assert holder is not None and holder.id == process_id
    with pytest.raises(RefusedError, match="not known yet"):
        retry(scene.store, process_id)
    with pytest.raises(RefusedError):
        scene.submit(key="a")
    scene.world.down.clear()
    worker = scene.worker()
    for _ in range(5):
        scene.clock.advance(3600)
        worker.tick()
    row = scene.row(process_id)
    assert row.state is ProcessState.FAILED
    assert row.error is not None and row.error.outcome is outcome
    assert scene.store.holder("a") is None
    scene.world.land_late()
    for _ in range(30):
        scene.clock.advance(3600)
        worker.tick()
    scene.check_settled()
    gone = Leftovers.GONE if outcome is Outcome.NOT_APPLIED else Leftovers.NONE
    assert scene.row(process_id).leftovers is gone


def test_a_plan_that_is_gone_is_never_taken_for_nothing_sent(scene: Scene) -> None:
    process_id = publishing(scene, "late")
    scene.store.rows.plans.clear()
    cancel(scene.store, process_id)
    written = set(scene.world.files)
    scene.run(scene.worker(), seconds=30.0)
    row = scene.row(process_id)
    assert row.error is not None and row.error.outcome is Outcome.UNKNOWN
    told = [event.message for event in scene.store.events(process_id) if event.name == "fence_failed"]
    assert told and all(message.startswith("plan_missing") for message in told)
    assert set(scene.world.files) == written, "files of a commit that may land were deleted"


def test_an_unknown_outcome_is_resolved_also_when_nothing_live_waits_for_the_destination(
    scene: Scene,
) -> None:
    """Its tries ran out long before its deadline, and then the destination went down: the breaker has to
    be probed for the sake of an ended process, or it stays open, and the lock held, for ever."""
    process_id = publishing(scene, "lost")
    tries = [UnknownOutcomeError("no answer", code="publish_unknown")] * scene.limits.publish_attempts
    scene.world.fail("publish", *tries)
    scene.world.fail("fence", *[UnavailableError("down", code="down")] * scene.limits.fence_attempts)
    scene.run(scene.worker(), seconds=60.0)
    row = scene.row(process_id)
    assert row.error is not None and row.error.outcome is Outcome.UNKNOWN
    scene.store.trip(row.lane, "it does not answer", scene.limits.probe_seconds)
    worker = scene.worker()
    for _ in range(3):
        scene.clock.advance(3600)
        worker.tick()
    row = scene.row(process_id)
    assert row.deadline_at > scene.store.now(), "the deadline had no part in it"
    assert row.error is not None and row.error.outcome is Outcome.APPLIED
    assert not scene.store.breakers()
    assert scene.store.holder("a") is None


def test_nothing_is_deleted_while_the_outcome_is_unknown(scene: Scene) -> None:
    unknown(scene, "late")
    worker = scene.worker()
    for _ in range(50):
        scene.clock.advance(3600)
        worker.tick()
    assert len(scene.world.files) == 2
    assert scene.world.calls["undo"] == 0
    scene.world.land_late()  # and then it lands
    scene.check()


def test_undo_that_fails_is_tried_again(scene: Scene) -> None:
    process_id = failed(scene)
    down = UnavailableError("down", code="down", service="catalog:lake")
    scene.world.fail("undo", down, down)
    worker = scene.worker()
    for _ in range(6):
        scene.clock.advance(scene.limits.keep_failed_hours * 3600)
        worker.tick()
    assert scene.row(process_id).leftovers is Leftovers.GONE
    assert scene.row(process_id).cleanup_attempts == 2
    assert not scene.world.files
