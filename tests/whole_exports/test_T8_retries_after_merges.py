"""T8: a retry adopts what was written where it still fits, whatever the parts have become since."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from whole_life import Life

from calve.control.client import retry
from calve.control.kind import AdoptedWork
from calve.control.ports import Runner, TaskOrder, TaskResult
from calve.destination.names import DataFileName
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from calve.export.plan import standing_receipts
from calve.model.errors import ErrorInfo
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

TABLE = (
    "CREATE DATABASE IF NOT EXISTS db",
    "CREATE TABLE db.events (id UInt64, month UInt8, text String) ENGINE = MergeTree"
    " PARTITION BY month ORDER BY id",
    # Two parts are more than a task of 1 MB holds: tasks 0 and 1 are January's, 2 and 3 February's, 4 March's.
    *(
        f"INSERT INTO db.events SELECT number + {first}, {month}, randomPrintableASCII(1500) FROM numbers(500)"
        for month, first in ((1, 0), (1, 500), (2, 1000), (2, 1500), (3, 2000))
    ),
)
IDS = list(range(2500))


@dataclass
class FailingRunner:
    """A runner whose attempts at some tasks fail, each time."""

    runner: Runner
    numbers: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        return self.runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        for order in orders:
            if order.number in self.numbers:
                error = ErrorInfo(code="injected", message="cannot be done", retryable=True)
                on_result(TaskResult(number=order.number, attempt=order.attempt, error=error))
        self.runner.run(group, [one for one in orders if one.number not in self.numbers], on_result)

    def cancel(self, group: str) -> None:
        self.runner.cancel(group)

    def close(self) -> None: ...


@pytest.fixture
def merging(tmp_path: Path, runner: LocalRunner) -> Iterator[Life]:
    with KeptSource(tmp_path / "clickhouse") as kept:
        kept.execute(*TABLE)
        life = Life(tmp_path / "life", kept, FailingRunner(runner), task_bytes_mb=1)
        yield life
        life.close()


def fails(life: Life, process_id: ProcessId, *numbers: int) -> None:
    """All of it is written but these tasks."""
    assert isinstance(life.runner, FailingRunner)
    life.runner.numbers = numbers
    life.run(life.worker())
    row = life.row(process_id)
    assert row.state is ProcessState.FAILED, row.error
    assert row.tasks.done == row.tasks.total - len(numbers), (row.error, life.store.tasks(process_id))


def again(life: Life, process_id: ProcessId) -> Process:
    row = retry(life.store, process_id).process
    assert row.adopted
    life.ids.append(row.id)
    return row


def completes(life: Life, process_id: ProcessId) -> None:
    assert isinstance(life.runner, FailingRunner)
    life.runner.numbers = ()
    life.run(life.worker())
    row = life.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error


def writers(life: Life) -> dict[str, int]:
    """How many files of the table each process wrote."""
    table = life.table()
    assert table is not None
    names = [DataFileName.parse(task.file.file_path) for task in table.scan().plan_files()]
    found = [name.process_id for name in names if name]
    return {one: found.count(one) for one in found}


def test_T8_after_a_merge_a_retry_adopts_what_still_fits_under_other_numbers(merging: Life) -> None:
    [first] = merging.submit()
    fails(merging, first, 0)
    merging.kept.execute("OPTIMIZE TABLE db.events PARTITION 1 FINAL")
    second = again(merging, first).id
    completes(merging, second)
    assert writers(merging) == {first: 3, second: 1}  # February's two and March's, and January anew
    assert merging.exported_ids() == IDS
    merging.check_settled()


def test_T8_a_retry_of_a_retry_adopts_across_two_merges_and_each_key_keeps_its_own_files(
    merging: Life,
) -> None:
    [first] = merging.submit()
    fails(merging, first, 0)
    merging.kept.execute("OPTIMIZE TABLE db.events PARTITION 1 FINAL")
    second = again(merging, first).id
    fails(merging, second, 0)
    merging.kept.execute("OPTIMIZE TABLE db.events PARTITION 2 FINAL")
    third = again(merging, second).id
    completes(merging, third)
    assert writers(merging) == {first: 1, third: 2}
    assert merging.exported_ids() == IDS
    # The numbers in the files' names are not this plan's: a replacement still takes the right ones.
    merging.kept.execute("INSERT INTO db.events VALUES (2500, 3, 'late')")
    [forced] = merging.submit("3", force=True)
    completes(merging, forced)
    assert writers(merging) == {third: 2, forced: 1}
    assert merging.exported_ids() == [*IDS, 2500]
    merging.check_settled()


def test_T8_a_retry_of_what_did_not_add_up_exports_it_anew(
    merging: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt that lacks a file, as if damaged: the hint's command ends it."""
    [first] = merging.submit()
    really = merging.kind.publish

    def publish(process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]) -> object:
        short = [Receipt.from_json(text) for text in receipts]
        lost = [replace(one, files=()) if one.task == 2 else one for one in short]
        return really(process, plan, [one.to_json() for one in lost], note)

    with monkeypatch.context() as patched:
        patched.setattr(merging.kind, "publish", publish)
        merging.run(merging.worker())
    row = merging.row(first)
    assert row.error is not None and row.error.code == "receipts_incomplete"
    assert f"calve retry {first}" in row.error.hint
    second = again(merging, first).id
    completes(merging, second)
    assert merging.exported_ids() == IDS


def test_T8_a_receipt_that_counts_too_few_rows_is_not_adopted_once_more(merging: Life) -> None:
    """The pin counted them: what would fail the recount again is not relied on."""
    [first] = merging.submit("3")
    worker = merging.worker()
    for _ in range(20):
        worker.tick()
        if merging.row(first).tasks.done:
            break
        merging.clock.advance(2.0)
    [task] = merging.store.tasks(first)
    plan = merging.store.plan(first)
    assert plan is not None
    receipt = Receipt.from_json(task.receipt)
    [file] = receipt.files
    short = replace(receipt, rows=receipt.rows - 1, files=(replace(file, rows=file.rows - 1),))
    read = ExportPlan.from_json(plan)
    assert standing_receipts(read, AdoptedWork(plan=plan, receipts=(task.receipt,)))
    assert not standing_receipts(read, AdoptedWork(plan=plan, receipts=(short.to_json(),)))
    # Nor is what cannot be read any more: every retry would fail on it.
    assert not standing_receipts(read, AdoptedWork(plan=plan, receipts=("{",)))
    assert not standing_receipts(read, AdoptedWork(plan="{", receipts=(task.receipt,)))
