"""Everything that cannot go on ends FAILED, with its reason, within its bound."""

from dataclasses import replace
from typing import Any

import pytest

from calve.control.budget import Breakers, backoff_seconds, holding_back, judge
from calve.control.ports import TaskResult
from calve.model.change import TaskChange
from calve.model.errors import ErrorInfo, PermanentError, TemporaryError
from calve.model.limits import Limits
from calve.model.process import Breaker, ProcessId, Task
from calve.model.states import Leftovers, ProcessState, TaskState
from calve.testing.fake_runner import Ends
from calve.testing.scene import Scene

FLAKY = ErrorInfo(code="flaky", message="it broke", retryable=True)


def end_of(scene: Scene, process_id: object) -> ErrorInfo:
    scene.run(scene.worker(), ticks=400, seconds=5.0)
    scene.check_settled()
    row = scene.row(process_id)  # type: ignore[arg-type]
    assert row.state is ProcessState.FAILED
    assert row.error is not None
    return row.error


def test_L14_publish_attempts_that_run_out_are_a_failure(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.fail("publish", *[TemporaryError("no luck", code="no_luck")] * 100)
    error = end_of(scene, process_id)
    assert error.code == "no_luck"
    assert scene.world.calls["publish"] == scene.limits.publish_attempts
    assert not scene.world.snapshots


def test_L17_publish_failures_use_a_budget_and_end_with_the_reason(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.commits = ["conflict"] * 100
    error = end_of(scene, process_id)
    assert f"publishing failed {scene.limits.publish_attempts} times" in error.message
    assert "the table moved" in error.message
    # A commit was sent, so it was fenced before it was called FAILED.
    assert process_id in scene.world.tombstones


def test_L23_missing_receipts_at_publish_are_an_error_that_counts(scene: Scene) -> None:
    process_id = scene.submit(tasks=2)
    worker = scene.worker()
    while scene.state(process_id) is not ProcessState.PUBLISHING:
        worker.tick()
    rows = scene.store.rows.tasks[process_id]  # type: ignore[attr-defined]
    rows[1] = replace(rows[1], receipt="")
    error = end_of(scene, process_id)
    assert error.code == "receipts_missing"
    assert scene.row(process_id).publish_attempts == scene.limits.publish_attempts


@pytest.mark.parametrize("call", ["take", "plan"])
def test_L26_what_cannot_be_planned_fails_within_its_attempts(scene: Scene, call: str) -> None:
    process_id = scene.submit()
    scene.world.fail(call, *[TemporaryError("the part is gone", code="gone")] * 100)
    error = end_of(scene, process_id)
    assert "the part is gone" in error.message
    assert scene.world.calls[call] == scene.limits.plan_attempts
    assert scene.row(process_id).leftovers is Leftovers.NONE


def test_L26_a_task_that_always_fails_ends_its_process_and_the_others_tasks(scene: Scene) -> None:
    process_id = scene.submit(tasks=4)
    scene.runner.script[process_id, 2] = [FLAKY] * 100
    error = end_of(scene, process_id)
    assert "task 2" in error.message and "it broke" in error.message
    assert scene.runner.script[process_id, 2] == [FLAKY] * (100 - scene.limits.task_attempts)


def test_L26_a_task_that_is_always_lost_ends_its_process(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    scene.runner.script[process_id, 0] = [Ends.LOST] * 100
    assert end_of(scene, process_id).code == "attempt_lost"


def test_D4_a_repeat_that_was_refused_becomes_another_attempt_and_uses_no_budget(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    lost = scene.limits.task_attempts + 1
    scene.runner.script[process_id, 0] = [Ends.REPEATED] * lost
    scene.run(scene.worker(), ticks=400, seconds=5.0)
    assert scene.state(process_id) is ProcessState.COMPLETED
    [task] = scene.store.tasks(process_id)
    assert (task.attempt, task.free_attempts) == (lost + 1, lost)
    assert scene.world.calls["find_receipt"] == lost, "what the first run left is looked for"


@pytest.mark.parametrize("call", ["take", "plan", "publish", "find_receipt"])
def test_P9_a_permanent_error_fails_at_once(scene: Scene, call: str) -> None:
    process_id = scene.submit(tasks=1)
    scene.runner.script[process_id, 0] = [Ends.LOST]
    scene.world.fail(call, PermanentError("wrong credentials", code="denied", hint="see the config"))
    error = end_of(scene, process_id)
    assert (error.code, error.hint) == ("denied", "see the config")
    assert scene.world.calls[call] == 1


def test_P9_a_permanent_error_of_a_task_fails_at_once(scene: Scene) -> None:
    process_id = scene.submit(tasks=1)
    scene.runner.script[process_id, 0] = [ErrorInfo(code="denied", message="wrong credentials")] * 2
    assert end_of(scene, process_id).code == "denied"
    assert len(scene.runner.script[process_id, 0]) == 1


def test_a_defect_in_a_kind_counts_like_any_other_error(scene: Scene) -> None:
    process_id = scene.submit()
    scene.kind.plan = lambda *_: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    error = end_of(scene, process_id)
    assert error.code == "internal" and "ZeroDivisionError" in error.message


def test_a_permanent_publish_error_after_a_send_is_fenced_first(scene: Scene) -> None:
    process_id = scene.submit()
    scene.world.commits = ["late"]
    worker = scene.worker()
    while not scene.world.sent:
        worker.tick()
    scene.world.fail("publish", PermanentError("the table is gone", code="gone"))
    assert end_of(scene, process_id).code == "gone"
    scene.world.land_late()
    assert not scene.world.snapshots
    scene.check_settled()


def test_back_off_doubles_up_to_its_bound_and_has_jitter() -> None:
    limits = Limits()
    lowest = [backoff_seconds(tries, limits, lambda: 0.0) for tries in range(1, 40)]
    highest = [backoff_seconds(tries, limits, lambda: 0.999) for tries in range(1, 40)]
    assert lowest[:3] == [0.5, 1.0, 2.0]
    assert max(highest) <= limits.backoff_most_seconds
    assert all(low < high for low, high in zip(lowest, highest, strict=True))


def _task(**given: Any) -> Task:
    known: dict[str, Any] = {
        "process_id": ProcessId("p"),
        "number": 1,
        "state": TaskState.RUNNING,
        "attempt": 3,
        "spec": "",
    }
    return Task(**known | given)


def _judged(error: ErrorInfo | None, limits: Limits, *, free: bool = False, **task: Any) -> TaskChange:
    return judge(_task(**task), TaskResult(number=1, attempt=3, error=error), limits, lambda: 0.5, free=free)


def test_what_an_attempt_costs_and_how_long_the_next_one_waits() -> None:
    limits = Limits(task_attempts=4, backoff_first_seconds=2.0)
    flaky = ErrorInfo(code="flaky", message="flaky", retryable=True)
    away = replace(flaky, service="catalog:lake")
    waits = (
        (
            _judged(flaky, limits),
            TaskState.PENDING,
            False,
            6.0,
        ),  # the third try: 2 s, doubled twice, and the jitter
        (_judged(flaky, limits, free_attempts=2), TaskState.PENDING, False, 1.5),
        (_judged(away, limits), TaskState.PENDING, True, 1.5),
        (_judged(flaky, limits, free=True), TaskState.PENDING, True, 1.5),
        (_judged(flaky, Limits(task_attempts=3)), TaskState.FAILED, False, 0.0),
        (_judged(flaky, Limits(task_attempts=3), free_attempts=1), TaskState.PENDING, False, 1.5),
        (_judged(replace(flaky, retryable=False), limits, free=True), TaskState.FAILED, False, 0.0),
    )
    for change, after, free, seconds in waits:
        assert (change.after, change.free, change.wait_seconds) == (after, free, seconds)


def test_a_breaker_forgets_what_answered_and_is_suspected_once(scene: Scene) -> None:
    breakers = Breakers(scene.store, Limits(breaker_failures=9))
    row = scene.row(scene.submit())
    away = ErrorInfo(code="away", message="away", retryable=True, service="catalog:lake")
    cluster = replace(away, service="spark:local[*]")
    breakers.met(row, [away, cluster])
    assert breakers.failed("catalog:lake", "away") == 2
    breakers.answered(row)
    assert breakers.take_suspected() == {}
    assert breakers.failed("catalog:lake", "away") == breakers.failed("spark:local[*]", "away") == 1
    breakers.close("catalog:lake")
    assert breakers.failed("catalog:lake", "away") == 1


def test_the_lane_s_breaker_is_told_before_the_source_s(scene: Scene) -> None:
    row, now = scene.row(scene.submit()), scene.store.now()
    lane, source, other = (
        Breaker(service=name, reason="", opened_at=now, probe_at=now)
        for name in ("catalog:lake", "source:main", "catalog:pond")
    )
    assert holding_back(row, [source, other, lane]) == lane
    assert holding_back(row, [other, source]) == source
    assert holding_back(row, [other]) is None
