"""The Spark runner against a real Spark: in one process, and with executors of their own (D16)."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import Outcome, TemporaryError
from calve.model.process import ProcessId
from calve.spark import executor
from calve.spark.conf import repeats_count
from calve.spark.java import ClassArchive
from calve.spark.runner import SparkRunner
from support.sparks import CLUSTER, LOCAL, Sparks

pytestmark = pytest.mark.spark


@pytest.fixture(params=[LOCAL, CLUSTER])
def runner(request: pytest.FixtureRequest, sparks: Sparks) -> SparkRunner:
    return sparks.runner(request.param)


def order(number: int, function: str, payload: str = "") -> TaskOrder:
    return TaskOrder(
        process_id=ProcessId("p"),
        number=number,
        attempt=1,
        function=f"support.tasks:{function}",
        payload=payload,
    )


def run(runner: SparkRunner, *orders: TaskOrder, group: str = "wave") -> dict[int, TaskResult]:
    results: dict[int, TaskResult] = {}
    runner.run(group, orders, lambda result: results.update({result.number: result}))
    return results


def test_a_wave_brings_back_every_result(runner: SparkRunner) -> None:
    results = run(runner, *(order(n, "echo", f"receipt {n}") for n in range(4)))
    assert {n: result.receipt for n, result in results.items()} == {n: f"receipt {n}" for n in range(4)}
    assert all(result.bytes == 3_000_000_000 and result.attempt == 1 for result in results.values())


def test_D16_tasks_run_outside_the_driver_without_any_environment(
    runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert run(runner, order(1, "echo"))[1].rows != os.getpid()


def test_P21_an_exception_that_cannot_be_unpickled_comes_back_as_data(runner: SparkRunner) -> None:
    results = run(runner, order(1, "explode", "x"), order(2, "echo", "fine"))
    error = results[1].error
    assert error is not None and error.code == "task_crashed" and "boom: x" in error.message
    assert results[2].receipt == "fine"


def test_a_worker_that_dies_loses_its_attempt_and_the_runner_lives_on(runner: SparkRunner) -> None:
    with pytest.raises(TemporaryError, match=r"exited unexpectedly.*executor") as met:
        run(runner, order(1, "die", "9"))
    assert str(runner.log) in met.value.hint
    assert run(runner, order(2, "echo", "after"))[2].receipt == "after"


def test_a_finished_task_reports_before_its_wave_ends_and_a_cancel_ends_the_rest(
    runner: SparkRunner, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    reported = threading.Event()
    results: list[TaskResult] = []

    def on_result(result: TaskResult) -> None:
        results.append(result)
        reported.set()

    orders = [order(1, "hang", str(started)), order(2, "echo", "early")]
    wave = threading.Thread(target=runner.run, args=("cancelled", orders, on_result))
    wave.start()
    assert reported.wait(60)
    while not started.exists() or not started.read_text().strip():
        time.sleep(0.01)
    runner.cancel("cancelled")
    wave.join(60)
    assert not wave.is_alive()
    assert {result.number for result in results} == {2}
    assert _gone(int(started.read_text()))


def test_D4_an_attempt_whose_executor_was_taken_back_is_not_run_again_under_its_number(
    sparks: Sparks, tmp_path: Path
) -> None:
    """Spark does not count this loss as a failure, and sends the same order to another executor."""
    runner, started, results = sparks.runner(CLUSTER), tmp_path / "started", list[TaskResult]()
    wave = threading.Thread(target=runner.run, args=("w", [order(1, "hang", str(started))], results.append))
    wave.start()
    while not started.exists() or not started.read_text().strip():
        time.sleep(0.01)
    _replace_executors(runner)
    wave.join(60)
    assert not wave.is_alive() and results
    assert len(started.read_text().splitlines()) == 1
    for result in results:
        assert result.error is not None and result.error.code == "executor_lost"
        assert result.error.retryable and result.error.outcome is Outcome.UNKNOWN and result.free
    assert run(runner, order(1, "echo", "attempt 2"))[1].receipt == "attempt 2"


def test_D4_a_repeat_uses_no_budget_unless_spark_is_told_to_repeat_failures() -> None:
    assert not repeats_count({})
    assert not repeats_count({"spark.task.maxFailures": "1", "spark.executor.cores": "2"})
    assert repeats_count({"spark.task.maxFailures": "4"})
    assert repeats_count({"spark.speculation": "true"})
    refused = executor.result(executor.refuse_repeat(order(1, "echo"), counts=True))
    assert refused.error is not None and refused.error.outcome is Outcome.UNKNOWN and not refused.free


def _replace_executors(runner: SparkRunner) -> None:
    """As a cluster does that needs its machines back."""
    context = runner.started()
    spark, localities = context._jsc.sc(), getattr(context._jvm.scala.collection.immutable, "Map$")
    had = spark.getExecutorIds()
    assert spark.killExecutors(had)
    assert spark.requestTotalExecutors(2, 0, getattr(localities, "MODULE$").empty())


def test_a_driver_s_jvm_that_dies_loses_its_attempts_and_another_is_started(runner: SparkRunner) -> None:
    assert run(runner, order(1, "echo", "before"))[1].receipt == "before"
    runner.jvm.kill()
    with pytest.raises(TemporaryError, match="JVM is gone") as met:
        run(runner, order(2, "echo"))
    assert met.value.code == "driver_lost" and not met.value.service
    assert run(runner, order(3, "echo", "after"))[3].receipt == "after"


def test_cancelling_an_unknown_group_is_fine(runner: SparkRunner) -> None:
    runner.cancel("never seen")


def _gone(pid: int) -> bool:
    for _ in range(3000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_the_next_task_of_a_python_worker_reads_no_archive_of_pyspark_again(runner: SparkRunner) -> None:
    seen = set[int]()
    for number in range(1, 10):  # Spark chooses the worker
        result = run(runner, order(number, "modules"))[number]
        if result.rows in seen:
            assert json.loads(result.receipt)[1] == []
            return
        seen.add(result.rows)
    raise AssertionError("no worker got a second task")


def test_executors_on_this_machine_use_the_driver_s_own_pyspark(sparks: Sparks) -> None:
    import pyspark

    found = run(sparks.runner(LOCAL), order(1, "modules"))[1]
    assert json.loads(found.receipt)[0] == pyspark.__file__


def test_a_warm_runner_has_prepared_its_executors(sparks: Sparks) -> None:
    runner = sparks.runner(LOCAL)
    runner.prepare = "support.tasks:prepare"
    runner.warm()
    try:
        assert run(runner, order(1, "prepared"))[1].receipt == "1"
        runner.prepare = "support.tasks:missing"
        runner.warm()
    finally:
        runner.prepare = ""


def test_a_start_that_nobody_will_use_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stopped at once would wait for all of Spark: half a minute on a busy machine."""
    jvm = Jvm()
    runner = SparkRunner(master="local[1]", conf={}, log=tmp_path / "spark.log")

    def start() -> None:
        runner.log.write_text("starting")
        runner.jvm = jvm
        jvm.runs.set()
        assert jvm.killed.wait(60)
        raise TemporaryError("its JVM was killed", code="killed")

    monkeypatch.setattr(runner, "_start", start)
    caught: list[BaseException] = []

    def warm() -> None:
        try:
            runner.warm()
        except TemporaryError as error:
            caught.append(error)

    warming = threading.Thread(target=warm)
    warming.start()
    assert jvm.runs.wait(60)
    runner.close()
    warming.join()
    assert [str(error) for error in caught] == ["its JVM was killed"]
    assert not runner.log.exists()
    runner.close()


class Jvm:
    """A program that starts until it is killed."""

    def __init__(self) -> None:
        self.runs, self.killed = threading.Event(), threading.Event()

    def kill(self) -> None:
        self.killed.set()


def test_the_first_jvm_leaves_its_classes_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_CACHE", str(tmp_path))
    first, at_once = ClassArchive(), ClassArchive()
    (option,) = first.options("/java")
    written = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    assert at_once.options("/java") == [option], "of one process; another has a name of its own"
    written.write_text("half of")
    first.keep(whole=False)  # the JVM was killed
    assert first.options("/java") == [option] and not written.exists()
    written.write_text("classes")
    first.keep(whole=True)
    assert not written.exists()
    option, quiet = ClassArchive().options("/java")
    assert quiet == "-Xlog:cds*=off"  # it would warn on stdout of an archive that does not fit
    archive = Path(option.removeprefix("-XX:SharedArchiveFile="))
    assert archive.read_text() == "classes"
    assert ClassArchive().options("/another/java")[0] != option
    monkeypatch.setenv("CALVE_CACHE", str(tmp_path / "a folder"))
    assert ClassArchive().options("/java") == []
