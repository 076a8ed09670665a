"""Equality deletes as Flink writes them: neither Spark nor PyIceberg can."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from calve.objects.storage import Storage
from support.delete_files import DeleteManifestWriter, commit_delete_file

_DATA_FILE, _EQUALITY_IDS = 2, 135


class _EqualityManifestWriter(DeleteManifestWriter):
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
    commit_delete_file(catalog, table, snapshot_id, file, _EqualityManifestWriter)
