"""T16: the same request again joins what is under way; another that overlaps is refused."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from calve.control.client import Submitted, submit_once
from calve.model.errors import LockedError
from calve.model.process import Lock, NewProcess, Process, new_process_id
from calve.model.states import ProcessState
from calve.testing.scene import Scene

Interruption = Callable[[], object]


def ask(scene: Scene, asked: str, *keys: str, first: Interruption = lambda: None) -> Submitted:
    """One process for each key that the request has not under way; `first` happens between the look and
    the submit."""

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        covered = {key for process in joined for key in process.partitions}
        made = [_new(asked, key) for key in keys if key not in covered]
        first()
        return made

    answer = submit_once(scene.store, lambda one: json.loads(one.request)["asked"] == asked, missing)
    scene.ids += [one.id for one in answer.processes if one.id not in scene.ids]
    return answer


def _new(asked: str, key: str) -> NewProcess:
    return NewProcess(
        id=new_process_id(),
        kind="fake",
        source="main:db.events",
        destination="lake.ns.events",
        lane="catalog:lake",
        needs=("source:main", "catalog:lake"),
        request=json.dumps({"asked": asked, "tasks": 1}),
        partitions=(key,),
        locks=(Lock(name=key),),
    )


def ids(answer: Submitted) -> list[str]:
    return [process.id for process in answer.processes]


def test_T16_what_is_under_way_is_joined_and_nothing_is_queued(scene: Scene) -> None:
    first = ask(scene, "x", "a", "b")
    again = ask(scene, "x", "a", "b")
    assert not first.joined
    assert ids(again) == ids(first)
    assert again.joined == frozenset(ids(first))


def test_T16_what_is_left_of_a_request_is_queued_beside_what_is_joined(scene: Scene) -> None:
    [first] = ask(scene, "x", "a").processes
    again = ask(scene, "x", "a", "b")
    assert again.joined == {first.id}
    assert [one.partitions for one in again.processes] == [("a",), ("b",)]


def test_T16_another_request_that_overlaps_is_refused_with_how_to_follow_or_stop_it(scene: Scene) -> None:
    [first] = ask(scene, "x", "a").processes
    with pytest.raises(LockedError, match=first.id) as refused:
        ask(scene, "y", "b", "a")
    assert refused.value.code == "locked"
    assert f"calve wait {first.id}" in refused.value.hint
    assert f"calve cancel {first.id}" in refused.value.hint
    assert [one.id for one in scene.store.live()] == [first.id]


def test_T16_of_two_who_ask_at_once_one_queues_and_the_other_joins(scene: Scene) -> None:
    others: list[Submitted] = []

    def meanwhile() -> None:
        if not others:
            others.append(ask(scene, "x", "a", "b"))

    answer = ask(scene, "x", "a", "b", first=meanwhile)
    assert ids(answer) == ids(others[0])
    assert answer.joined == frozenset(ids(answer))
    scene.run(scene.worker())
    scene.check_settled()
    assert len(scene.world.snapshots) == 2


def test_T16_the_other_may_have_completed_between_the_look_and_the_submit(scene: Scene) -> None:
    def meanwhile() -> None:
        if not scene.ids:
            ask(scene, "x", "a")
            scene.run(scene.worker())

    answer = ask(scene, "x", "a", first=meanwhile)
    assert not answer.joined
    assert [scene.state(one) for one in scene.ids] == [ProcessState.COMPLETED, ProcessState.PENDING]


def test_T16_who_is_always_overtaken_gives_up_after_a_few_tries(scene: Scene) -> None:
    """Only a store that lies could do this: what refuses is of the same request and never live."""
    [holder] = ask(scene, "x", "a").processes
    looks = 0

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        nonlocal looks
        looks += 1
        return [_new("x", "a")]

    with pytest.raises(LockedError, match=holder.id):
        submit_once(scene.store, lambda one: json.loads(one.request)["asked"] == "x", missing)
    assert 1 < looks < 10


@pytest.mark.parametrize("asked", ["x", "y"])
def test_T16_what_is_being_cancelled_is_not_joined(scene: Scene, asked: str) -> None:
    [first] = ask(scene, "x", "a").processes
    scene.store.request_cancel(first.id)
    with pytest.raises(LockedError, match="being cancelled") as refused:
        ask(scene, asked, "a")
    assert f"calve cancel {first.id}" in refused.value.hint
    scene.run(scene.worker())
    again = ask(scene, asked, "a")
    assert not again.joined and ids(again) != [first.id]


def test_T16_a_killed_worker_s_processes_are_taken_over_by_who_joined_them(scene: Scene) -> None:
    first = ask(scene, "x", "a")
    scene.worker().tick()  # planned; and no more is heard of that worker
    assert ids(ask(scene, "x", "a")) == ids(first)
    scene.clock.advance(scene.limits.lease_seconds + 1)
    scene.run(scene.worker())
    scene.check_settled()
    assert len(scene.world.snapshots) == 1


def test_T10_a_process_that_nobody_works_on_is_not_joined(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = ask(scene, "x", "a").processes
    damaged = replace(first, damaged="its error cannot be read")
    monkeypatch.setattr(scene.store, "live", lambda limit=0: [damaged])
    monkeypatch.setattr(scene.store, "process", lambda process_id: damaged)
    with pytest.raises(LockedError, match=first.id):
        ask(scene, "x", "a")


def test_T10_a_row_whose_request_cannot_be_read_stands_in_nobody_s_way(scene: Scene) -> None:
    from calve.export.request import ExportRequest

    scene.submit(key="a", tasks=1)
    answer = submit_once(
        scene.store,
        lambda one: bool(ExportRequest.from_json(one.request).asked),
        lambda joined: [_new("x", "b")],
    )
    assert not answer.joined and len(answer.processes) == 1
