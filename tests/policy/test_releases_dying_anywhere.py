"""Whichever call of a release or of its return fails or dies, and whatever happens meanwhile: each row is shown once, none is
lost, and a partition ends in quarantine, proven, or back in its table."""

import contextlib
from collections.abc import Callable

import pytest
from release_scene import ALL, IDENTITY, UUID, FakeHot, Part, ReleaseScene

from calve.clickhouse.tier.obstacles import Obstacle
from calve.model.access import Asked, Halt
from calve.model.errors import CalveError
from calve.model.process import ProcessId
from calve.model.states import ProcessState, ReleaseState
from calve.model.tier import POLICY_HALT, Hold
from calve.testing.faults import Break, Crash, Faults

_LEASES_OVER = ReleaseScene.limits.lease_seconds + 1
_ASKED = Asked(who="anne", verb="hold_add")


def _is_out(scene: ReleaseScene) -> None:
    assert scene.release.state is ReleaseState.QUARANTINED
    assert (scene.world.hot, scene.world.held, scene.world.cold) == ([], ALL, scene.view is not None)
    assert scene.world.marks[scene.release.process_id] == ""


def _is_back(scene: ReleaseScene) -> None:
    assert (scene.world.hot, scene.world.held, scene.world.cold) == (scene.world.everything, [], False)
    assert "" not in scene.world.marks.values()
    assert all(one.state is ReleaseState.RETURNED for one in scene.memory.releases(IDENTITY))


def test_a_release_and_its_return_move_every_row_once_and_never_show_it_twice() -> None:
    scene = ReleaseScene()
    row = scene.settle(scene.submit())
    assert (row.state, row.rows) == (ProcessState.COMPLETED, len(ALL)), row.error
    _is_out(scene)
    assert [one.step for one in scene.memory.intents(row.id)] == ["mark", "move"]
    back = scene.settle(scene.submit_undo(row.id))
    assert back.state is ProcessState.COMPLETED, back.error
    _is_back(scene)
    assert scene.world.problems == []


def _calls(work: Callable[[ReleaseScene], None]) -> list[str]:
    scene = ReleaseScene()
    work(scene)
    return list(scene.faults.calls)


def _release(scene: ReleaseScene) -> ProcessId:
    id = scene.submit()
    with contextlib.suppress(Crash):
        scene.settle(id)
    return id


@pytest.mark.parametrize("how", list(Break))
def test_breaking_at_any_call_ends_in_quarantine(how: Break) -> None:
    calls = _calls(lambda scene: _release(scene) and None)
    assert {"mark", "turn", "prepare", "take_out", "close"} < set(calls)
    for at, call in enumerate(calls, start=1):
        scene = ReleaseScene(Faults(at=at, how=how))
        id = _release(scene)
        scene.faults.armed = False
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(id), f"{how} call {at} ({call})"
        assert row.state is ProcessState.COMPLETED, (where, row.error)
        assert (scene.world.problems, scene.world.moves) == ([], 1), where
        _is_out(scene)


@pytest.mark.parametrize("how", list(Break))
def test_breaking_at_any_call_of_a_return_brings_the_rows_back(how: Break) -> None:
    def both(scene: ReleaseScene) -> None:
        scene.faults.armed = False
        id = _release(scene)
        scene.faults.armed = True
        undo = scene.submit_undo(id)
        with contextlib.suppress(Crash):
            scene.settle(undo)

    for at, call in enumerate(_calls(both), start=1):
        scene = ReleaseScene(Faults(at=at, how=how))
        both(scene)
        scene.faults.armed = False
        scene.clock.advance(_LEASES_OVER)
        [live] = scene.memory.live() or [None]
        if live is not None:
            scene.settle(live.id)
        assert scene.world.problems == [], f"{how} call {at} ({call})"
        _is_back(scene)


@pytest.mark.parametrize("how", [Break.BEFORE, Break.AFTER, Break.REPORTED_FAILED])
def test_a_cancel_after_any_call_that_broke_brings_the_rows_back_or_comes_too_late(how: Break) -> None:
    ends = set()
    for at, call in enumerate(_calls(lambda scene: _release(scene) and None), start=1):
        scene = ReleaseScene(Faults(at=at, how=how))
        id = scene.submit()
        worker = scene.worker()
        with contextlib.suppress(Crash):
            for _ in range(100):
                worker.tick()
                if len(scene.faults.calls) >= at:
                    break
                scene.clock.advance(1.0)
        scene.memory.request_cancel(id)
        scene.faults.armed = False
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(id), f"{how} call {at} ({call})"
        assert scene.world.problems == [], where
        ends.add(row.state)
        if row.state is ProcessState.COMPLETED:
            _is_out(scene)
        else:
            assert row.state is ProcessState.CANCELLED, (where, row.error)
            _is_back(scene)
    assert ends == {ProcessState.COMPLETED, ProcessState.CANCELLED}


# -- what stops a release before its next step ----------------------------------------------------


def _hold(scene: ReleaseScene) -> None:
    scene.memory.add_hold(Hold(id="h", name="main:db.events", who="anne", reason="audit"), _ASKED)


