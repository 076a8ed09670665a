"""A server that dies inside of a MOVE leaves some parts at both places. Rows are there once in the end, and what nobody can tell
apart waits for a person."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from release_scene import ALL, ROWS, UUID, FakeHot, Part, ReleaseScene

from calve.app.doctor.finding import Finding
from calve.app.doctor.releases import moving
from calve.app.pages.attention import CARD_KINDS
from calve.app.pages.cards.card import Card, Glance
from calve.app.pages.cards.policies import halfway
from calve.model.errors import Outcome, TemporaryError
from calve.model.states import ProcessState, ReleaseState

_CARDS = ("halfway_cards", "kept_out_cards")
OPEN, CLOSED, BACK = f"{UUID}_1_open", f"{UUID}_1", f"{UUID}_1_back"


def _cut(scene: ReleaseScene, monkeypatch: pytest.MonkeyPatch, call: str, cut: Callable[[], object]) -> None:
    """The first such statement ends in the middle, and never answers."""
    real = getattr(FakeHot, call)

    def dies(self: FakeHot, attempt: object, query_id: str) -> None:
        monkeypatch.setattr(FakeHot, call, real)
        scene.world.allowed_to_lose = True  # rows are there twice for now
        cut()
        raise TemporaryError("no answer", code="no_answer")

    monkeypatch.setattr(FakeHot, call, dies)


def _is_whole(scene: ReleaseScene) -> None:
    assert (scene.world.hot, scene.world.held) == (scene.world.everything, [])
    assert scene.release.state is ReleaseState.RETURNED
    assert scene.world.problems == []


def test_a_return_that_was_cut_off_brings_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id

    def cut() -> None:
        scene.world.places[BACK] = scene.world.places.pop(CLOSED)
        scene.world.table.append(Part(ROWS[0], 20))

    _cut(scene, monkeypatch, "put_back", cut)
    assert scene.settle(scene.submit_undo(id)).state is ProcessState.COMPLETED
    _is_whole(scene)


def test_a_server_that_dies_again_while_copies_are_removed_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = ReleaseScene()
    scene.world.table = [Part(frozenset({row}), row) for row in ALL]
    id = scene.settle(scene.submit()).id

    def cut() -> None:
        scene.world.places[BACK] = scene.world.places.pop(CLOSED)
        scene.world.table += [Part(frozenset({row}), 20 + row) for row in ALL[:4]]

    _cut(scene, monkeypatch, "put_back", cut)
    _cut(scene, monkeypatch, "thin", lambda: scene.world.places[BACK].pop(0))
    assert scene.settle(scene.submit_undo(id)).state is ProcessState.COMPLETED
    _is_whole(scene)


def test_a_move_that_was_cut_off_ends_with_the_rows_in_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReleaseScene()

    def cut() -> None:
        scene.world.places[OPEN] += scene.world.table
        scene.world.table = scene.world.table[:1]

    _cut(scene, monkeypatch, "take_out", cut)
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "divided")
    _is_whole(scene)


def test_what_was_merged_since_a_return_was_cut_off_waits_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id
    merged = Part(ROWS[0] | ROWS[1] | {9}, 30)

    def cut() -> None:
        scene.world.places[BACK] = scene.world.places.pop(CLOSED)
        scene.world.table.append(merged)
        scene.world.everything.append(9)

    _cut(scene, monkeypatch, "put_back", cut)
    row = scene.settle(scene.submit_undo(id), ticks=60)
    assert (row.state, scene.world.held) == (ProcessState.PUBLISHING, ALL)
    assert row.error is not None
    assert "DETACH PART 'p30'" in row.error.hint
    assert halfway([row], [], row.created_at + timedelta(hours=2)) == [row]
    scene.world.table.remove(merged)  # DETACH, as the hint says
    scene.world.insert(9)
    scene.world.everything.remove(9)
    assert scene.settle(row.id).state is ProcessState.COMPLETED
    _is_whole(scene)


def test_a_move_that_was_cut_off_and_sent_again_waits_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quarantine has every part twice; a return would double the rows."""
    scene = ReleaseScene()

    def cut() -> None:
        again = [Part(one.rows, 10 + one.block) for one in scene.world.table]
        scene.world.places[OPEN] += [*scene.world.table, *again]
        scene.world.table = []

    _cut(scene, monkeypatch, "take_out", cut)
    row = scene.settle(scene.submit(), ticks=1000)
    assert (scene.world.hot, scene.world.held) == ([], sorted(ALL * 2))
    assert row.error is not None
    assert row.error.outcome is Outcome.UNKNOWN
    [card], _ = _told(scene)
    assert card.kind == "halfway"
    assert any("has parts twice" in one.message for one in scene.memory.events(row.id))
    place = next(some for some in scene.world.places.values() if some)
    del place[2:]  # as the hint says
    worker = scene.worker()
    for _ in range(20):
        scene.clock.advance(3600.0)
        worker.tick()
    _is_whole(scene)


