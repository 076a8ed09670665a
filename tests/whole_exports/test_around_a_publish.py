"""What happens around the one atomic step: crashes, changes of the table, other exports, lost answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_life import IDS, Life, stray_files

from calve.control.client import retry
from calve.model.errors import RefusedError
from calve.model.states import Leftovers, ProcessState
from calve.testing.faults import Break, Crash, Faults
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

JANUARY = list(range(100))


def crash_after_commit(life: Life, process_id: Any) -> None:
    """The commit has landed; the worker dies before it can say so."""
    life.run_until(ProcessState.PUBLISHING, process_id)
    catalog = life.ports.catalog("lake")
    really: Callable[..., Any] = catalog.commit_table

    def commit_and_die(*args: Any) -> Any:
        really(*args)
        catalog.commit_table = really  # type: ignore[method-assign]
        raise Crash("after the commit")

    catalog.commit_table = commit_and_die  # type: ignore[method-assign]
    with pytest.raises(Crash):
        life.run(life.worker())
    life.leave()


def test_L11_published_then_a_crash_then_a_schema_change_ends_completed(life: Life) -> None:
    [process_id] = life.submit()
    crash_after_commit(life, process_id)
    table = life.table()
    assert table is not None
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("note")
    life.run(life.worker())
    row = life.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert row.rows == len(IDS)
    assert life.exported_ids() == list(IDS)


def test_L16_the_table_may_be_dropped_once_tasks_are_done(own_life: Life) -> None:
    [process_id] = own_life.submit("202401")
    own_life.run_until(ProcessState.PUBLISHING, process_id)
    own_life.kept.execute(
        "ALTER TABLE db.events DROP PARTITION ID '202401'",
        "DROP TABLE db.events SYNC",
        "DROP DATABASE db SYNC",
    )
    own_life.run(own_life.worker())
    own_life.check_settled()
    assert own_life.row(process_id).state is ProcessState.COMPLETED
    assert own_life.exported_ids() == JANUARY


def test_L4_the_partition_may_be_dropped_once_it_is_pinned(own_life: Life) -> None:
    [process_id] = own_life.submit("202401")
    own_life.run_until(ProcessState.RUNNING, process_id)
    own_life.kept.execute("TRUNCATE TABLE db.events")
    own_life.run(own_life.worker())
    own_life.check_settled()
    assert own_life.row(process_id).state is ProcessState.COMPLETED
    assert own_life.exported_ids() == JANUARY


def test_L20_P14_a_lost_answer_and_then_a_cancel_delete_nothing_that_was_published(life: Life) -> None:
    """The response to the metadata write is lost, and nobody waits for it."""
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    catalog = life.ports.catalog("lake")
    really: Callable[..., Any] = catalog.commit_table

    def land_and_lose_the_answer(*args: Any) -> Any:
        really(*args)
        life.store.request_cancel(process_id)
        catalog.commit_table = really  # type: ignore[method-assign]
        raise TimeoutError("the answer was lost")

    catalog.commit_table = land_and_lose_the_answer  # type: ignore[method-assign]
    life.run(life.worker())
    life.keep_time_and_undo()
    life.check_settled()
    row = life.row(process_id)
    assert (row.state, row.leftovers) == (ProcessState.COMPLETED, Leftovers.NONE)
    assert life.exported_ids() == list(IDS)
    table = life.table()
    assert table is not None
    receipts = [name for name in stray_files(table) if name.endswith(".json")]
    assert len(stray_files(table)) == len(receipts) == 2, "data files, manifests and receipts all stand"


def test_L20_an_error_after_the_commit_deletes_nothing(life: Life) -> None:
    """Whatever is raised right after it: here a defect, at every try, until the tries are used up."""
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    really = life.kind.publish

    def publish_and_fail(*args: Any) -> Any:
        really(*args)
        raise KeyError("a defect")

    life.kind.publish = publish_and_fail  # type: ignore[method-assign]
    life.run(life.worker(), ticks=120, seconds=60.0)
    life.keep_time_and_undo()
    life.check_settled()
    row = life.row(process_id)
    assert row.state is ProcessState.COMPLETED, "the fence found it"
    assert life.exported_ids() == list(IDS)


def test_L21_a_forced_export_by_another_store_while_the_first_publishes_never_doubles(
    own_life: Life, tmp_path: Path, runner: LocalRunner
) -> None:
    """The forced one runs from beginning to end between the first one's note and its send."""
    other = Life(tmp_path / "other", own_life.kept, runner)
    other.ports.properties = own_life.ports.properties
    [first] = own_life.submit()

    def force() -> None:
        own_life.kept.execute("INSERT INTO db.events VALUES (150, '2024-01-09', 'new')")
        assert other.export(force=True).state is ProcessState.COMPLETED

    own_life.ports.before_send.append(force)
    own_life.run(own_life.worker())
    row = own_life.row(first)
    assert own_life.exported_ids() == [*IDS, 150]
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "changed_since"
    own_life.keep_time_and_undo()
    own_life.check_settled()
    assert own_life.exported_ids() == [*IDS, 150]
    other.close()