def _pause(scene: ReleaseScene) -> None:
    scene.memory.put_halt(Halt(kind=POLICY_HALT, source="events", who="anne", reason=""), _ASKED)


def _edit(scene: ReleaseScene) -> None:
    scene.hash = "h2"


def _delete(scene: ReleaseScene) -> None:
    scene.hash = ""
    scene.memory.announce("worker", [])


def _revoke(scene: ReleaseScene) -> None:
    scene.memory.revoke_approval(scene.memory.approvals()[0].seq, _ASKED)


def _insert(scene: ReleaseScene) -> None:
    scene.world.insert(7)


def _obstruct(scene: ReleaseScene) -> None:
    scene.world.obstacles = (Obstacle(code="ttl_first", words="a TTL"),)


def _rewrite(scene: ReleaseScene) -> None:
    scene.world.files = ("file-2",)


STOPS = {
    _hold: "held", _pause: "paused", _edit: "policy_differs", _delete: "policy_differs", _revoke: "not_approved",
    _insert: "source_changed", _obstruct: "ttl_first", _rewrite: "lake_changed",
}  # fmt: skip


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("before", ["plan", "mark", "prepare"])
def test_what_forbids_a_step_leaves_the_rows_in_their_table(
    stop: Callable[[ReleaseScene], None], before: str
) -> None:
    scene = ReleaseScene()
    if before == "plan":
        stop(scene)
    else:
        scene.world.before[before] = lambda: stop(scene)
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, STOPS[stop])
    assert (scene.world.moves, scene.world.problems) == (0, [])
    _is_back(scene)


# -- what makes rows go back ----------------------------------------------------------------------


@pytest.mark.parametrize("view", [True, False])
def test_rows_that_differ_from_the_lake_go_back_at_once(view: bool) -> None:
    scene = ReleaseScene(view=view)
    scene.world.lake = [*ALL[:-1], 99]
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "quarantine_differs")
    assert scene.world.moves == 1
    assert "they go back" in scene.release.error
    _is_back(scene)


def test_a_row_that_came_between_the_look_and_the_move_makes_all_of_them_go_back() -> None:
    scene = ReleaseScene()
    scene.world.before["take_out"] = lambda: scene.world.insert(7)
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.error.code, scene.world.hot) == ("quarantine_differs", [*ALL, 7])
    _is_back(scene)


def test_a_lake_that_was_rewritten_after_the_move_makes_them_go_back() -> None:
    scene = ReleaseScene()
    scene.world.before["close"] = lambda: _rewrite(scene)
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.error.code, scene.world.moves) == ("lake_changed", 1)
    _is_back(scene)


def test_a_view_that_shows_other_rows_makes_them_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReleaseScene()
    assert scene.view is not None
    monkeypatch.setattr(type(scene.view), "differs", lambda *_: "5 rows")
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert row.error.code == "view_differs"
    _is_back(scene)


def test_a_view_that_the_plan_does_not_know_keeps_the_rows_in_their_table() -> None:
    scene = ReleaseScene(view=False)
    scene.appeared = True
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.state, row.error.code, scene.world.moves) == (ProcessState.FAILED, "view_appeared", 0)


def test_rows_wait_until_no_query_from_before_the_view_turned_is_left() -> None:
    scene = ReleaseScene()
    assert scene.view is not None
    scene.view.older_queries = ["q1 of bert", "q1 of bert"]
    seen: list[int] = []
    scene.world.before["take_out"] = lambda: seen.append(len(scene.view.older_queries))  # type: ignore[union-attr]
    assert scene.settle(scene.submit()).state is ProcessState.COMPLETED
    assert seen == [0]
    _is_out(scene)


def test_a_worker_that_wakes_up_right_before_its_move_moves_nothing() -> None:
    """D2: it announced, stopped, another brought the process to its end; rows that came since are not taken."""
    scene = ReleaseScene()
    asleep: list[Callable[[], None]] = []
    real = FakeHot.take_out

    def sleep(self: FakeHot, attempt: object, query_id: str) -> None:
        asleep.append(lambda: real(self, attempt, query_id))  # type: ignore[arg-type]
        FakeHot.take_out = real  # type: ignore[method-assign]
        raise Crash("stopped")

    FakeHot.take_out = sleep  # type: ignore[method-assign,assignment]
    try:
        id = _release(scene)
    finally:
        FakeHot.take_out = real  # type: ignore[method-assign]
    scene.memory.request_cancel(id)
    scene.clock.advance(_LEASES_OVER)
    assert scene.settle(id).state is ProcessState.CANCELLED
    with pytest.raises(CalveError):
        asleep[0]()
    assert scene.world.moves == 0
    _is_back(scene)


def test_rows_that_somebody_dropped_out_of_quarantine_keep_their_marks_for_ever() -> None:
    scene = ReleaseScene()
    scene.world.allowed_to_lose = True

    def drop() -> None:
        scene.world.places[f"{UUID}_1_open"].clear()

    scene.world.before["close"] = drop
    row = scene.settle(scene.submit())
    assert row.state is ProcessState.FAILED
    assert scene.release.state is ReleaseState.LOST
    assert scene.world.marks[row.id] == ""
    assert scene.world.shown == ALL  # by the lake


