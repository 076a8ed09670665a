"""What was published, read back and compared by value with what the tasks read at the source.

Files are read one after the other, batch by batch: memory does not grow with the export. What to read can be
written down (`Scan`) and read elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    Or,
)
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from calve.destination import checksums
from calve.destination.outcome import ColumnProof, Verification
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
) -> Verification:
    """Read the files of `work` and compare."""
    expected = expected_checksums(plan, receipts)
    rows, found = read_back(metadata, io, written_columns(plan), work)
    return Verification(
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
    metadata: TableMetadata,
    io: FileIO,
    schema: Schema,
    work: Sequence[FileScanTask],
    row_filter: BooleanExpression = AlwaysTrue(),
) -> Iterator[Any]:
    """The rows that fit, deletes applied, as Arrow record batches. PyIceberg's own `to_record_batches` begins to read all
    files at once and keeps whole ones; what it is made of does neither."""
    scan = ArrowScan(metadata, io, schema, row_filter)
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
    own: bool = True  # of the export; of any other, only rows in the scan's boxes count

    @classmethod
    def of(cls, task: FileScanTask, *, own: bool) -> "ScanFile":
        deletes = sorted((one.file_path, one.file_format.value) for one in task.delete_files)
        return cls(
            path=task.file.file_path,
            bytes=task.file.file_size_in_bytes,
            rows=task.file.record_count,
            spec_id=task.file.spec_id,
            format=task.file.file_format.value,
            deletes=tuple(deletes),
            own=own,
        )

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
class Within:
    """A condition on one column. Values are text, as Iceberg reads it for the column's type."""

    field_id: int
    lower: str = ""
    upper: str = ""  # not included
    equal: str = ""  # instead of the two


Box = tuple[Within, ...]  # rows of one source partition: all of its conditions hold, and for no other rows


def in_boxes(boxes: Sequence[Box], schema: Schema) -> BooleanExpression:
    """Rows in any of them; there is at least one."""
    made = [_in_box(box, schema) for box in boxes]
    return made[0] if len(made) == 1 else Or(*made)


def _in_box(box: Box, schema: Schema) -> BooleanExpression:
    found: list[BooleanExpression] = []
    for one in box:
        name = schema.find_field(one.field_id).name
        asked = [(_AT_LEAST, one.lower), (_BELOW, one.upper)] if one.lower else [(_EQUAL, one.equal)]
        found += [predicate(name, value) for predicate, value in asked]
    return found[0] if len(found) == 1 else And(*found)


# The type checker takes their fields for the arguments of their constructors.
_Predicate = Callable[[str, str], BooleanExpression]
_AT_LEAST, _BELOW, _EQUAL = (cast(_Predicate, one) for one in (GreaterThanOrEqual, LessThan, EqualTo))


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What reads the files of an export, anywhere: no secret is in it. With boxes, also what reads all other rows
    that are in them."""

    metadata: str  # the table's, without its history
    location: str
    snapshot_id: str
    current: bool  # it is what a reader of the table sees now
    files: tuple[ScanFile, ...]
    boxes: tuple[Box, ...] = ()
    whole: bool = True  # it has all files of the export; else none, and only what is in the boxes

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        work: Sequence[FileScanTask],
        snapshot_id: str,
        *,
        current: bool,
        others: Sequence[FileScanTask] = (),
        boxes: Sequence[Box] = (),
        whole: bool = True,
    ) -> "Scan":
        bare = metadata.model_copy(update=dict(_NO_HISTORY, properties=_read_by(metadata)))
        return cls(
            metadata=bare.model_dump_json(),
            location=metadata.location,
            snapshot_id=snapshot_id,
            current=current,
            files=(
                *(ScanFile.of(task, own=True) for task in work),
                *(ScanFile.of(task, own=False) for task in others),
            ),
            boxes=tuple(boxes),
            whole=whole,
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
