"""Tasks that run on the worker's own machine, each in a program of its own."""

import threading
from pathlib import Path

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import ProcessId
from calve.spark.near import Near
from support.outage_place import until

pytestmark = pytest.mark.programs


def order(number: int, function: str, payload: str = "") -> TaskOrder:
    return TaskOrder(
        process_id=ProcessId("p"), number=number, attempt=2, function=f"support.tasks:{function}", payload=payload, near=True
    )  # fmt: skip


def test_answers_and_errors_come_back_and_a_program_that_dies_has_no_result() -> None:
    results: list[TaskResult] = []
    Near().run("g", [order(0, "echo", "a"), order(1, "explode"), order(2, "die")], results.append)
    found = {result.number: result for result in results}
    assert sorted(found) == [0, 1]
    assert (found[0].attempt, found[0].error) == (2, None) and found[0].receipt
    assert found[1].error is not None


def test_a_cancel_ends_what_runs_and_what_waits_for_a_core(tmp_path: Path) -> None:
    near, results = Near(), list[TaskResult]()
    many = [order(number, "hang", str(tmp_path / "pids")) for number in range(8)]
    running = threading.Thread(target=near.run, args=("g", many, results.append))
    running.start()
    until((tmp_path / "pids").exists, "a task to hang")
    near.cancel("g")
    running.join(60)
    assert not running.is_alive() and results == []
    until(
        lambda: not any(_runs(int(pid)) for pid in (tmp_path / "pids").read_text().split()),
        "the programs' ends",
    )


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
