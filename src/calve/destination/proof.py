"""What was published, read back and compared by value with what the tasks read at the source.

Files are read one after the other, batch by batch: memory does not grow with the export. What to read can be
written down (`Scan`) and read elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

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
    rows, found = read_back(metadata, io, written_columns(plan), work)
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


def written_columns(plan: ExportPlan) -> Schema:
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
    for batch in batches(metadata, io, schema, work):
        rows += batch.num_rows
        for field in schema.fields:
            part = checksums.of_arrow(field.field_type, batch.column(field.name))
            sums[field.name] = checksums.add(sums[field.name], part)
    return rows, sums


def batches(
    metadata: TableMetadata, io: FileIO, schema: Schema, work: Sequence[FileScanTask]
) -> Iterator[Any]:
    """The rows, deletes applied, as Arrow record batches. PyIceberg's own `to_record_batches` begins to read all
    files at once and keeps whole ones; what it is made of does neither."""
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    for task in work:
        deletes = _read_all_delete_files(io, [task])
        yield from scan._record_batches_from_scan_tasks_and_deletes([task], deletes)


@dataclass(frozen=True, kw_only=True)
class ScanFile:
    """One data file and the files that delete rows of it."""

    path: str
    bytes: int
    rows: int
    spec_id: int
    format: str = "PARQUET"
    deletes: tuple[tuple[str, str], ...] = ()  # path and format

    @property
    def task(self) -> FileScanTask:
        made = _data_file(DataFileContent.DATA, self.path, self.format, self.rows, self.bytes)
        made.spec_id = self.spec_id
        deletes = {_data_file(DataFileContent.POSITION_DELETES, *one) for one in self.deletes}
        return FileScanTask(made, deletes)


def _data_file(content: DataFileContent, path: str, form: str, rows: int = 0, size: int = 0) -> DataFile:
    return DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat(form),
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=size,
    )


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What reads the files of an export, anywhere: no secret is in it."""

    metadata: str  # the table's, without its history
    location: str
    snapshot_id: str
    current: bool  # it is what a reader of the table sees now
    files: tuple[ScanFile, ...]

    @classmethod
    def of(
        cls, metadata: TableMetadata, work: Sequence[FileScanTask], snapshot_id: str, *, current: bool
    ) -> "Scan":
        bare = metadata.model_copy(update=dict(_NO_HISTORY, properties=_read_by(metadata)))
        return cls(
            metadata=bare.model_dump_json(),
            location=metadata.location,
            snapshot_id=snapshot_id,
            current=current,
            files=tuple(
                ScanFile(
                    path=task.file.file_path,
                    bytes=task.file.file_size_in_bytes,
                    rows=task.file.record_count,
                    spec_id=task.file.spec_id,
                    format=task.file.file_format.value,
                    deletes=tuple(
                        sorted((one.file_path, one.file_format.value) for one in task.delete_files)
                    ),
                )
                for task in work
            ),
        )

    @property
    def table(self) -> TableMetadata:
        return TableMetadataUtil.parse_raw(self.metadata)


_NO_HISTORY: Mapping[str, Any] = {
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "current_snapshot_id": None,
    "statistics": [],
    "partition_statistics": [],
}
_NAME_MAPPING = "schema.name-mapping.default"


def _read_by(metadata: TableMetadata) -> dict[str, str]:
    """The one property that reading depends on."""
    return {name: value for name, value in metadata.properties.items() if name == _NAME_MAPPING}
