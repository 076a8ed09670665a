"""Equality deletes as Flink writes them: neither Spark nor PyIceberg can."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from calve.lake.storage import Storage
from calve.testing.position_deletes import _DeleteManifestWriter, _snapshot

_DATA_FILE, _EQUALITY_IDS = 2, 135


class _EqualityManifestWriter(_DeleteManifestWriter):
    """PyIceberg declares equality ids as longs, which Java refuses; the bytes are the same."""

    def _with_partition(self, format_version: TableVersion) -> Schema:
        schema = super()._with_partition(format_version)
        return Schema(
            *(_with_inner(field) if field.field_id == _DATA_FILE else field for field in schema.fields)
        )


def _with_inner(data_file: NestedField) -> NestedField:
    assert isinstance(data_file.field_type, StructType)
    ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    inner = [
        field.model_copy(update={"field_type": ids}) if field.field_id == _EQUALITY_IDS else field
        for field in data_file.field_type.fields
    ]
    return data_file.model_copy(update={"field_type": StructType(*inner)})


def _manifest(table: Table, snapshot_id: int, file: DataFile) -> ManifestFile:
    path = f"{table.location()}/metadata/equality-{snapshot_id}-m0.avro"
    spec = table.metadata.specs()[file.spec_id]
    output = table.io.new_output(path)
    with _EqualityManifestWriter(spec, table.schema(), output, snapshot_id, "deflate") as writer:
        writer.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=None,
                data_file=file,
            )
        )
    return writer.to_manifest_file()


def delete_equal(
    catalog: Catalog,
    identifier: tuple[str, ...],
    column: str,
    values: list[Any],
    *,
    partition: tuple[Any, ...] = (),
    spec_id: int | None = None,
) -> None:
    """Commit one equality delete file: rows whose `column` has one of `values`, in one partition."""
    table = catalog.load_table(identifier)
    schema = table.schema().select(column)
    field = schema.find_field(column)
    data = pa.table({column: values}, schema=schema_to_pyarrow(schema))
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    snapshot_id = table.metadata.new_snapshot_id()
    location = f"{table.location()}/data/equality-{snapshot_id}.parquet"
    Storage().put_if_absent(location, buffer.getvalue())
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(values),
        file_size_in_bytes=buffer.tell(),
        equality_ids=[field.field_id],
    )
    file.spec_id = table.metadata.default_spec_id if spec_id is None else spec_id
    snapshot = _snapshot(table, snapshot_id, _manifest(table, snapshot_id, file), len(values))
    main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    catalog.commit_table(
        table, (), (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main))
    )
