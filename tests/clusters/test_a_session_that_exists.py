"""`calve.spark.run` in a job of `spark-submit`, on each Spark that is supported; Spark Connect is refused by name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import calve
import calve.spark
from calve.model.errors import UsageError
from calve.spark.java import cache_folder, java_home
from calve.spark.runner import SparkRunner
from calve.spark.session import SUPPORTED, context_of
from support.place import Place

JOB = Path(__file__).with_name("session_job.py")


def make(folder: Path) -> Place:
    place = Place(folder)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id UInt64, month UInt8) ENGINE = MergeTree PARTITION BY month ORDER BY id",
        "INSERT INTO db.t SELECT number, number % 2 FROM numbers(100)",
    )
    return place


def submitted(place: Place, pyspark_home: Path, *, optimizes: bool) -> dict[str, Any]:
    """What the job found, by the `spark-submit` of that PySpark."""
    command = [
        str(pyspark_home / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    command += [str(JOB), str(place.folder / "calve.toml"), "optimize" if optimizes else "export"]
    environment = os.environ | place.settings | {
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(pyspark_home),
        "PYTHONPATH": os.pathsep.join([str(pyspark_home.parent), str(Path(calve.__file__).parents[1])]),
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=place.folder, capture_output=True, text=True, timeout=280
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return found


@pytest.mark.spark
def test_a_job_of_spark_submit_exports_on_its_own_session_and_keeps_it(tmp_path: Path) -> None:
    place = make(tmp_path)
    found = submitted(place, Path(pyspark.__file__).parent, optimizes=False)
    assert found["states"] == ["COMPLETED"] * len(found["states"]) and found["states"], found["errors"]
    assert found["again"] == 0  # exported before
    assert found["still_works"] == 10
    assert found["findings"]["spark"][0] == "ok"
    assert "spark.scheduler.mode" in json.dumps(found["findings"]) or "wait for each other" in json.dumps(
        found["findings"]
    )
    assert sorted(place.read("lake.ns.t").column("id").to_pylist()) == list(range(100))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.4"])
def test_every_spark_that_is_supported_exports_and_optimizes_with_its_own_iceberg(
    version: str, tmp_path: Path
) -> None:
    assert ".".join(version.split(".")[:2]) in SUPPORTED
    place = make(tmp_path)
    found = submitted(place, installed(version), optimizes=True)
    assert found["spark"] == version
    assert found["states"] == ["COMPLETED"] * len(found["states"]) and len(found["states"]) > 1, found
    assert found["still_works"] == 10
    assert sorted(place.read("lake.ns.t").column("id").to_pylist()) == list(range(100))
    table = place.table("lake.ns.t")
    assert {snapshot.summary.operation.value for snapshot in table.snapshots() if snapshot.summary} >= {
        "append"
    }


def installed(version: str) -> Path:
    """That PySpark, in a folder of its own beside the jars; the rest is this environment's."""
    target = cache_folder() / f"pyspark-{version}"
    if version == pyspark.__version__:
        return Path(pyspark.__file__).parent
    if not (target / "pyspark" / "bin").is_dir():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--target",
            str(target),
            f"pyspark=={version}",
        ]
        subprocess.run(command, check=True, timeout=280)
    return target / "pyspark"


def test_spark_connect_is_refused_with_what_works_instead() -> None:
    class SparkSession:  # as a client's, which needs grpc that is not installed here
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(UsageError, match="is Spark Connect, over which Calve cannot work") as met:
        context_of(SparkSession())
    assert met.value.code == "spark_connect"
    assert "calve worker" in met.value.hint
    with pytest.raises(UsageError, match="Spark Connect") as met:
        calve.spark.run(SparkSession())
    with pytest.raises(UsageError, match=r"master 'sc://head:15002' is Spark Connect"):
        SparkRunner(master="sc://head:15002", conf={}).started()


def test_what_is_public_is_there() -> None:
    assert {name: callable(getattr(calve.spark, name)) for name in calve.spark.__all__} == {
        "doctor": True,
        "run": True,
    }
    with pytest.raises(AttributeError):
        calve.spark.nothing  # noqa: B018
