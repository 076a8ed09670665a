"""A lake to optimize: a real Spark, a real catalog, the real control plane over a store in memory."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.control.kind import Kind
from calve.control.ports import Runner, Store, TaskOrder, TaskResult
from calve.control.worker import WorkerLoop
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId
from calve.model.states import PROCESS_TERMINAL
from calve.optimize.driver_work import error_of
from calve.optimize.kind import OptimizeKind
from calve.optimize.request import OptimizeRequest
from calve.optimize.submit import submit
from calve.testing.memory_store import MemoryStore

LIMITS = Limits(backoff_first_seconds=0.01, backoff_most_seconds=0.05, tick_seconds=0.02, slots=2)


class MovedClock:
    """The real clock, which tests set forward: files and snapshots carry real times."""

    def __init__(self) -> None:
        self._moved = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._moved

    def advance(self, **span: float) -> None:
        self._moved += timedelta(**span)


class OptimizeScene:
    """One catalog, and everything that optimizes its tables."""

    def __init__(self, runner: Runner, name: str, properties: Mapping[str, Any]) -> None:
        self.runner = runner
        self.name = name
        self.properties = dict(properties)
        self.limits = LIMITS
        self.clock = MovedClock()
        self.store: Store = MemoryStore(self.clock)
        self.catalog_: Catalog = open_catalog(name, properties, LIMITS)
        self.kind: Kind = OptimizeKind(self)

    # -- what the kind reaches ----------------------------------------------------------------------

    def catalog(self, name: str) -> Catalog:
        assert name == self.name
        return self.catalog_

    def catalog_properties(self, name: str) -> Mapping[str, Any]:
        assert name == self.name
        return self.properties

    def run_on_driver(self, order: TaskOrder) -> TaskResult:
        found: list[TaskResult] = []
        self.runner.run(f"calve-test-{order.number}", [order], found.append)
        return found[0]

    # -- what a test does ---------------------------------------------------------------------------

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Statements of Spark's; the rows of the last one."""
        payload = json.dumps(
            {"catalog": self.name, "properties": self.properties, "location": "", "statements": statements}
        )
        result = self.run_on_driver(
            TaskOrder(
                process_id=ProcessId("sql"),
                number=0,
                attempt=1,
                function="support.driver_sql:run",
                payload=payload,
                on_driver=True,
            )
        )
        if result.error is not None:
            raise error_of(result.error)
        rows: list[dict[str, Any]] = json.loads(result.receipt)
        return rows

    def make(self, table: str, *, files: int = 13, rows: int = 130, **properties: str) -> None:
        """A table by Spark, partitioned by day, each of its two partitions in so many small files;
        deletes are merge-on-read."""
        given = {"format-version": "2", "write.delete.mode": "merge-on-read"} | properties
        listed = ", ".join(f"'{key}'='{value}'" for key, value in given.items())
        self.sql(
            f"CREATE TABLE {self.name}.{table} (id BIGINT, day DATE, name STRING) USING iceberg"
            f" PARTITIONED BY (day) TBLPROPERTIES ('write.distribution-mode'='none', {listed})",
            self.insert(table, range(rows), files=files),
        )

    def insert(self, table: str, ids: range, *, files: int = 1) -> str:
        """The statement that adds rows of both partitions."""
        return (
            f"INSERT INTO {self.name}.{table}"
            " SELECT id, date_add(DATE'2024-01-01', CAST(id % 2 AS INT)) AS day, concat('n', id) AS name"
            f" FROM range({ids.start}, {ids.stop}, 1, {files})"
        )

    def rows(self, table: str, at: str = "") -> list[dict[str, Any]]:
        """Every row as Spark reads it, by value; `at` is a `VERSION AS OF` clause's operand."""
        version = f" VERSION AS OF {at}" if at else ""
        found = self.sql(f"SELECT * FROM {self.name}.{table}{version}")
        return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))

    def table(self, table: str) -> Table:
        return self.catalog_.load_table(tuple(table.split(".")))

    def submit(self, table: str, **request: Any) -> Process:
        return submit(
            self,
            self.store,
            OptimizeRequest(catalog=self.name, identifier=tuple(table.split(".")), **request),
        ).process

    def worker(self, runner: Runner | None = None, kind: Kind | None = None) -> WorkerLoop:
        return WorkerLoop(
            store=self.store,
            kinds={"optimize": kind or self.kind},
            runner=runner or self.runner,
            limits=self.limits,
            reach=frozenset({f"catalog:{self.name}"}),
        )

    def run(
        self, process: Process, worker: WorkerLoop | None = None, until: Callable[[], bool] | None = None
    ) -> Process:
        """Work until the process has ended."""
        (worker or self.worker()).run(until=until or (lambda: self.ended(process)))
        return self.store.process(process.id)

    def ended(self, process: Process) -> bool:
        return self.store.process(process.id).state in PROCESS_TERMINAL

    def optimize(self, table: str, **request: Any) -> Process:
        return self.run(self.submit(table, **request))
