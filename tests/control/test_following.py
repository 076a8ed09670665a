"""Following processes: progress for a bar, until all have ended."""

import pytest

from calve.control.client import follow
from calve.model.errors import StoreError
from calve.model.states import ProcessState
from calve.testing.scene import Scene


def test_progress_grows_until_all_have_ended(scene: Scene) -> None:
    ids = [scene.submit(tasks=4, key="a"), scene.submit(tasks=2, key="b")]
    worker = scene.worker()
    seen = list(follow(scene.store, ids, wait=lambda _: worker.tick()))
    done = [progress.tasks_done for progress in seen]
    assert done == sorted(done) and done[0] == 0
    last = seen[-1]
    assert (last.tasks_done, last.tasks_total, last.rows) == (6, 6, 600)
    assert [progress.ended for progress in seen] == [False] * (len(seen) - 1) + [True]
    assert {row.state for row in last.processes} == {ProcessState.COMPLETED}


def test_a_store_that_blinks_ends_no_watching_but_one_that_stays_away_does(scene: Scene) -> None:
    process_id = scene.submit()
    worker = scene.worker()
    read, blinks = scene.store.process, [3]

    def blinking(key):  # type: ignore[no-untyped-def]
        if blinks[0] > 0:
            blinks[0] -= 1
            raise StoreError("away", code="away")
        return read(key)

    scene.store.process = blinking  # type: ignore[method-assign]
    assert list(follow(scene.store, [process_id], wait=lambda _: worker.tick()))[-1].ended
    blinks[0] = 100
    with pytest.raises(StoreError):
        list(follow(scene.store, [process_id], wait=lambda _: None))
