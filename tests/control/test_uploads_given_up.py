"""Uploads that an ended process gave up are looked for at once, again while there are any, and at last
when no attempt can be alive; never at the cost of anything else."""

from calve.control.retry import retry
from calve.model.errors import ErrorInfo, TemporaryError
from calve.model.ids import ProcessId
from calve.model.states import PROCESS_TERMINAL, Leftovers, ProcessState
from calve.testing.scene import Deferred, Scene

DENIED = ErrorInfo(code="denied", message="wrong credentials")
LOST = ErrorInfo(code="lost", message="its executor was killed", retryable=True)


def failed(scene: Scene, uploads: int = 0) -> ProcessId:
    process_id = scene.submit(tasks=2, key="a")
    scene.runner.script[process_id, 1] = [DENIED]
    scene.world.uploads[process_id] = uploads
    scene.run(scene.worker())
    assert scene.state(process_id) is ProcessState.FAILED
    return process_id


def looks(scene: Scene) -> int:
    return scene.world.calls["abort_uploads"]


def tick_through(scene: Scene, seconds: float, step: float = 1.0) -> None:
    worker = scene.worker()
    for _ in range(int(seconds / step)):
        worker.tick()
        scene.clock.advance(step)
    worker.tick()


def test_they_are_aborted_at_once_and_the_files_stay_for_a_retry(scene: Scene) -> None:
    process_id = failed(scene, uploads=2)
    scene.worker().tick()
    assert not scene.world.uploads
    assert "uploads_aborted" in scene.events(process_id)
    row = scene.row(process_id)
    assert (row.leftovers, row.owner) == (Leftovers.KEPT, None)
    assert scene.world.files, "what is whole was deleted"


def test_while_there_are_any_it_looks_again_after_twice_the_time(scene: Scene) -> None:
    process_id, worker = failed(scene), scene.worker()
    for _ in range(240):
        scene.world.uploads[process_id] = 1  # of an executor that nobody could stop
        worker.tick()
        scene.clock.advance(5)
    assert 6 <= looks(scene) <= 12, "in twenty minutes"
    assert scene.row(process_id).uploads_at is not None


def test_a_last_look_comes_when_no_attempt_can_be_alive_and_then_none(scene: Scene) -> None:
    process_id = failed(scene)
    tick_through(scene, 10)
    assert looks(scene) == 1
    scene.world.uploads[process_id] = 1  # begun later, by an executor that had lost its driver
    scene.clock.advance(scene.limits.task_seconds)
    tick_through(scene, 10)
    assert not scene.world.uploads
    scene.clock.advance(2 * scene.limits.task_seconds)
    tick_through(scene, 10)
    assert scene.row(process_id).uploads_at is None
    seen = looks(scene)
    scene.clock.advance(2 * scene.limits.task_seconds)
    tick_through(scene, 10)
    assert looks(scene) == seen


def test_a_look_that_fails_is_told_and_repeated(scene: Scene) -> None:
    process_id = scene.submit(tasks=2, key="a")
    scene.runner.script[process_id, 1] = [DENIED]
    scene.world.uploads[process_id] = 1
    scene.world.fail("abort_uploads", TemporaryError("no", code="storage_failed"), RuntimeError("a defect"))
    scene.run(scene.worker())
    tick_through(scene, 60)
    assert scene.events(process_id).count("uploads_not_aborted") == 2
    assert not scene.world.uploads
    scene.check_settled()


def test_a_retry_that_adopts_the_files_does_not_keep_the_uploads(scene: Scene) -> None:
    old = failed(scene, uploads=1)
    new = retry(scene.store, old)
    scene.ids.append(new.id)
    assert scene.row(old).leftovers is Leftovers.ADOPTED
    worker = scene.worker()
    worker.tick()
    assert not scene.world.uploads and scene.world.calls["undo"] == 0
    scene.run(worker)
    assert scene.state(new.id) is ProcessState.COMPLETED
    scene.check_settled()


def test_attempts_that_are_being_stopped_have_their_time_first(scene: Scene) -> None:
    deferred = Deferred()
    worker = scene.worker(spawn=deferred)
    process_id = scene.submit(tasks=1)
    for _ in range(2):  # planned, then started: the wave itself hangs
        worker.tick()
        if scene.state(process_id) is ProcessState.PENDING:
            deferred.run()
    scene.world.uploads[process_id] = 1
    scene.store.request_cancel(process_id)
    worker.tick()
    assert scene.state(process_id) is ProcessState.CANCELLED
    hanging = list(deferred.works)
    worker.tick()
    assert deferred.works == hanging, "it looked while its attempt ran"
    scene.clock.advance(scene.limits.cancel_seconds)
    worker.tick()
    assert len(deferred.works) == len(hanging) + 1, "it waited for what may never end"
    deferred.works[-1]()
    assert not scene.world.uploads


def test_a_storage_that_is_down_is_not_asked(scene: Scene) -> None:
    process_id = failed(scene, uploads=1)
    scene.store.trip("catalog:lake", "it does not answer", 600)
    scene.world.down.add("catalog:lake")
    tick_through(scene, 30)
    assert looks(scene) == 0
    scene.world.down.clear()
    scene.clock.advance(600)
    tick_through(scene, 10)
    assert not scene.world.uploads
    assert "uploads_not_aborted" not in scene.events(process_id)


def test_a_storage_that_does_not_answer_a_look_is_left_alone_until_it_does(scene: Scene) -> None:
    process_id = failed(scene, uploads=1)
    scene.world.down.add("catalog:lake")
    tick_through(scene, 120)
    assert looks(scene) == 1 and [breaker.lane for breaker in scene.store.breakers()] == ["catalog:lake"]
    scene.world.down.clear()
    tick_through(scene, 30)
    assert not scene.world.uploads and scene.store.breakers() == []
    assert scene.events(process_id).count("uploads_not_aborted") == 1


def test_a_completed_process_looks_only_if_an_attempt_was_given_up(scene: Scene) -> None:
    smooth = scene.submit(tasks=2)
    scene.run(scene.worker())
    tick_through(scene, 10)
    assert (scene.state(smooth), looks(scene)) == (ProcessState.COMPLETED, 0)
    bumpy = scene.submit(tasks=2)
    scene.runner.script[bumpy, 1] = [LOST]
    scene.world.uploads[bumpy] = 1
    tick_through(scene, 30)
    assert scene.state(bumpy) is ProcessState.COMPLETED
    assert not scene.world.uploads
    scene.check_settled()


def test_what_never_had_a_plan_owes_no_look(scene: Scene) -> None:
    process_id = scene.submit()
    scene.store.request_cancel(process_id)
    scene.run(scene.worker())
    assert scene.state(process_id) in PROCESS_TERMINAL
    assert scene.row(process_id).uploads_at is None
