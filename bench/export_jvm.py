"""An export by a warm worker, against what a Spark user would write: read over JDBC in as many ranges as there are
cores, `writeTo` an Iceberg table. The same server is the source of both, over HTTP; both are warm and take turns.

The driver is ClickHouse's own, `com.clickhouse:clickhouse-jdbc`. Types that Spark's JDBC reader has no name for (UUID,
LowCardinality) are cast to text by the query, as its user has to.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calve.spark import java
from kit.report import Report
from kit.world import fill, folder, warm
from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser, clickhouse_front
from support.server_place import ServerPlace

DRIVER, SHA256 = "0.9.9", "56b49bb9e40df699eff03215e3853ce028be9a6bf17f33687434901a74ee28e0"
ACCOUNTS = FrontOptions(users={"default": FrontUser(), "jdbc": FrontUser(password="jdbc")})
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="calve" module="bench"/>
  <dependencies>
    <dependency org="com.clickhouse" name="clickhouse-jdbc" rev="{DRIVER}" transitive="false">
      <artifact name="clickhouse-jdbc" type="jar" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>"""

_SPARK = """
import os, sys
from pyspark.sql import SparkSession
url, jars, warehouse, cores = sys.argv[1:]
spark = (
    SparkSession.builder.master(f"local[{cores}]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "2g").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.catalog.jvm", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.jvm.type", "hadoop").config("spark.sql.catalog.jvm.warehouse", warehouse)
    .getOrCreate()
)
columns = ("CAST(id AS Int64) AS id, day, at, score, note, toString(tag) AS tag, toString(user) AS user, price")
for line in sys.stdin:
    rows = int(line)
    frame = (
        spark.read.format("jdbc")
        .option("url", url).option("driver", "com.clickhouse.jdbc.ClickHouseDriver")
        .option("user", "jdbc").option("password", "jdbc")
        .option("dbtable", f"(SELECT {columns} FROM db.events WHERE id < {rows})")
        .option("partitionColumn", "id").option("lowerBound", 0).option("upperBound", rows)
        .option("numPartitions", cores).option("fetchsize", 100000)
        .load()
    )
    frame.writeTo("jvm.ns.events").using("iceberg").tableProperty(
        "write.parquet.compression-codec", "zstd"
    ).createOrReplace()
    print(spark.table("jvm.ns.events").count(), flush=True)
os._exit(0)
"""


def driver() -> Path:
    """The jar with all that the driver needs, fetched once by the Ivy that PySpark ships, as Calve fetches its own."""
    import pyspark

    target = java.cache_folder() / f"clickhouse-jdbc-{DRIVER}-all.jar"
    if not target.exists():
        [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as at:
            (Path(at) / "ivy.xml").write_text(_IVY)
            command = [java.java_home() / "bin" / "java", "-jar", ivy, "-ivy", "ivy.xml", "-cache", "cache"]
            subprocess.run(
                [*command, "-retrieve", "[artifact].[ext]"], check=True, cwd=at, stdout=subprocess.DEVNULL
            )
            (Path(at) / "clickhouse-jdbc.jar").rename(target)
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    assert found == SHA256, f"{target} has checksum {found}, not the pinned {SHA256}"
    return target


class SparkUser:
    """A Spark session of somebody else, in a program of its own."""

    def __init__(self, child: "subprocess.Popen[str]", log: Path) -> None:
        self._child, self._log = child, log

    def copy(self, rows: int) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{rows}\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        assert answer == f"{rows}\n", answer or self._log.read_text()[-4000:]


@contextmanager
def spark_user(front: ClickHouseFront, home: Path) -> Iterator[SparkUser]:
    jars = ",".join(map(str, (driver(), java.resolve(java.ICEBERG_SPARK))))
    url = f"jdbc:clickhouse://127.0.0.1:{front.port}/db?compress=0"
    written = home / "spark-user.log"
    with written.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", _SPARK, url, jars, str(home / "jvm"), str(os.cpu_count())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "JAVA_HOME": str(java.java_home()), "PYSPARK_PYTHON": sys.executable},
        )
        try:
            yield SparkUser(child, written)
        finally:
            child.kill()
            child.wait()


def main() -> None:
    report = Report("export-jvm", __doc__)
    rows = 500_000 if report.quick else 5_000_000
    with folder() as home, clickhouse_front(home / "server", ACCOUNTS) as front:
        fill(ServerPlace(home, front.url), rows)
        with spark_user(front, home) as user, warm(home, server=front.url) as worker:
            user.copy(rows // 10)
            worker.export()
            for _ in range(2):
                with report.timed("JDBC to Iceberg on Spark"):
                    user.copy(rows)
                with report.timed("export") as run:
                    [process] = worker.export()
                    run.detail["tasks"] = process.tasks.total
                    assert process.rows == rows
    ratio = report.best("JDBC to Iceberg on Spark") / report.best("export")
    report.ratio(f"rows/s, {rows:,}", ratio, 5.0, at_least=True)
    share = report.cores("export") / report.cores("JDBC to Iceberg on Spark")
    report.ratio(f"core-seconds, {rows:,}", share)
    report.finish()


if __name__ == "__main__":
    main()
