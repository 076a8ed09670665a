"""A driver's JVM that hangs ends within a bound, and with it every call that waits for it (rule 4).

Py4J has no timeouts, so any hang of Spark's would otherwise be one of the worker.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError
from calve.model.process import ProcessId
from calve.spark import jvm
from calve.spark.runner import SparkRunner
from support.sparks import LOCAL, Sparks, common_conf

pytestmark = pytest.mark.spark
SILENT_SECONDS = 12.0  # a busy machine answers within a quarter of it


class Running:
    """A wave beside the test, once its task has begun."""

    def __init__(self, runner: SparkRunner, group: str, function: str, payload: str) -> None:
        self.error: CalveError | None = None
        self.results: list[TaskResult] = []
        order = TaskOrder(
            process_id=ProcessId("p"),
            number=1,
            attempt=1,
            function=f"support.tasks:{function}",
            payload=payload,
        )
        self._thread = threading.Thread(target=self._run, args=(runner, group, order), daemon=True)
        self._thread.start()

    def _run(self, runner: SparkRunner, group: str, order: TaskOrder) -> None:
        try:
            runner.run(group, [order], self.results.append)
        except CalveError as error:
            self.error = error

    def end(self) -> CalveError | None:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def runner(sparks: Sparks) -> Iterator[SparkRunner]:
    sparks.close()  # PySpark has room for one
    made = SparkRunner(master=LOCAL, conf=common_conf(), silent_seconds=SILENT_SECONDS, cancelled_seconds=3.0)
    with closing(made):
        yield made


def begun(path: Path) -> bool:
    return path.exists() and path.read_text().strip() != ""


def test_one_that_is_stopped_in_mid_task_is_ended_and_another_started(
    runner: SparkRunner, tmp_path: Path
) -> None:
    wave = Running(runner, "stopped", "hang", str(tmp_path / "begun"))
    while not begun(tmp_path / "begun"):
        time.sleep(0.01)
    program = runner.jvm
    program.send_signal(signal.SIGSTOP)
    # What the worker's loop asks comes back at once: it has leases to keep.
    assert runner.slots == 4 and runner.granted() is None
    runner.cancel("another")
    error = wave.end()
    assert error is not None and error.code == "driver_silent", error
    assert f"for {SILENT_SECONDS:g} s" in error.message and str(runner.log) in error.hint
    assert program.poll() == -signal.SIGKILL
    assert Running(runner, "after", "echo", "after").end() is None


def test_a_job_that_goes_on_after_its_cancel_is_ended_with_its_jvm(
    runner: SparkRunner, tmp_path: Path
) -> None:
    """Here because the thread that would end it hangs; the JVM answers all the while."""
    wave = Running(runner, "for-ever", "hang", str(tmp_path / "begun"))
    while not begun(tmp_path / "begun"):
        time.sleep(0.01)
    threads = runner.started()._jvm.java.lang.Thread.getAllStackTraces().keySet()
    [scheduler] = [one for one in threads if one.getName() == "dag-scheduler-event-loop"]
    scheduler.suspend()
    runner.cancel("for-ever")
    error = wave.end()
    assert error is not None and error.code == "driver_silent", error
    assert "ended what was cancelled" in error.message
    later = Running(runner, "later", "echo", "later")
    assert later.end() is None and [result.receipt for result in later.results][:1] == ["later"]


@pytest.mark.long
def test_a_cancel_that_comes_before_spark_has_started_is_kept(runner: SparkRunner, tmp_path: Path) -> None:
    wave = Running(runner, "early", "hang", str(tmp_path / "begun"))
    while runner.jvm is None:
        time.sleep(0.001)
    runner.cancel("early")
    assert wave.end() is None
    assert not begun(tmp_path / "begun") and wave.results == []


@pytest.mark.long
def test_one_that_is_stopped_does_not_keep_the_program_from_ending(
    runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_STOP_SECONDS", 2.0)
    runner.started()
    runner.jvm.send_signal(signal.SIGSTOP)
    runner.close()
    assert runner.jvm.poll() == -signal.SIGKILL
