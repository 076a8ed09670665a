from pathlib import Path

import pytest

from calve.optimize import plan
from calve.spark.runner import SparkRunner
from support.optimizing import OptimizeScene
from support.sparks import LOCAL, Sparks


@pytest.fixture
def spark(sparks: Sparks) -> SparkRunner:
    return sparks.runner(LOCAL)


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
