"""Spark with Iceberg's own runtime as an independent reader and writer, in a process of its own.

    with SparkSql() as spark:
        lake = spark.catalog("lake", uri="sqlite:////…/catalog.db", warehouse="file:///…")
        table = lake.query("SELECT * FROM lake.ns.events WHERE id = 7")     # a pyarrow Table

The JVM lives in a child, so that it can share a machine with tests that start other Sparks, and
one child serves many catalogs: each `catalog` is a Spark session of its own.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.ipc

from calve.spark import java
from calve.spark.java import java_home
from support import tally
from support.sparks import java_options


class SparkSqlError(Exception):
    """What Spark answered instead of rows."""


class SparkSql:
    """Starts on entering, ends on leaving."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="calve-spark-sql-")
        self._log = (Path(self._folder.name) / "log").open("wb")
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self._folder.name,
            text=True,
        )
        self._sessions = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait(timeout=60)
        self._log.close()
        self._folder.cleanup()

    def catalog(self, name: str, *, uri: str, warehouse: str, **more: str) -> "SparkCatalog":
        """A session that sees the SQL catalog PyIceberg calls by the same name and URI."""
        conf = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": "jdbc:" + uri.replace("sqlite:///", "sqlite:"),
            ".jdbc.schema-version": "V1",
            ".warehouse": warehouse,
            ".cache-enabled": "false",
        } | {f".{key}": value for key, value in more.items()}
        self._sessions += 1
        self.ask(
            {
                "session": self._sessions,
                "conf": {f"spark.sql.catalog.{name}{key}": value for key, value in conf.items()},
            }
        )
        return SparkCatalog(self, self._sessions, Path(self._folder.name))

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send one request and wait for its answer."""
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise SparkSqlError((Path(self._folder.name) / "log").read_text()[-4000:])
        if error := json.loads(line).get("error"):
            raise SparkSqlError(error)


class SparkCatalog:
    """One Spark session with one catalog."""

    def __init__(self, spark: SparkSql, session: int, folder: Path) -> None:
        self._spark, self._session, self._folder = spark, session, folder

    def query(self, sql: str) -> pa.Table:
        """The rows of a statement, by value."""
        out = self._folder / "answer.arrow"
        self._spark.ask({"session": self._session, "sql": sql, "out": str(out)})
        with pa.ipc.open_file(out) as reader:
            rows = reader.read_all()
        tally.count("rows read back", "Spark", times=rows.num_rows)
        return rows

    def execute(self, sql: str) -> None:
        self._spark.ask({"session": self._session, "sql": sql})


def _serve(requests: IO[str], answers: IO[str]) -> None:
    spark = _session()
    sessions: dict[int, Any] = {}
    for line in requests:
        request = json.loads(line)
        try:
            if "conf" in request:
                sessions[request["session"]] = session = spark.newSession()
                for key, value in request["conf"].items():
                    session.conf.set(key, value)
            else:
                _run(sessions[request["session"]], request["sql"], request.get("out"))
            answer: dict[str, str] = {}
        except Exception as error:  # noqa: BLE001 - the border of the child: anything becomes an answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _run(session: Any, sql: str, out: str | None) -> None:
    frame = session.sql(sql)
    if out is None:
        frame.collect()
        return
    table = frame.toArrow()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def _session() -> Any:
    import os

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    paths = [str(java.resolve(jar)) for jar in (java.ICEBERG_SPARK, java.SQLITE_JDBC)]
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(paths))
        .config("spark.driver.extraJavaOptions", java_options())
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .getOrCreate()
    )


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
