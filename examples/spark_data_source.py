"""Read MergeTree parts in any Spark job.

python examples/spark_data_source.py chdb:///data/clickhouse db.events
python examples/spark_data_source.py http://host:8123 db.events password-file
"""

import os
import sys

from pyspark.sql import SparkSession

from calve.data_source.mergetree import MergeTreeDataSource


def main(source: str, table: str, password_file: str = "") -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python needs Calve too
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")  # off by default in Spark 4.1
        .getOrCreate()
    )
    spark.dataSource.register(MergeTreeDataSource)
    reader = spark.read.format("mergetree").option("source", source).option("pushdown", "true")
    if password_file:
        reader = reader.option("password_file", password_file)
    events = reader.load(table)
    events.printSchema()
    events.createOrReplaceTempView("events")
    spark.sql("SELECT count(*) AS rows FROM events").show()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
