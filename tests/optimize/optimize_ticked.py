"""Optimizes by a worker that is ticked by hand: real tables and a real catalog, neither JVM nor waiting.

The clock begins a month after the tables were made, so that each process also expires snapshots.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from calve.control.background import inline
from calve.control.ports import Store, TaskOrder, TaskResult
from calve.control.steps.context import Spawn
from calve.control.worker import WorkerLoop
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, WorkerId
from calve.model.states import PROCESS_TERMINAL
from calve.optimize.kind import OptimizeKind
from calve.optimize.request import OptimizeRequest
from calve.optimize.submit import submit
from calve.testing.clock import FakeClock
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store
from calve.testing.memory_store import MemoryStore
from support.lake import BY_MONTH, SCHEMA, arrow, rows_of
from support.plain_rewriting import PlainRewriter, marked

NAME = "lake"
ROWS = list(range(8))
LIMITS = Limits(slots=2)


def catalog_in(folder: Path) -> Catalog:
    uri = f"sqlite:///{folder}/c.db"
    catalog = open_catalog(NAME, {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/w"})
    catalog.create_namespace("ns")
    return catalog


class OptimizeTicked:
    """One table of two partitions, two small files each, and everything that optimizes it. With
    the fixture `a_task_for_each_partition` that makes two tasks."""

    def __init__(self, catalog: Catalog, table: str, store: Store | None = None) -> None:
        self.clock = FakeClock(datetime.now(UTC) + timedelta(days=30))
        self.store = store or MemoryStore(self.clock)
        self.catalog_ = catalog
        self.identifier = ("ns", table)
        self.limits = LIMITS
        self.runner = PlainRewriter(catalog)
        self.kind = OptimizeKind(self)
        self._workers = 0
        properties = {"self-optimizing.minor.trigger.file-count": "2"}
        made = catalog.create_table(self.identifier, SCHEMA, partition_spec=BY_MONTH, properties=properties)
        for start in (0, 4):
            made.append(pa.concat_tables([arrow([start, start + 1], 1), arrow([start + 2, start + 3], 2)]))

    # -- what the kind reaches ----------------------------------------------------------------------

    def catalog(self, name: str) -> Catalog:
        return self.catalog_

    def catalog_properties(self, name: str) -> Mapping[str, Any]:
        return {}

    def run_on_driver(self, order: TaskOrder) -> TaskResult:
        raise AssertionError("such a table needs no tidying")

    # -- what a test does ---------------------------------------------------------------------------

    def submit(self) -> ProcessId:
        request = OptimizeRequest(catalog=NAME, identifier=self.identifier)
        return submit(self, self.store, request).process.id

    def worker(
        self, faults: Faults | None = None, spawn: Spawn = inline, *, only_the_store: bool = False
    ) -> WorkerLoop:
        """`faults` break the store, the kind and the runner, or only the store."""
        self._workers += 1
        quiet = faults or Faults()
        others = Faults() if only_the_store else quiet
        return WorkerLoop(
            store=crashing_store(self.store, quiet),
            kinds={"optimize": crashing_kind(self.kind, others)},
            runner=crashing_runner(self.runner, others),
            limits=self.limits,
            reach=frozenset({f"catalog:{NAME}"}),
            worker_id=WorkerId(f"worker-{self._workers}"),
            spawn=spawn,
            monotonic=self.clock.offset_seconds,
            random=Random(0).random,
        )

    def row(self, process_id: ProcessId) -> Process:
        return self.store.process(process_id)

    def settle(self, process_id: ProcessId, worker: WorkerLoop | None = None, ticks: int = 60) -> int:
        """Tick until it has ended; how many ticks that took."""
        worker = worker or self.worker()
        for number in range(1, ticks + 1):
            worker.tick()
            if self.row(process_id).state in PROCESS_TERMINAL:
                return number
            self.clock.advance(1.0)
        return ticks

    def rewrite_snapshots(self, process_id: ProcessId) -> dict[str, int]:
        """How many snapshots each task of the process made."""
        table = self.catalog_.load_table(self.identifier)
        return {step: len(marked(table, process_id, step)) for step in ("0", "1")}

    def check_done_once(self, process_id: ProcessId, where: str = "") -> None:
        """It ended well, each task rewrote once, no row changed, and nothing of it goes on."""
        row = self.row(process_id)
        assert row.state.value == "COMPLETED", f"{where}: {row.state} {row.error}"
        assert (row.tasks.done, row.tasks.running) == (2, 0), where
        assert sorted(self.runner.rewrites) == [(process_id, "0"), (process_id, "1")], where
        assert self.rewrite_snapshots(process_id) == {"0": 1, "1": 1}, where
        assert rows_of(self.catalog_, self.identifier) == ROWS, where
        result = json.loads(row.result)
        assert (result["rewritten_files"], result["added_files"]) == (4, 2), where
        table = self.catalog_.load_table(self.identifier)
        assert len(table.metadata.snapshots) == 2, f"{where}: what was old has expired, and no mark with it"
