"""A configuration whose executors are on a real cluster: a server as the source, a lake and backups in S3."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.control.client import Submitted
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from calve.spark.runner import SparkRunner
from support.s3 import S3Server
from support.server_place import ServerPlace
from support.sparks import common_conf
from support.standalone import Standalone

ROWS = 300  # of each of a table's partitions


def cluster_conf(cluster: Standalone) -> dict[str, str]:
    return common_conf() | {
        "spark.pyspark.python": cluster.python,
        "spark.executor.memory": "512m",
        "spark.decommission.enabled": "true",
    }


class ClusterPlace(ServerPlace):
    spark: SparkRunner  # each test sets it

    def __init__(self, folder: Path, url: str, cluster: Standalone, s3: S3Server) -> None:
        self.cluster, self.s3 = cluster, s3
        super().__init__(
            folder,
            url,
            disks={"default": str(folder / "front" / "data")},
            CALVE_SOURCE__MAIN__DISKS_AT="worker",
            CALVE_SPARK__MASTER=cluster.url,
            CALVE_BACKUP__URL="s3://far/backups",
            CALVE_LIMITS__BACKOFF_FIRST_SECONDS="0.1",
            CALVE_LIMITS__LEASE_SECONDS="8",
        )
        config = folder / "calve.toml"
        keys = "\n".join(f'"{name}" = "{value}"' for name, value in s3.properties().items())
        config.write_text(
            config.read_text() + f'\n[catalog.far]\ntype = "sql"\nuri = "sqlite:///{folder}/far.db"\n'
            f'warehouse = "s3://far/warehouse"\n{keys}\n\n[storage."s3://far"]\nendpoint = "{s3.endpoint}"\n'
            f'region = "{s3.region}"\naccess_key_id = "{s3.keys.access_key_id}"\n'
            f'secret_access_key = "{s3.keys.secret_access_key}"\n'
        )

    @contextmanager
    def calve(self, **settings: str) -> Iterator[Calve]:
        """The façade, with the shared Spark lent to it."""
        environ = self.settings | settings
        config = load_config(self.folder / "calve.toml", environ=environ, cwd=self.folder)
        with Calve(config, runner=self.runner) as calve:
            yield calve

    def make(self, name: str, partitions: int = 4) -> str:
        """A table of so many partitions, each of one part; its name."""
        self.execute(
            "CREATE DATABASE IF NOT EXISTS db",
            f"CREATE TABLE db.{name} (id UInt64, month UInt8, note String) ENGINE = MergeTree"
            " PARTITION BY month ORDER BY id",
            *(
                f"INSERT INTO db.{name} SELECT number + {month * ROWS}, {month}, toString(number)"
                f" FROM numbers({ROWS})"
                for month in range(partitions)
            ),
        )
        return f"db.{name}"

    def do(self, ask: Callable[[Calve], Submitted], **settings: str) -> list[Process]:
        """Queue and see to the end, by a worker in this program."""
        with self.calve(**settings) as calve:
            return finished(calve, [process.id for process in ask(calve).processes])

    def ids_in(self, table: str) -> list[int]:
        return sorted(int(one) for one in self.read(table).column("id").to_pylist())


def finished(calve: Calve, ids: Sequence[ProcessId]) -> list[Process]:
    for standing in calve.run(ids, timeout_seconds=240):
        last = standing
    for process in last.processes:
        assert process.state is ProcessState.COMPLETED, (process.error, calve.why([process.id]))
    return list(last.processes)


def numbers(partitions: int) -> list[int]:
    return list(range(partitions * ROWS))


def attempts(calve: Calve, ids: Sequence[ProcessId]) -> list[Any]:
    """Of each task, the tries that used its budget."""
    return [task.attempt - task.free_attempts for one in calve.show(ids) for task in one.tasks]
