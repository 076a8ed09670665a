"""The one Spark of a test program. PySpark has room for one in a program, and starting it takes many seconds.

Tests that ask for the master that runs get it as it is, with catalogs and folders of their own. Asking for
another master ends the one before, which is why the tests of a master stand side by side (`tests/conftest.py`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from calve.spark.java import class_archive, java_home, mapped
from calve.spark.runner import SparkRunner

LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"  # executors are programs of their own, as on other machines (D16)
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a JVM that lives for seconds

# For a test with a fixture `runner` that has children unless it is told otherwise. A scene needs it where the
# executors have a part in it; those in which only the driver meets the fault run on children alone.
on_a_cluster_too = pytest.mark.parametrize(
    "runner", ["children", pytest.param(CLUSTER, marks=pytest.mark.spark)], indirect=True
)


def java_options() -> str:
    """For JVMs that Calve itself does not start: executors, and the master and the worker of a cluster."""
    archive = class_archive(str(java_home()))  # see support.classes
    return " ".join([QUICK, *mapped(archive)]) if archive.exists() else QUICK


def common_conf() -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.executor.extraJavaOptions": java_options(),
    }


class Sparks:
    """Starts nothing by itself."""

    def __init__(self) -> None:
        self._master = ""
        self._runner: SparkRunner | None = None

    def runner(self, master: str, conf: Mapping[str, str] | None = None) -> SparkRunner:
        """`conf` is what that master needs, always the same."""
        if self._runner is None or self._master != master:
            self.close()
            self._master, self._runner = (
                master,
                SparkRunner(master=master, conf=common_conf() | dict(conf or {})),
            )
        return self._runner

    @contextmanager
    def own(self, master: str, conf: Mapping[str, str], slots: int = 0) -> Iterator[SparkRunner]:
        """One with a configuration that no other test could use."""
        self.close()
        runner = SparkRunner(master=master, conf=common_conf() | dict(conf), slots=slots)
        try:
            yield runner
        finally:
            runner.close()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None
