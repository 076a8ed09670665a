"""The table remembers what was exported, so that no store has to (D1)."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from whole_life import IDS, Life

from calve.control.client import retry
from calve.model.errors import RefusedError
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner


def another_store(life: Life) -> Life:
    """The same lake and source, and a store that has never heard of either."""
    folder = life.folder.parent / "another"
    folder.mkdir()
    (folder / "lake").symlink_to(life.folder / "lake")
    other = Life(folder, life.kept, life.runner)
    other.ports.properties = life.ports.properties
    return other


def copied(life: Life) -> Path:
    copy = life.folder.parent / "copy.db"
    with closing(sqlite3.connect(life.folder / "calve.db")) as now:
        now.execute(f"VACUUM INTO '{copy}'")
    return copy


def put_back(life: Life, copy: Path) -> Life:
    """The store as it was, an hour later, and all that it knows run to its end."""
    life.store.close()
    for file in life.folder.glob("calve.db*"):
        file.unlink()
    shutil.copy(copy, life.folder / "calve.db")
    restored = Life(life.folder, life.kept, life.runner)
    restored.clock.advance(3600.0)
    restored.ids = list(life.ids)
    restored.run(restored.worker())
    return restored


def test_D1_another_store_is_told_that_everything_is_exported(life: Life) -> None:
    first = life.export()
    other = another_store(life)
    assert other.submit() == [], "nothing to do"
    with pytest.raises(RefusedError, match="another selection"):
        other.submit("202401", where="id < 10")
    assert life.exported_ids() == list(IDS)
    assert first.rows == len(IDS)
    other.close()


def test_D1_two_stores_that_both_began_publish_a_key_once(life: Life) -> None:
    other = another_store(life)
    [mine], [theirs] = life.submit(), other.submit()
    life.run_until(ProcessState.PUBLISHING, mine)
    other.run(other.worker())
    life.run(life.worker())
    first, second = other.row(theirs), life.row(mine)
    assert (first.state, second.state) == (ProcessState.COMPLETED,) * 2
    assert (first.rows, second.rows) == (len(IDS), 0)
    assert second.snapshot_id == first.snapshot_id
    life.keep_time_and_undo()
    life.check_settled()
    assert life.exported_ids() == list(IDS)
    # What the second wrote was not needed, and is gone.
    data = Path(str(life.table().location()).removeprefix("file://")) / "data"  # type: ignore[union-attr]
    assert not list(data.rglob(f"calve-{mine}-*"))
    other.close()


@pytest.mark.parametrize("yesterday", [ProcessState.PENDING, ProcessState.RUNNING, ProcessState.PUBLISHING])
def test_D1_a_store_restored_from_a_copy_finds_what_was_published_since(
    life: Life, yesterday: ProcessState
) -> None:
    [process_id] = life.submit()
    life.run_until(yesterday, process_id)
    copy = copied(life)
    life.run(life.worker())
    published = life.row(process_id)
    assert published.state is ProcessState.COMPLETED
    restored = put_back(life, copy)
    row = restored.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert row.snapshot_id == published.snapshot_id
    restored.check_settled()
    assert restored.exported_ids() == list(IDS)
    restored.close()


def test_D1_a_store_put_back_to_before_the_plan_takes_nothing_of_the_forgotten_plan(
    life: Life,
) -> None:
    """Neither its pin, which still holds the parts of then, nor its receipts."""
    [process_id] = life.submit()
    copy = copied(life)
    life.run_until(ProcessState.PUBLISHING, process_id)
    restored = put_back(life, copy)
    row = restored.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert {task.attempt for task in restored.store.tasks(process_id)} == {2}
    restored.check_settled()
    assert restored.exported_ids() == list(IDS)
    restored.close()


def test_D1_a_forced_export_of_which_only_the_table_knows_writes_over_no_published_file(life: Life) -> None:
    """`calve optimize` cleaned up its receipts, and the store was put back to before its plan."""
    [process_id] = life.submit(force=True)
    copy = copied(life)
    life.run(life.worker())
    published = life.row(process_id)
    for receipt in life.folder.rglob(f"{process_id}/*.json"):
        receipt.unlink()
    restored = put_back(life, copy)
    row = restored.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert (row.snapshot_id, restored.store.tasks(process_id)) == (published.snapshot_id, [])
    assert restored.exported_ids() == list(IDS)
    restored.close()


def test_D1_a_publish_that_landed_unseen_then_failed_is_not_published_again_by_a_retry(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    """The commit lands, its answer is lost, and from then on the catalog cannot be read."""
    life = Life(tmp_path / "life", source, runner, fence_attempts=2, publish_attempts=2)
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    catalog = life.ports.catalog("lake")
    really = catalog.load_table

    def unreadable(*_: object) -> object:
        raise TimeoutError("the catalog does not answer")

    def land_and_fall_silent(*args: Any) -> None:
        send(*args)
        catalog.load_table = unreadable  # type: ignore[method-assign,assignment]
        raise TimeoutError("the answer was lost")

    send = catalog.commit_table
    catalog.commit_table = land_and_fall_silent  # type: ignore[method-assign,assignment]
    life.run(life.worker(), ticks=30, seconds=30.0)
    life.store.request_cancel(process_id)
    life.run(life.worker(), ticks=30, seconds=30.0)
    row = life.row(process_id)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "outcome_unknown")
    with pytest.raises(RefusedError, match="not known yet"):
        retry(life.store, process_id)
    with pytest.raises(RefusedError) as locked:
        life.store.submit([_same_again(life, process_id)])
    assert locked.value.code == "locked"
    # The catalog answers again: what happened is found out, and nothing is repeated.
    catalog.load_table = really  # type: ignore[method-assign]
    life.clock.advance(7200.0)
    last = life.worker()
    for _ in range(3):
        last.tick()
        life.clock.advance(7200.0)
    row = life.row(process_id)
    assert row.state is ProcessState.FAILED, "terminal states stay"
    assert row.error is not None and row.error.outcome.value == "applied"
    assert row.rows == len(IDS)
    life.check_settled()
    assert life.exported_ids() == list(IDS)
    assert life.submit() == [], "already exported"
    life.close()


def _same_again(life: Life, process_id: object):  # type: ignore[no-untyped-def]
    from calve.model.process import NewProcess, new_process_id

    old = life.row(process_id)  # type: ignore[arg-type]
    return NewProcess(
        id=new_process_id(),
        kind=old.kind,
        source=old.source,
        destination=old.destination,
        lane=old.lane,
        needs=old.needs,
        request=old.request,
        locks=old.locks,
    )
