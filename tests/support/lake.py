"""A destination to publish into without a source: a table, plans, data files and their receipts.

Everything is real: Parquet with field ids, statistics, receipts as tasks leave them.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from calve.destination import checksums
from calve.destination.names import receipt_uri
from calve.destination.plan import ColumnPlan, ExportPlan, KeyPlan, PartPlan, Relation, Slice
from calve.destination.receipt import FileReceipt, Receipt
from calve.iceberg import tables
from calve.model.process import new_process_id
from calve.objects.storage import Storage

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "month", IntegerType(), required=False),
    NestedField(3, "name", StringType(), required=False),
)
BY_MONTH = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="month")
)
IDENTIFIER = ("ns", "events")
ARROW_SCHEMA = schema_to_pyarrow(SCHEMA)


def make_table(
    catalog: Catalog,
    *,
    spec: PartitionSpec = BY_MONTH,
    properties: dict[str, str] | None = None,
    location: str | None = None,
    identifier: tuple[str, ...] = IDENTIFIER,
) -> Table:
    return tables.create(catalog, identifier, SCHEMA, spec=spec, properties=properties, location=location)


def repeat_ids(table: Table) -> Table:
    """The table with each partition spec and sort order twice in its metadata, as two programs could leave it."""
    old = Path(table.metadata_location.removeprefix("file:"))  # Spark writes one slash, PyIceberg three
    metadata = json.loads(old.read_text())
    for name in ("partition-specs", "sort-orders"):
        metadata[name] *= 2
    new = old.with_name(f"00099-{new_process_id()}.metadata.json")
    new.write_text(json.dumps(metadata))
    identifier = tuple(table.name())
    table.catalog.drop_table(identifier)
    return table.catalog.register_table(identifier, f"file:{new}")


def rows_of(catalog: Catalog, identifier: tuple[str, ...] = IDENTIFIER) -> list[int]:
    """The ids in the table as a reader sees them, sorted: the truth every test ends with."""
    found = catalog.load_table(identifier).scan().to_arrow()
    return sorted(found.column("id").to_pylist())


def arrow(ids: Sequence[int], month: int | None) -> Any:
    rows = [{"id": number, "month": month, "name": f"row {number}"} for number in ids]
    return pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A planned process with the receipts of its tasks."""

    process_id: str
    plan: ExportPlan
    receipts: tuple[Receipt, ...]

    @property
    def ids(self) -> list[int]:
        return sorted(number for part in self.plan.parts for number in range(part.min_block, part.max_block))

    def with_plan(self, **changes: Any) -> "Work":
        return replace(self, plan=replace(self.plan, **changes))


def make_work(
    catalog: Catalog,
    tasks: Sequence[tuple[int | None, range]],
    *,
    keys: Sequence[tuple[str, str]] = (("202401", "k-202401"),),
    content: str = "content-1",
    process_id: str = "",
    attempt: int = 1,
    storage: Storage | None = None,
    keep_receipts: bool = True,
    identifier: tuple[str, ...] = IDENTIFIER,
) -> Work:
    """A process with one task for each (month, ids); the month's text is the source partition.
    Files and receipts are written where the table wants them."""
    process_id = process_id or new_process_id()
    table = catalog.load_table(identifier)
    plan = _plan(catalog, table, process_id, tasks, keys, content)
    storage = storage or Storage({key: str(value) for key, value in catalog.properties.items()})
    receipts = tuple(
        write_task(plan, number, attempt, month, ids, storage, keep_receipts)
        for number, (month, ids) in enumerate(tasks)
    )
    return Work(process_id=process_id, plan=plan, receipts=receipts)


def _plan(
    catalog: Catalog,
    table: Table,
    process_id: str,
    tasks: Sequence[tuple[int | None, range]],
    keys: Sequence[tuple[str, str]],
    content: str,
) -> ExportPlan:
    only = keys[0][0] if len(keys) == 1 else ""
    return ExportPlan(
        process_id=process_id,
        source="main",
        source_identity="server/table",
        table="db.events",
        relation=Relation(mode="frozen"),
        parts=tuple(
            PartPlan(
                name=f"all_{number}",
                partition_id=only or str(month),
                rows=len(ids),
                bytes=100,
                min_block=ids.start,
                max_block=ids.stop,
            )
            for number, (month, ids) in enumerate(tasks)
        ),
        tasks=tuple((Slice(part=number, start=0, end=len(ids)),) for number, (_, ids) in enumerate(tasks)),
        columns=tuple(
            ColumnPlan(
                name=field.name,
                source=field.name,
                source_type="",
                select=field.name,
                field_id=field.field_id,
                type=str(field.field_type),
                required=field.required,
            )
            for field in table.schema().fields
        ),
        keys=tuple(KeyPlan(partition=name, hash=key, content=content) for name, key in keys),
        destination=tables.describe(catalog, table),
    )


def write_task(
    plan: ExportPlan,
    task: int,
    attempt: int,
    month: int | None,
    ids: Sequence[int],
    storage: Storage,
    keep_receipt: bool = True,
) -> Receipt:
    """One data file and its receipt, put where a task puts them. No rows: no file."""
    data = arrow(ids, month)
    files = (_write_file(plan, task, attempt, month, data, storage),) if len(ids) else ()
    receipt = Receipt(
        process_id=plan.process_id,
        task=task,
        attempt=attempt,
        rows=len(ids),
        bytes=sum(file.bytes for file in files),
        files=files,
        checksums={
            field.name: checksums.text(checksums.of_arrow(field.field_type, data.column(field.name)))
            for field in SCHEMA.fields
        },
    )
    path = receipt_uri(plan.destination.receipts_location, plan.process_id, task, attempt)
    if keep_receipt:
        storage.put_if_absent(path, receipt.to_json().encode())
    return receipt


def _write_file(
    plan: ExportPlan, task: int, attempt: int, month: int | None, data: Any, storage: Storage
) -> FileReceipt:
    partitioned = bool(plan.destination.spec)
    folder = (
        f"{plan.destination.data_location}/month={month}" if partitioned else plan.destination.data_location
    )
    path = f"{folder}/calve-{plan.process_id}-{task}-{attempt}-0.parquet"
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    storage.put_if_absent(path, buffer.getvalue())
    ids = data.column("id").to_pylist()
    nulls = {1: 0, 2: data.num_rows if month is None else 0, 3: 0}
    return FileReceipt(
        path=path,
        rows=data.num_rows,
        bytes=buffer.tell(),
        partition=(month,) if partitioned else (),
        value_counts=dict.fromkeys((1, 2, 3), data.num_rows),
        null_counts=nulls,
        lower_bounds={1: to_bytes(LongType(), min(ids)).hex()},
        upper_bounds={1: to_bytes(LongType(), max(ids)).hex()},
        split_offsets=(4,),
    )


def sqlite_properties(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
