"""Rows are dropped from quarantine only if everything was proven again, whichever call fails or dies; what is not allowed leaves
them where a person can bring them back."""

import contextlib
from collections.abc import Callable

import pytest
from release_scene import ALL, UUID, FakeHot, Part, ReleaseScene

from calve.model.access import Asked
from calve.model.process import ProcessId
from calve.model.states import ProcessState, ReleaseState
from calve.model.tier import Hold
from calve.testing.faults import Break, Crash, Faults

_LEASES_OVER = ReleaseScene.limits.lease_seconds + 1
_DAY = 86_400.0


def _quarantined(faults: Faults | None = None) -> tuple[ReleaseScene, ProcessId]:
    scene = ReleaseScene(faults)
    scene.faults.armed = False
    id = scene.settle(scene.submit()).id
    scene.clock.advance(_DAY + 1)
    scene.faults.armed = True
    return scene, id


def _drop(scene: ReleaseScene, id: ProcessId) -> ProcessId:
    drop = scene.submit_drop(id)
    with contextlib.suppress(Crash):
        scene.settle(drop)
    return drop


def _is_dropped(scene: ReleaseScene) -> None:
    assert scene.release.state is ReleaseState.DROPPED
    assert (sorted(scene.world.dropped), scene.world.places, scene.world.shown) == (ALL, {}, ALL)
    assert scene.world.marks[scene.release.process_id] == ""


def _is_kept(scene: ReleaseScene, id: ProcessId) -> None:
    """And a person can bring the rows back."""
    assert (scene.release.state, scene.world.held) == (ReleaseState.QUARANTINED, ALL)
    assert scene.settle(scene.submit_undo(id)).state is ProcessState.COMPLETED
    assert scene.world.hot == ALL


def test_a_drop_deletes_the_quarantine_and_the_lake_keeps_its_marks() -> None:
    scene, id = _quarantined()
    row = scene.settle(scene.submit_drop(id))
    assert (row.state, row.rows) == (ProcessState.COMPLETED, len(ALL)), row.error
    assert (scene.release.backup, scene.world.problems) == ("nightly", [])
    _is_dropped(scene)
    again = scene.settle(scene.submit_drop(id))
    assert again.state is ProcessState.COMPLETED
    undo = scene.settle(scene.submit_undo(id))
    assert undo.error is not None
    assert undo.error.code == "not_in_quarantine"


@pytest.mark.parametrize("how", list(Break))
def test_breaking_at_any_call_drops_once_and_proves_all_of_it_before(how: Break) -> None:
    whole, id = _quarantined()
    _drop(whole, id)
    assert {"remove"} < set(whole.faults.calls)
    for at, call in enumerate(whole.faults.calls, start=1):
        scene, id = _quarantined(Faults(at=at, how=how))
        drop = _drop(scene, id)
        scene.faults.armed = False
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(drop), f"{how} call {at} ({call})"
        assert row.state is ProcessState.COMPLETED, (where, row.error)
        assert scene.world.problems == [], where
        _is_dropped(scene)


@pytest.mark.parametrize("how", [Break.BEFORE, Break.AFTER])
def test_a_cancel_after_any_call_that_broke_keeps_the_rows_or_comes_too_late(how: Break) -> None:
    whole, id = _quarantined()
    _drop(whole, id)
    ends = set()
    for at, call in enumerate(whole.faults.calls, start=1):
        scene, id = _quarantined(Faults(at=at, how=how))
        drop = _drop(scene, id)
        scene.memory.request_cancel(drop)
        scene.faults.armed = False
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(drop), f"{how} call {at} ({call})"
        assert scene.world.problems == [], where
        ends.add(row.state)
        if row.state is ProcessState.COMPLETED:
            _is_dropped(scene)
        else:
            _is_kept(scene, id)
    assert ends == {ProcessState.COMPLETED, ProcessState.CANCELLED}


def _hold(scene: ReleaseScene) -> None:
    hold = Hold(id="h", name="main:db.events", who="anne", reason="audit")
    scene.memory.add_hold(hold, Asked(who="anne", verb="hold_add"))


def _no_backup(scene: ReleaseScene) -> None:
    scene.backup = "another"


def _unmarked(scene: ReleaseScene) -> None:
    scene.world.marks[scene.release.process_id] = "gone"


def _other_row_in_the_lake(scene: ReleaseScene) -> None:
    scene.world.lake = [*ALL[:-1], 99]


def _other_row_in_quarantine(scene: ReleaseScene) -> None:
    scene.world.places[f"{UUID}_1"][0] = Part(frozenset({1, 2, 98}), 1)


def _early(scene: ReleaseScene) -> None:
    scene.clock.advance(-10.0)


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (_hold, "held"),
        (_no_backup, "no_backup"),
        (_unmarked, "mark_missing"),
        (_other_row_in_the_lake, "quarantine_differs"),
        (_other_row_in_quarantine, "quarantine_differs"),
        (_early, "grace"),
    ],
)
def test_what_is_not_as_it_was_proven_is_not_dropped(stop: Callable[[ReleaseScene], None], code: str) -> None:
    scene, id = _quarantined()
    stop(scene)
    row = scene.settle(scene.submit_drop(id))
    assert row.error is not None
    assert (row.state, row.error.code, scene.world.dropped) == (ProcessState.FAILED, code, [])
    assert scene.release.state is ReleaseState.QUARANTINED


def test_what_nobody_approved_is_not_dropped() -> None:
    scene, id = _quarantined()
    row = scene.settle(scene.submit_drop(id, approved=False))
    assert row.error is not None
    assert (row.error.code, scene.world.dropped) == ("not_approved", [])
    _is_kept(scene, id)


def _rewrite(scene: ReleaseScene) -> None:
    scene.world.files = ("file-2",)


@pytest.mark.parametrize(
    ("stop", "code"), [(_rewrite, "lake_changed"), (_no_backup, "no_backup"), (_hold, "held")]
)
def test_what_changes_after_the_lake_was_read_stops_a_drop(
    stop: Callable[[ReleaseScene], None], code: str
) -> None:
    scene, id = _quarantined()
    drop, worker = scene.submit_drop(id), scene.worker()
    while scene.memory.process(drop).state is not ProcessState.PUBLISHING:
        worker.tick()
        scene.clock.advance(1.0)
    stop(scene)
    row = scene.settle(drop, worker)
    assert row.error is not None
    assert (row.error.code, scene.world.dropped) == (code, [])
    _is_kept(scene, id)


def test_a_statement_that_wakes_up_after_a_cancel_deletes_nothing() -> None:
    scene, id = _quarantined()
    asleep: list[Callable[[], None]] = []
    real = FakeHot.remove

    def sleep(self: FakeHot, attempt: object, process_id: str, query_id: str) -> None:
        closed = self.world.places.pop(f"{UUID}_1")
        self.world.places[f"{UUID}_1_drop_{process_id}"] = closed
        asleep.append(lambda: self.drop_statement(attempt, process_id))  # type: ignore[arg-type]
        FakeHot.remove = real  # type: ignore[method-assign]
        raise Crash("stopped")

    FakeHot.remove = sleep  # type: ignore[method-assign,assignment]
    try:
        drop = _drop(scene, id)
    finally:
        FakeHot.remove = real  # type: ignore[method-assign]
    scene.memory.request_cancel(drop)
    scene.clock.advance(_LEASES_OVER)
    assert scene.settle(drop).state is ProcessState.CANCELLED
    asleep[0]()
    assert scene.world.dropped == []
    _is_kept(scene, id)