# -- undo -----------------------------------------------------------------------------------------


def _mutate(scene: ReleaseScene) -> None:
    scene.world.mutations = ("mutation_9.txt",)


@pytest.mark.parametrize(("change", "code"), [(_insert, "not_empty"), (_mutate, "mutated")])
def test_an_undo_is_refused_unless_insisted_on(change: Callable[[ReleaseScene], None], code: str) -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id
    change(scene)
    row = scene.settle(scene.submit_undo(id))
    assert row.error is not None
    assert (row.error.code, scene.world.held) == (code, ALL)
    assert scene.settle(scene.submit_undo(id, insist=True)).state is ProcessState.COMPLETED
    _is_back(scene)


def _calls_of_a_return() -> list[str]:
    scene = ReleaseScene()
    id = _release(scene)
    before = len(scene.faults.calls)
    scene.settle(scene.submit_undo(id))
    return list(scene.faults.calls)[before:]


@pytest.mark.parametrize("how", [Break.BEFORE, Break.AFTER, Break.REPORTED_FAILED])
def test_a_mutation_while_a_return_is_interrupted_keeps_the_rows_in_quarantine(how: Break) -> None:
    """Wherever it was: a DELETE that came before the rows moved is not undone by a later try."""
    ends, calls = set(), _calls_of_a_return()
    assert "put_back" in calls
    for at, call in enumerate(calls, start=1):
        scene = ReleaseScene()
        id = _release(scene)
        scene.faults.at, scene.faults.how = len(scene.faults.calls) + at, how
        undo = scene.submit_undo(id)
        worker = scene.worker()
        with contextlib.suppress(Crash):
            for _ in range(100):
                worker.tick()
                if len(scene.faults.calls) >= scene.faults.at:
                    break
                scene.clock.advance(1.0)
        scene.faults.armed = False
        moved = not scene.world.held
        _mutate(scene)
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(undo), f"{how} call {at} ({call})"
        ends.add(row.state)
        assert scene.world.problems == [], where
        if moved:
            assert (row.state, scene.world.held) == (ProcessState.COMPLETED, []), (where, row.error)
            continue
        assert row.error is not None, where
        assert (row.state, row.error.code) == (ProcessState.FAILED, "mutated"), where
        assert (scene.world.held, scene.world.came_back_after) == (ALL, set()), where
        assert scene.release.state is ReleaseState.QUARANTINED, where
        assert scene.settle(scene.submit_undo(id, insist=True)).state is ProcessState.COMPLETED
        _is_back(scene)
    assert ends == {ProcessState.COMPLETED, ProcessState.FAILED}


@pytest.mark.parametrize("how", [Break.BEFORE, Break.AFTER, Break.REPORTED_FAILED])
def test_a_release_that_ends_after_a_mutation_leaves_its_rows_to_a_person(how: Break) -> None:
    ends = set()
    for at, call in enumerate(_calls(lambda scene: _release(scene) and None), start=1):
        scene = ReleaseScene(Faults(at=at, how=how))
        id = scene.submit()
        worker = scene.worker()
        with contextlib.suppress(Crash):
            for _ in range(100):
                worker.tick()
                if len(scene.faults.calls) >= at:
                    break
                scene.clock.advance(1.0)
        scene.memory.request_cancel(id)
        scene.faults.armed = False
        out = bool(scene.world.held)
        _mutate(scene)
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(id), f"{how} call {at} ({call})"
        assert (scene.world.problems, scene.world.came_back_after) == ([], set()), where
        if row.state is ProcessState.COMPLETED:
            _is_out(scene)
            continue
        assert row.state is ProcessState.CANCELLED, (where, row.error)
        if not out:
            _is_back(scene)
            continue
        ends.add(scene.release.state)
        assert (scene.release.state, scene.world.held) == (ReleaseState.RETURNING, ALL), where
        refused = scene.settle(scene.submit_undo(id))
        assert refused.error is not None
        assert (refused.error.code, scene.world.held) == ("mutated", ALL), where
        assert scene.settle(scene.submit_undo(id, insist=True)).state is ProcessState.COMPLETED, where
        _is_back(scene)
    assert ends == {ReleaseState.RETURNING}


def test_rows_that_came_back_different_keep_the_marks() -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id
    scene.world.allowed_to_lose = True
    place = scene.world.places[f"{UUID}_1"]
    scene.world.before["put_back"] = lambda: place.__setitem__(0, Part(frozenset({1, 2, 98}), 1))
    row = scene.settle(scene.submit_undo(id))
    assert row.state is ProcessState.FAILED
    assert scene.world.marks[id] == ""
    assert scene.world.shown == ALL


def test_the_next_attempt_has_a_place_of_its_own() -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id
    scene.settle(scene.submit_undo(id))
    again = scene.settle(scene.submit())
    assert again.state is ProcessState.COMPLETED, again.error
    assert [one.place for one in scene.memory.releases(IDENTITY)] == [
        f"calve_released.{UUID}_1",
        f"calve_released.{UUID}_2",
    ]
    assert scene.world.problems == []