def test_parts_that_were_twins_in_the_table_come_back_as_twins() -> None:
    scene = ReleaseScene()
    scene.world.table = [Part(ROWS[0], 1), Part(ROWS[0], 2), Part(ROWS[1], 3)]
    scene.world.everything = scene.world.lake = sorted([*ALL, *ROWS[0]])
    id = scene.settle(scene.submit()).id
    assert scene.settle(scene.submit_undo(id)).state is ProcessState.COMPLETED
    assert scene.world.hot == scene.world.everything


def _told(scene: ReleaseScene) -> tuple[list[Card], list[Finding]]:
    """On the first page, and by doctor."""
    app = cast(Any, SimpleNamespace(store=scene.memory, registry=scene.memory))
    found = [card for make in CARD_KINDS if make.__name__ in _CARDS for card in make(Glance(app))]
    return found, list(moving(app))


def test_what_hangs_half_way_is_a_card_and_a_finding_of_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReleaseScene()
    id = scene.settle(scene.submit()).id
    assert _told(scene) == ([], [])

    def refuse(*_: object) -> None:
        raise TemporaryError("no answer", code="no_answer", hint="start the server")

    monkeypatch.setattr(FakeHot, "put_back", refuse)
    row = scene.settle(scene.submit_undo(id), ticks=5)
    assert _told(scene) == ([], [])
    scene.clock.advance(3700.0)
    [card], [finding] = _told(scene)
    assert (card.kind, card.ids, card.code) == ("halfway", (row.id,), "no_answer")
    assert card.command == f"calve why {row.id}"
    assert (finding.ok, finding.remedy) == (False, "start the server")


def test_what_a_mutation_keeps_out_is_told_with_what_brings_it_back() -> None:
    scene = ReleaseScene()
    scene.world.lake = [*ALL[:-1], 99]  # so it must go back
    scene.world.before["close"] = lambda: setattr(scene.world, "mutations", ("mutation_9.txt",))
    row = scene.settle(scene.submit())
    assert (row.state, scene.release.state) == (ProcessState.FAILED, ReleaseState.RETURNING)
    [card], [finding] = _told(scene)
    assert (card.kind, card.code, card.ids) == ("halfway", "mutated", (row.id,))
    assert card.command == "calve policy undo --force main:db.events 202401"
    assert not finding.ok
    assert "202401 --force" in finding.remedy
    assert scene.settle(scene.submit_undo(row.id, insist=True)).state is ProcessState.COMPLETED
    assert _told(scene) == ([], [])


def test_parts_that_come_while_nothing_moves_back_are_not_taken_for_ones_that_came_back() -> None:
    scene = ReleaseScene()
    scene.world.lake = [*ALL[:-1], 99]
    scene.world.before["close"] = lambda: setattr(scene.world, "mutations", ("mutation_9.txt",))
    id = scene.settle(scene.submit()).id
    scene.world.table.append(Part(frozenset({7, 8, 9, 10}), 30))
    scene.world.everything += [7, 8, 9, 10]
    back = scene.settle(scene.submit_undo(id, insist=True))
    assert back.state is ProcessState.COMPLETED, back.error
    _is_whole(scene)
