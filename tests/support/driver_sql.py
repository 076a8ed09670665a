"""SQL in the runner's own JVM, as an order that runs on the driver: Spark and Iceberg write and read
a table with none of Calve's code between, and tests need one JVM only."""

import json

from calve.spark.catalog_conf import certificates_for, jars_for, spark_catalog
from calve.spark.driver import Driver
from calve.spark.errors import translated


def run(payload: str, driver: Driver) -> str:
    """`{"catalog", "properties", "location", "statements"}`; the rows of the last one, as JSON."""
    order = json.loads(payload)
    conf = spark_catalog(order["catalog"], order["properties"], order["location"])
    with translated(order["catalog"], order["statements"][-1]):
        driver.trust(certificates_for(order["properties"]))
        session = driver.session(conf, jars_for(conf))
        for statement in order["statements"]:
            frame = session.sql(statement)
        rows = [json.loads(row) for row in frame.toJSON().collectAsList()]
    return json.dumps({"receipt": json.dumps(rows), "rows": len(rows)})
