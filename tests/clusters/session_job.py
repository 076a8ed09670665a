"""A job of a user's own, for `spark-submit`: it has a session, and Calve works on it."""

import json
import sys

from pyspark.sql import SparkSession

import calve.spark

if __name__ == "__main__":
    config, optimizes = sys.argv[1], sys.argv[2] == "optimize"
    spark = SparkSession.builder.getOrCreate()
    findings = calve.spark.doctor(spark, config=config)
    done = calve.spark.run(spark, lambda it: it.export("db.t", "lake.ns.t", all=True), config=config)
    again = calve.spark.run(spark, lambda it: it.export("db.t", "lake.ns.t", all=True), config=config)
    states = [process.state.value for process in done]
    if optimizes:
        rewritten = calve.spark.run(spark, lambda it: it.optimize("lake.ns.t", full=True), config=config)
        states += [process.state.value for process in rewritten]
    found = {
        "spark": spark.version,
        "states": states,
        "again": len(again),
        "errors": [process.error.message for process in done if process.error],
        "findings": {one["part"]: [one["severity"], one["words"]] for one in findings},
        "still_works": spark.range(10).count(),
    }
    print("FOUND", json.dumps(found))
    spark.stop()
