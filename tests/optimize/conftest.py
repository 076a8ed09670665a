from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.optimize import plan
from calve.spark.runner import SparkRunner
from support.optimizing import OptimizeScene


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkRunner]:
    """One JVM for the tests of a file; gone after it, since a program can have one Spark only."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    runner = SparkRunner(master="local[2]", conf=conf, slots=2)
    yield runner
    runner.close()


@pytest.fixture
def lake(spark: SparkRunner, tmp_path: Path) -> OptimizeScene:
    """An empty SQL catalog in SQLite, its warehouse in a folder."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    scene = OptimizeScene(spark, "lake", properties)
    scene.catalog_.create_namespace("ns")
    return scene


@pytest.fixture
def a_task_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small partitions share a task; here even they have one of their own."""
    monkeypatch.setattr(plan, "TASK_PARTITIONS", 1)
