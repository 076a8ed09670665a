"""T18: what is wrong with the executors reaches the person, on a real cluster; which Python they run; the logs."""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import calve
from calve.app.doctor import examine
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import PermanentError
from calve.model.process import ProcessId
from calve.model.states import ProcessState
from calve.spark import executor
from calve.spark.jvm_files import KEEP_LOGS_DAYS, log_file, sweep
from calve.spark.runner import SparkRunner
from support.place import Place
from support.sparks import common_conf, java_options
from support.standalone import Standalone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of our own version that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    return str(folder / "bin" / "python")


def order(function: str = "calve.app.doctor.task:run") -> TaskOrder:
    return TaskOrder(process_id=ProcessId("p"), number=1, attempt=1, function=function, payload="")


def run(
    master: str, python: str, log: Path, *, function: str = "calve.app.doctor.task:run"
) -> list[TaskResult]:
    results: list[TaskResult] = []
    conf = common_conf() | {"spark.pyspark.python": python}
    with closing(SparkRunner(master=master, conf=conf, log=log)) as runner:
        runner.run("wave", [order()], results.append)
    return results


@pytest.mark.spark
def test_T18_executors_whose_python_lacks_calve_are_named_with_what_to_set(
    cluster: Standalone, bare: str, tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(PermanentError, match=r"the executors' Python .* has no module calve") as met:
        run(cluster.url, bare, log)
    assert met.value.code == "executor_python"
    assert bare in met.value.message
    assert "spark.pyspark.python" in met.value.hint
    assert "No module named 'calve'" in log.read_text()  # kept, since something failed


@pytest.mark.spark
def test_T18_a_python_that_the_executors_do_not_have_is_named(cluster: Standalone, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"cannot run /nowhere/python: error=2, No such file") as met:
        run(cluster.url, "/nowhere/python", tmp_path / "spark.log")
    assert met.value.code == "executor_python"


@pytest.mark.spark
def test_T18_spark_pyspark_python_wins_over_the_environment_and_the_log_of_a_success_is_removed(
    cluster: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    log = tmp_path / "spark.log"
    results = run(cluster.url, sys.executable, log)
    assert results and all(result.error is None and result.receipt for result in results)
    assert not log.exists()
    assert os.environ["PYSPARK_PYTHON"] == "/nowhere/python"  # as it was


@pytest.mark.spark
def test_T18_spark_pyspark_python_holds_on_this_machine_too(bare: str, tmp_path: Path) -> None:
    """`bare` finds Calve through PYTHONPATH at most, and the engine not at all."""
    with pytest.raises(PermanentError, match="has no module"):
        run("local[1]", bare, tmp_path / "spark.log")


@pytest.mark.spark
def test_T18_an_export_and_doctor_tell_the_executors_error(
    cluster: Standalone, bare: str, tmp_path: Path
) -> None:
    conf = {
        "CALVE_SPARK__MASTER": cluster.url,
        "CALVE_SPARK__CONF__spark.pyspark.python": bare,
        "CALVE_SPARK__CONF__spark.executor.extraJavaOptions": java_options(),
    }
    place = Place(tmp_path, **conf)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id UInt32) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.t SELECT number FROM numbers(10)",
    )
    with place.app() as app:
        [process] = place.finish(app, place.submit(app, "db.t", "lake.ns.t"))
        [found] = [finding for finding in examine(app) if finding.part == "spark"]
    assert process.state is ProcessState.FAILED and process.error is not None
    assert process.error.code == "executor_python"
    assert f"({bare}) has no module calve" in process.error.message
    assert not found.ok
    assert f"({bare}) has no module calve" in found.words
    assert "spark.pyspark.python" in found.remedy


def test_T18_a_module_that_a_task_needs_is_named_with_the_python_that_lacks_it() -> None:
    answer = executor.execute(order("support.nothing_here:run"))
    error = executor.result(answer).error
    assert error is not None and error.code == "executor_python" and not error.retryable
    assert sys.executable in error.message and "support.nothing_here" in error.message


def test_T18_executors_with_another_version_of_calve_are_refused() -> None:
    error = executor.result(executor.execute(order("support.tasks:echo"), version="9.9.9")).error
    assert error is not None and error.code == "executor_python"
    assert f"has Calve {calve.__version__}, and the driver has 9.9.9" in error.message


def test_T18_executors_with_another_engine_or_another_arrow_are_refused_before_anything_is_done() -> None:
    ours = executor.libraries()
    assert {"chdb-core", "pyarrow"} == ours.keys()
    assert executor.refuse_other_libraries(order("support.tasks:echo"), ours) is None
    for name, version in ours.items():
        refused = executor.refuse_other_libraries(order("support.tasks:echo"), ours | {name: "9.9.9"})
        assert refused is not None
        error = executor.result(refused).error
        assert error is not None and error.code == "executor_python" and not error.retryable
        assert f"has {name} {version}, and the driver has 9.9.9" in error.message
        assert sys.executable in error.message and "calve spark package" in error.hint


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task"
            " 0.0 in stage 0.0 (TID 0) (10.0.0.7 executor 3): java.io.IOException: No space left on device\n\tat x",
            "disk_full",
            "no room on an executor's disk: No space left on device (10.0.0.7 executor 3)",
        ),
        (
            "Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited"
            " caused by one of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:",
            "attempt_lost",
            "Command exited with code 137 (10.0.0.7 executor 3)",
        ),
        (
            "(TID 0) (h executor 0): org.apache.spark.api.python.PythonException: …\n"
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has"
            " different version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "executor_python",
            "does not fit: Python in worker has different version: 3.9",
        ),
        (
            "(TID 0) (h executor 0): org.apache.spark.SparkException: \nError from python worker:\n"
            "  calve: this machine has no python3.11; install it\nPYTHONPATH was:\n  /x",
            "executor_python",
            "this machine has no python3.11; install it",
        ),
    ],
)  # fmt: skip
def test_T18_other_errors_of_executors_keep_their_words(said: str, code: str, words: str) -> None:
    error = executor.job_error(said, "python3", "/tmp/log")
    assert error is not None and error.code == code
    assert words in error.message


def test_a_cancelled_job_is_no_error() -> None:
    said = "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group calve-x SQLSTATE: XXKDA"
    assert executor.job_error(said, "python3", "log") is None


def test_logs_of_ended_programs_are_removed_after_a_while(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    old = time.time() - (KEEP_LOGS_DAYS + 1) * 86400
    kept = tmp_path / log_file(os.getpid()).name
    recent, gone = (tmp_path / log_file(ended.pid).name, tmp_path / log_file(2**22 + 1).name)
    others = tmp_path / "calve-spark-notes.log"
    for file in (kept, gone, gone.with_name(f"{gone.name}.1"), others, recent):
        file.write_text("")
        if file != recent:
            os.utime(file, (old, old))
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([kept, others, recent])