def test_L21_a_first_export_that_lands_while_it_is_being_replaced_is_replaced(
    own_life: Life, tmp_path: Path, runner: LocalRunner
) -> None:
    """The first one's commit arrives between the forced one's search and its send."""
    other = Life(tmp_path / "other", own_life.kept, runner)
    other.ports.properties = own_life.ports.properties
    [first] = own_life.submit()
    own_life.run_until(ProcessState.PUBLISHING, first)
    own_life.kept.execute("INSERT INTO db.events VALUES (150, '2024-01-09', 'new')")
    other.ports.before_send.append(lambda: own_life.run(own_life.worker()))
    forced = other.export(force=True)
    assert forced.state is ProcessState.COMPLETED, forced.error
    assert own_life.row(first).state is ProcessState.COMPLETED
    assert own_life.exported_ids() == [*IDS, 150]
    table = own_life.table()
    assert table is not None
    assert [str(s.summary.operation.value) for s in table.metadata.snapshots if s.summary] == [
        "append",
        "overwrite",
    ]
    other.close()


def test_L21_in_one_store_a_forced_export_waits_for_the_first_to_end(life: Life) -> None:
    [first] = life.submit()
    life.run_until(ProcessState.PUBLISHING, first)
    with pytest.raises(RefusedError) as refused:
        life.submit(force=True)
    assert refused.value.code == "locked"
    assert first in refused.value.message
    life.run(life.worker())
    life.check_settled()
    assert life.exported_ids() == list(IDS)


def test_L25_a_store_that_fails_just_as_a_task_ends_costs_no_second_export(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    whole = Faults()
    life = Life(tmp_path / "whole", source, runner, whole)
    life.submit()
    whole.armed = True
    life.run(life.worker())
    life.close()
    ends = next(at for at, name in enumerate(whole.calls) if name == "apply" and "run" in whole.calls[:at])
    for how in (Break.BEFORE, Break.FAILED, Break.REPORTED_FAILED):
        faults = Faults(at=ends + 1, how=how)
        life = Life(tmp_path / how, source, runner, faults)
        [process_id] = life.submit()
        faults.armed = True
        try:
            life.run(life.worker())
        except Crash:
            life.leave()
        faults.armed = False
        life.run(life.worker())
        assert life.row(process_id).state is ProcessState.COMPLETED
        assert [task.attempt for task in life.store.tasks(process_id)] == [1, 1], how
        assert life.exported_ids() == list(IDS)
        life.close()


def test_a_retry_publishes_what_the_failed_process_wrote_and_undo_leaves_it(life: Life) -> None:
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    life.store.request_cancel(process_id)
    life.run(life.worker())
    assert life.row(process_id).state is ProcessState.CANCELLED
    second = retry(life.store, process_id).process
    life.ids.append(second.id)
    life.run(life.worker())
    row = life.row(second.id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert [task.attempt for task in life.store.tasks(second.id)] == [0, 0], "nothing was exported again"
    life.keep_time_and_undo()
    life.check_settled()
    assert life.exported_ids() == list(IDS)
