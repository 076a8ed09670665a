"""Whatever fails or dies around a rewrite, it is done once and the process ends (L33-L38, P18)."""

import json
from collections.abc import Callable, Sequence

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.change import Change, TaskChange
from calve.model.errors import StoreError
from calve.model.process import Lease, Process
from calve.model.states import ProcessState, TaskState
from calve.spark import actions
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark


def rewrites(lake: OptimizeScene, process: Process) -> list[str]:
    """The steps that this process's snapshots carry."""
    return [
        snapshot.summary.additional_properties["calve.task"]
        for snapshot in lake.table("ns.t").snapshots()
        if snapshot.summary is not None
        and snapshot.summary.additional_properties.get("calve.process-id") == process.id
    ]


def fail_once(lake: OptimizeScene, fits: Callable[[Change], bool], *, applied: bool) -> list[Change]:
    """The store fails the first fitting write, before or after it was carried out."""
    apply = lake.store.apply
    failed: list[Change] = []

    def failing(lease: Lease, change: Change) -> Process:
        if not failed and fits(change):
            failed.append(change)
            if applied:
                apply(lease, change)
            raise StoreError("the store timed out", code="timeout")
        return apply(lease, change)

    lake.store.apply = failing  # type: ignore[method-assign]
    return failed


@pytest.mark.parametrize("applied", [False, True])
def test_L34_a_failed_write_of_the_last_completion_heals_without_a_second_rewrite(
    lake: OptimizeScene, applied: bool
) -> None:
    lake.make("ns.t", files=13)
    before = lake.rows("ns.t")
    failed = fail_once(
        lake,
        lambda change: any(task.after is TaskState.DONE for task in change.all(TaskChange)),
        applied=applied,
    )
    process = lake.optimize("ns.t")
    assert failed and process.state is ProcessState.COMPLETED, process.error
    assert rewrites(lake, process) == ["0"]
    assert [task.attempt for task in lake.store.tasks(process.id)] == [1], "L35: its completion still counted"
    assert lake.rows("ns.t") == before


@pytest.mark.parametrize("applied", [False, True])
def test_L33_a_lost_step_to_the_end_heals_at_the_next_tick(lake: OptimizeScene, applied: bool) -> None:
    lake.make("ns.t", files=13)
    failed = fail_once(lake, lambda change: change.state is ProcessState.PUBLISHING, applied=applied)
    process = lake.optimize("ns.t")
    assert failed and process.state is ProcessState.COMPLETED, process.error
    assert rewrites(lake, process) == ["0"]


def test_L38_a_failure_that_could_not_be_recorded_is_recorded_later(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make("ns.t", files=13)
    monkeypatch.setattr(actions, "_execute_data", lambda _: 1)
    failed = fail_once(lake, lambda change: any(task.error for task in change.all(TaskChange)), applied=False)
    process = lake.optimize("ns.t")
    assert failed and process.state is ProcessState.FAILED
    assert process.error is not None and process.error.code == "rewrite_not_committed"


def test_P18_success_without_a_snapshot_is_a_failure(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make("ns.t", files=13)
    monkeypatch.setattr(actions, "_execute_data", lambda _: 26)
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.FAILED
    assert process.error is not None and process.error.code == "rewrite_not_committed"
    assert rewrites(lake, process) == []


class Deaf:
    """A runner whose first answers are lost: the worker died, its work did not."""

    def __init__(self, lake: OptimizeScene) -> None:
        self._runner = lake.runner
        self.slots = 2
        self.waves = 0

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        self.waves += 1
        self._runner.run(group, orders, (lambda _: None) if self.waves == 1 else on_result)

    def cancel(self, group: str) -> None:
        self._runner.cancel(group)

    def close(self) -> None:
        """The scene closes it."""


def test_a_rewrite_that_landed_unseen_is_found_and_not_repeated(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=13)
    deaf = Deaf(lake)
    process = lake.run(lake.submit("ns.t"), lake.worker(runner=deaf))
    assert process.state is ProcessState.COMPLETED, process.error
    assert deaf.waves == 1 and rewrites(lake, process) == ["0"]
    assert json.loads(process.result)["rewritten_files"] == 26, "found, it reports the same"


def test_a_task_whose_data_landed_does_only_the_rest(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=2, rows=40)
    lake.sql("DELETE FROM lake.ns.t WHERE id % 3 = 0")
    before = lake.rows("ns.t")
    process = lake.submit("ns.t")
    lake.run(process, until=lambda: lake.store.process(process.id).planned)
    [task] = lake.store.tasks(process.id)
    order = lake.kind.order(process, lake.store.plan(process.id) or "", task, 1)
    data_only = json.loads(order.payload) | {"position_deletes": False}
    lake.run_on_driver(TaskOrder(**{**order.__dict__, "payload": json.dumps(data_only)}))
    ended = lake.run(process)
    assert ended.state is ProcessState.COMPLETED, ended.error
    assert sorted(rewrites(lake, ended))[0] == "0" and rewrites(lake, ended).count("0") == 1
    assert lake.rows("ns.t") == before
