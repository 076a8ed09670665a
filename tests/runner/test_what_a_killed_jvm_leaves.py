"""Spark's own files: in a folder of the program's temporary folder, gone with the JVM, and, after a SIGKILL, with the start
of the next one. Without that, the blocks and shuffles of each killed worker stay on its disk for ever."""

import os
import signal
import sys
from pathlib import Path

import pytest

from support.programs import Program

pytestmark = [pytest.mark.spark, pytest.mark.programs]

START = """
import signal, sys
from calve.spark.runner import SparkRunner
runner = SparkRunner(master="local[1]", conf={}, brief=True)
context = runner.started()
# A shuffle leaves its files where Spark's blocks are.
context.parallelize(range(10), 2).map(lambda one: (one % 3, one)).groupByKey(2).count()
print(runner.jvm.pid, flush=True)
if "stay" in sys.argv:
    signal.pause()
runner.close()
"""


def start(folder: Path, log: Path, *words: str) -> Program:
    return Program(
        "a program with Spark", [sys.executable, "-c", START, *words], log, {"TMPDIR": str(folder)}
    )


def files(folder: Path) -> list[str]:
    """But for the log of the one that was killed."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".log")


def test_a_killed_jvm_s_files_go_when_the_next_program_starts_one(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    (another := folder / "calve-spark-of-somebody-else").mkdir(parents=True)
    killed = start(folder, tmp_path / "killed.log", "stay")
    jvm = int(killed.read_line())
    left = [path for path in folder.rglob("*") if path.name.startswith("shuffle_")]
    assert left, "Spark's files are somewhere else"
    os.kill(jvm, signal.SIGKILL)  # first, or it would tidy up as its program ends
    killed.kill()
    [name, _] = files(folder)
    assert name.startswith(f"calve-spark-{killed.pid}-") and all(path.exists() for path in left)
    after = start(folder, tmp_path / "after.log")
    after.read_line()
    assert after.wait() == 0
    assert files(folder) == [another.name]
