"""One export in a real lake and a source that is a fake, with a worker that is ticked by hand: what proves it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog

from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.tables import Column, TableInfo
from calve.control.background import inline
from calve.control.ports import StoreReader, TaskOrder
from calve.control.worker import WorkerLoop
from calve.destination.names import DestinationAddress
from calve.destination.outcome import PublishedSnapshot
from calve.destination.plan import PartPlan
from calve.destination.port import Destination
from calve.iceberg.destination import IcebergDestination
from calve.iceberg.publish.publish import publish
from calve.model.access import Proof
from calve.model.errors import NotFoundError
from calve.model.limits import Limits
from calve.model.process import NewProcess, Process, ProcessId, Task, WorkerId
from calve.model.states import PROCESS_TERMINAL, TaskState
from calve.policy.proof.kind import ProofKind
from calve.policy.proof.plan import ProofRequest
from calve.policy.row_hash import HashedColumn, RowHash
from calve.spark.executor import execute, result
from calve.testing.clock import FakeClock
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store
from calve.testing.memory_store import MemoryStore
from support.lake import SCHEMA, Work, arrow, make_table, make_work

CONTENT = "content-1"
RANGES = (range(5), range(5, 11), range(11, 30))  # of ids: a part of the source, a file of the lake
COLUMNS = (
    Column(name="id", type="Int64"),
    Column(name="month", type="Nullable(Int32)"),
    Column(name="name", type="Nullable(String)"),
)


@dataclass
class FakeSource:
    """A table of parts. It knows the one form of query that a proof asks, and answers by Arrow."""

    parts_: dict[str, Any]
    columns: tuple[Column, ...] = COLUMNS
    content: str = CONTENT
    unable: str = ""
    row_policies: tuple[str, ...] = ()
    gone: bool = False
    queries: list[str] = field(default_factory=list)
    merges_at: int = 0  # before this query, the parts become others
    need = "source:main"

    @contextmanager
    def visit(self) -> Iterator[Session]:
        yield cast(Session, self)

    def cannot_recompute(self) -> str:
        return self.unable

    def describe(self, database: str, table: str) -> TableInfo:
        if self.gone:
            raise NotFoundError(f"no table {database}.{table}", code="no_table")
        return TableInfo(
            source="main", database=database, name=table, uuid="", identity="server/table", engine="MergeTree",
            clause=EngineClause(name="MergeTree", arguments=(), settings={}), columns=self.columns,
            partition_key="month", sorting_key="id", primary_key="id", sampling_key="", create_query="",
            storage_policy="", data_paths=(), timezone="UTC", version="26.9", row_policies=self.row_policies,
        )  # fmt: skip

    def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return [
            PartitionInfo(
                id="202401", value="202401", rows=0, bytes=0, parts=len(self.parts_),
                modified_at=datetime(2024, 2, 1, tzinfo=UTC), min_block=1, max_block=1, mutation=0,
                content=self.content, disks=("default",),
            )
        ]  # fmt: skip

    def parts(
        self, table: TableInfo, ids: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[PartPlan, ...]:
        return tuple(
            PartPlan(name=name, partition_id="202401", rows=rows.num_rows, bytes=1)
            for name, rows in self.parts_.items()
        )

    def rows(self, sql: str, settings: Mapping[str, str] = {}, what: str = "") -> list[dict[str, Any]]:
        self.queries.append(sql)
        if len(self.queries) == self.merges_at:
            self.parts_ = {"merged": pa.concat_tables(self.parts_.values())}
        named = re.findall(r"'(\w+)'", sql[sql.index("WHERE") :])
        start, stop = re.search(r"offset >= (\d+)", sql), re.search(r"offset < (\d+)", sql)
        found = [self.parts_[name] for name in named if name in self.parts_]
        if start and stop:
            found = [one.slice(int(start[1]), int(stop[1]) - int(start[1])) for one in found]
        row_hash = RowHash(
            [
                HashedColumn(field_id=place, expression=column.name, type=column.type)
                for place, column in enumerate(COLUMNS, 1)
                if f"`{column.name}`" in sql or column.name in sql
            ],
            SCHEMA,
        )
        sums = row_hash.of_batch(pa.concat_tables(found) if found else arrow([], 1))
        return [{"rows": sums.rows, "first": sums.first, "second": sums.second}]


class _Runner:
    """Runs orders in this program, one after the other."""

    slots = 2

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Any) -> None:
        for order in orders:
            on_result(result(execute(order)))

    def cancel(self, group: str) -> None: ...

    def close(self) -> None: ...


class _Exported:
    """The store, as far as a proof reads the export in it."""

    def __init__(self, work: Work, snapshot_id: str) -> None:
        self._work = work
        self._snapshot_id = snapshot_id

    def process(self, id: ProcessId) -> Process:
        new = NewProcess(id=id, kind="export", source="", destination="", lane="", needs=(), request="{}")
        accepted = new.accepted(adopted=False, now=datetime(2024, 2, 1, tzinfo=UTC))
        return replace(accepted, snapshot_id=self._snapshot_id)

    def plan(self, id: ProcessId) -> str:
        return self._work.plan.to_json()

    def tasks(self, id: ProcessId, states: frozenset[TaskState]) -> list[Task]:
        return [
            Task(
                process_id=id,
                number=number,
                state=TaskState.DONE,
                attempt=1,
                spec="",
                receipt=receipt.to_json(),
            )
            for number, receipt in enumerate(self._work.receipts)
        ]


@dataclass(frozen=True)
class Export:
    """Of 3 files; it is published, and proving it changes nothing of it."""

    catalog: Catalog
    identifier: tuple[str, ...]
    work: Work
    snapshot_id: str

    @classmethod
    def make(cls, catalog: Catalog, table: str) -> "Export":
        identifier = ("ns", table)
        make_table(catalog, identifier=identifier)
        work = make_work(catalog, [(1, ids) for ids in RANGES], content=CONTENT, identifier=identifier)
        published = publish(catalog, work.process_id, work.plan, work.receipts, "", lambda _: None)
        assert isinstance(published, PublishedSnapshot)
        return cls(catalog, identifier, work, published.snapshot_id)


class ProofScene:
    """Everything that proves an export."""

    limits = Limits(slots=2)

    def __init__(self, export: "Export") -> None:
        self.export = export
        self.source_ = FakeSource({f"all_{place}": arrow(ids, 1) for place, ids in enumerate(RANGES)})
        self.clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.memory = MemoryStore(self.clock)
        self.store = cast(StoreReader, _Exported(export.work, export.snapshot_id))
        self.proofs: list[Proof] = []
        self._workers = 0

    # -- what the kind reaches ----------------------------------------------------------------------

    def source(self, name: str) -> LiveSource:
        return cast(LiveSource, self.source_)

    def destination(self, address: DestinationAddress) -> Destination:
        catalog = self.export.catalog
        return IcebergDestination(address, catalog, dict(catalog.properties), self.limits)

    def record_proof(self, proof: Proof) -> None:
        self.proofs.append(proof)

    # -- what a test does ---------------------------------------------------------------------------

    def submit(self, *, sample: bool = False) -> ProcessId:
        request = ProofRequest(
            export=self.export.work.process_id, source="main", database="db", table="events", catalog="lake",
            identifier=self.export.identifier, sample=sample,
        )  # fmt: skip
        new = request.process(
            source="main:db.events", destination=f"lake.ns.{self.export.identifier[1]}", partitions=["202401"],
            needs=["source:main"], deadline_seconds=86_400.0,
        )  # fmt: skip
        return self.memory.submit([new])[0].id

    def worker(self, faults: Faults | None = None) -> WorkerLoop:
        self._workers += 1
        used = faults or Faults()
        return WorkerLoop(
            store=crashing_store(self.memory, used),
            kinds={"proof": crashing_kind(ProofKind(self), used)},
            runner=crashing_runner(_Runner(), used),
            limits=self.limits,
            reach=frozenset({"catalog:lake", "source:main"}),
            worker_id=WorkerId(f"worker-{self._workers}"),
            spawn=inline,
            monotonic=self.clock.offset_seconds,
            random=Random(0).random,
        )

    def settle(self, id: ProcessId, worker: WorkerLoop | None = None, ticks: int = 80) -> Process:
        worker = worker or self.worker()
        for _ in range(ticks):
            worker.tick()
            if self.memory.process(id).state in PROCESS_TERMINAL:
                break
            self.clock.advance(1.0)
        return self.memory.process(id)


def lake_in(folder: Path) -> Catalog:
    from calve.iceberg.catalogs.catalog import open_catalog
    from support.lake import sqlite_properties

    catalog = open_catalog("lake", sqlite_properties(folder))
    catalog.create_namespace("ns")
    return catalog
