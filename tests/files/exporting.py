"""A whole task without Spark: a real table in a child's engine, exported, published, read back.

The engine lives in one spawned child for all tests, never in pytest's own process (W10).
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.clickhouse.pins.pin import FROZEN_READER
from calve.clickhouse.reader import Reader
from calve.control.ports import TaskOrder
from calve.destination.plan import ExportPlan, KeyPlan, PartPlan, Relation
from calve.destination.receipt import Receipt
from calve.export.choices import Choices
from calve.export.columns import map_columns, raise_refusals
from calve.export.kind import TASK_FUNCTION
from calve.export.layout import match_schema
from calve.export.payload import TaskPayload
from calve.export.slices import slice_parts
from calve.export.spec import derive_sort_order, is_sorted_by, parse_partition_by, plan_spec
from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.publish.publish import publish
from calve.model.errors import ErrorInfo
from calve.model.process import new_process_id
from calve.spark.executor import execute
from support.lake import sqlite_properties

_MAKE = {
    "allow_suspicious_low_cardinality_types": "1",
    "allow_suspicious_fixed_string_types": "1",
    "enable_time_time64_type": "1",
    "allow_suspicious_variant_types": "1",
    "session_timezone": "America/New_York",  # nothing may depend on it (P3)
}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    default_kind: str = ""


# ---- in the child


def child_rows(sql: str) -> list[dict[str, Any]]:
    from calve.clickhouse.engine.engine import worker_engine

    return worker_engine().rows(sql)


def child_make(create: str, fills: Sequence[str]) -> tuple[list[Column], list[PartPlan]]:
    """A table `source` with one part for each fill (and partition)."""
    from calve.clickhouse.engine.engine import worker_engine

    engine = worker_engine()
    engine.execute("CREATE DATABASE IF NOT EXISTS made ENGINE = Atomic")
    engine.execute("DROP TABLE IF EXISTS made.source SYNC")
    engine.execute(create.replace("{table}", "made.source"), _MAKE)
    # no merges, but mutations, which STOP MERGES would stop too
    engine.execute("ALTER TABLE made.source MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1")
    for fill in fills:
        text = fill if fill.startswith(("ALTER", "DELETE")) else f"INSERT INTO made.source {fill}"
        engine.execute(text, {**_MAKE, "mutations_sync": "2"})
    columns = engine.rows(
        "SELECT name, type, default_kind AS kind FROM system.columns"
        " WHERE database = 'made' AND table = 'source' ORDER BY position"
    )
    parts = engine.rows(
        "SELECT name, partition_id, rows, bytes_on_disk AS bytes, path FROM system.parts"
        " WHERE active AND database = 'made' AND table = 'source' ORDER BY name"
    )
    return (
        [Column(column["name"], column["type"], column["kind"]) for column in columns],
        [PartPlan(**part) for part in parts],
    )


def child_run(payload: str) -> str:
    order = TaskOrder(
        process_id=new_process_id(), number=0, attempt=1, function=TASK_FUNCTION, payload=payload
    )
    return json.dumps(execute(order))


def child_scratch() -> list[str]:
    """What is left in the engine's folder for output files, and tables of its own."""
    from calve.clickhouse.engine.engine import worker_engine

    engine = worker_engine()
    tables = engine.rows("SELECT name FROM system.tables WHERE database = 'calve_scratch'")
    return [str(path) for path in engine.scratch.rglob("*")] + [row["name"] for row in tables]


# ---- in pytest


class Child:
    """One engine for many tests."""

    def __init__(self) -> None:
        # `icebergLocal` reads only below the working folder
        self._pool = ProcessPoolExecutor(
            max_workers=1, mp_context=get_context("spawn"), initializer=os.chdir, initargs=("/",)
        )

    def call(self, function: Any, *arguments: Any) -> Any:
        return self._pool.submit(function, *arguments).result(timeout=120)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(child_rows, sql)
        return found

    def close(self) -> None:
        self._pool.shutdown()


