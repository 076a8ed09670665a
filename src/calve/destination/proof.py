"""What was published, read back and compared by value with what the tasks read at the source."""

from collections.abc import Mapping, Sequence

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from calve.destination import checksums
from calve.destination.outcome import ColumnProof, Proof
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from calve.model.errors import RefusedError


def prove(
    metadata: TableMetadata,
    io: FileIO,
    plan: ExportPlan,
    receipts: Sequence[Receipt],
    work: Sequence[FileScanTask],
    snapshot_id: str,
) -> Proof:
    """Read the files of `work` and compare."""
    expected = expected_checksums(plan, receipts)
    rows, found = read_back(metadata, io, _columns(plan), work)
    return Proof(
        snapshot_id=snapshot_id,
        files=len(work),
        expected_rows=sum(receipt.rows for receipt in receipts),
        found_rows=rows,
        columns=tuple(
            ColumnProof(name=name, expected=expected[name], found=checksums.text(found[name]))
            for name in expected
        ),
    )


def _columns(plan: ExportPlan) -> Schema:
    """The plan's columns as they were written: a later rename or promotion changes no value."""
    written = {column.field_id for column in plan.columns}
    schema = Schema.model_validate_json(plan.destination.schema)
    return Schema(*(field for field in schema.fields if field.field_id in written))


def expected_checksums(plan: ExportPlan, receipts: Sequence[Receipt]) -> Mapping[str, str]:
    """What the tasks computed while they read the source, by column."""
    sums = {column.name: 0 for column in plan.columns}
    for receipt in receipts:
        for name in sums:
            if name not in receipt.checksums:
                raise RefusedError(
                    f"the receipt of task {receipt.task} has no checksum of column {name}",
                    code="no_checksum",
                    hint="it was written by a version that kept none; export again to prove it",
                )
            sums[name] = checksums.add(sums[name], int(receipt.checksums[name], 16))
    return {name: checksums.text(value) for name, value in sums.items()}


def read_back(
    metadata: TableMetadata, io: FileIO, schema: Schema, work: Sequence[FileScanTask]
) -> tuple[int, dict[str, int]]:
    rows = 0
    sums = {field.name: 0 for field in schema.fields}
    for batch in ArrowScan(metadata, io, schema, AlwaysTrue()).to_record_batches(work):
        rows += batch.num_rows
        for field in schema.fields:
            part = checksums.of_arrow(field.field_type, batch.column(field.name))
            sums[field.name] = checksums.add(sums[field.name], part)
    return rows, sums
