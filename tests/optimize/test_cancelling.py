"""A cancel reaches Iceberg's actions in the driver's JVM."""

import json
import threading
import time
from pathlib import Path

import pytest

from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import ProcessId
from calve.spark.runner import SparkRunner

pytestmark = pytest.mark.spark


def test_a_cancel_ends_what_runs_on_the_driver_and_the_runner_lives_on(
    spark: SparkRunner, tmp_path: Path
) -> None:
    def order(sql: str) -> TaskOrder:
        payload = {
            "catalog": "lake",
            "properties": {
                "type": "sql",
                "uri": f"sqlite:///{tmp_path}/c.db",
                "warehouse": f"file://{tmp_path}",
            },
            "location": "",
            "statements": [sql],
        }
        return TaskOrder(
            process_id=ProcessId("p"), number=1, attempt=1, function="support.driver_sql:run",
            payload=json.dumps(payload), on_driver=True,
        )  # fmt: skip

    results: list[TaskResult] = []
    endless = order("SELECT count(*) AS n FROM range(0, 1000000000000, 1, 2) WHERE sqrt(id) % 7 = 1")
    wave = threading.Thread(target=spark.run, args=("endless", [endless], results.append))
    wave.start()
    tracker = spark.started().statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    spark.cancel("endless")
    wave.join(60)
    assert not wave.is_alive()
    [result] = results
    assert result.error is not None and result.error.code == "cancelled"
    spark.run("after", [order("SELECT 7 AS n")], results.append)
    assert json.loads(results[1].receipt) == [{"n": 7}]