@dataclass
class Export:
    """One export: what was planned, what each task answered."""

    child: Child
    catalog: Catalog
    plan: ExportPlan
    receipts: list[Receipt] = field(default_factory=list)
    errors: list[ErrorInfo] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)

    @property
    def identifier(self) -> tuple[str, ...]:
        return self.plan.destination.identifier

    @property
    def files(self) -> list[Any]:
        return [file for receipt in self.receipts for file in receipt.files]

    @property
    def paths(self) -> list[Path]:
        return [Path(file.path.removeprefix("file://")) for file in self.files]

    def arrow(self) -> Any:
        """The files as pyarrow reads them, without any table."""
        return pa.concat_tables([pq.ParquetFile(path).read() for path in self.paths])

    @cached_property
    def table(self) -> Table:
        """The table, after its real publish."""
        publish(self.catalog, self.plan.process_id, self.plan, self.receipts, "", lambda note: None)
        return self.catalog.load_table(self.identifier)

    def by_clickhouse(self, sql: str) -> list[dict[str, Any]]:
        """`{table}` in the SQL is the published table, read by ClickHouse's own Iceberg reader."""
        location = self.table.location().removeprefix("file://")
        return self.child.rows(sql.replace("{table}", f"icebergLocal('{location}')"))


def make_catalog(folder: Path) -> Catalog:
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    return open_catalog("lake", sqlite_properties(folder))


def export(
    child: Child,
    folder: Path,
    columns: str,
    *fills: str,
    engine: str = "MergeTree ORDER BY tuple()",
    partition_by: str = "",
    choices: Choices | None = None,
    properties: dict[str, str] | None = None,
    where: str = "",
    final: bool = False,
    task_bytes_mb: int = 256,
    expect_errors: bool = False,
    publishable: bool = True,
    **changes: Any,
) -> Export:
    """Make a table of `columns`, fill it (one part for each), and export all of it."""
    create = f"CREATE TABLE {{table}} ({columns}) ENGINE = {engine}"
    made, parts = child.call(child_make, create, fills)
    mapping = map_columns(made, choices or Choices())
    raise_refusals("made.source", mapping.refusals)
    catalog = make_catalog(folder)
    spec = parse_partition_by(partition_by, mapping.schema)
    names = {column.source: column.name for column in mapping.columns}
    source_types = {column.name: column.type for column in made}
    sorting_key = engine.partition("ORDER BY ")[2]
    order = derive_sort_order(sorting_key, source_types, names, mapping.schema)
    identifier = ("ns", f"t_{new_process_id()}")
    table = tables.create(
        catalog, identifier, mapping.schema, spec=spec, sort_order=order, properties=properties
    )
    match = match_schema(mapping, table.schema())
    raise_refusals("made.source", match.refusals)
    destination = replace(
        tables.describe(catalog, table),
        spec=plan_spec(table.spec(), table.schema(), match.columns),
        sorted=is_sorted_by(sorting_key, source_types, names, table.schema(), table.sort_order()),
    )
    plan = ExportPlan(
        process_id=new_process_id(),
        source="main",
        source_identity="made",
        table="made.source",
        relation=Relation(mode="frozen", create=create, where=where, final=final),
        parts=tuple(parts),
        tasks=slice_parts(parts, task_bytes_mb=task_bytes_mb, whole=final),
        columns=match.columns,
        keys=(KeyPlan(partition="all", hash="k", content="c"),),
        destination=destination,
    )
    plan = ExportPlan.from_json(replace(plan, **changes).to_json())
    done = Export(child=child, catalog=catalog, plan=plan)
    for task in range(len(plan.tasks)):
        payload = TaskPayload.of(
            plan, task=task, attempt=1, reader=Reader(function=FROZEN_READER), storage={}
        ).to_json()
        answer = json.loads(child.call(child_run, payload))
        done.payloads.append(payload)
        if "error" in answer:
            done.errors.append(ErrorInfo.from_json(answer["error"]))
        else:
            done.receipts.append(Receipt.from_json(answer["receipt"]))
    if not expect_errors:
        assert not done.errors, done.errors
    return done
