"""Leaves Spark's classes in the cache for all JVMs of the tests (`calve.spark.java.ClassArchive`): those of a driver,
a master, a worker, an executor and SQL, where the first JVM of a user leaves those of one export."""

import sys
from contextlib import closing

from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import ProcessId
from calve.spark.java import class_archive, java_home
from calve.spark.runner import SparkRunner


def main() -> int:
    if class_archive(str(java_home())).exists():
        return 0
    sys.stderr.write("archiving Spark's classes\n")
    order = TaskOrder(
        process_id=ProcessId("p"), number=1, attempt=1, function="support.tasks:echo", payload="echo"
    )
    results: list[TaskResult] = []
    with closing(SparkRunner(master="local-cluster[1,1,1024]", conf={}, brief=True)) as runner:
        runner.run("classes", [order], results.append)
        from pyspark.sql import SparkSession

        session = SparkSession(runner.started())
        session.sql("SELECT id % 7 AS k, count(*) FROM range(100) GROUP BY k ORDER BY k").toArrow()
    return 0


if __name__ == "__main__":
    sys.exit(main())
