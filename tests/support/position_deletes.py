"""Merge-on-read deletes as Spark writes them, which PyIceberg reads and does not write."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table

from calve.objects.storage import Storage
from support.delete_files import commit_delete_file

PATH_FIELD_ID, POSITION_FIELD_ID = 2147483546, 2147483545


def delete_rows(catalog: Catalog, identifier: tuple[str, ...], path: str, positions: list[int]) -> None:
    """Commit one position delete file against one data file."""
    table = catalog.load_table(identifier)
    (target,) = (task.file for task in table.scan().plan_files() if task.file.file_path == path)
    snapshot_id = table.metadata.new_snapshot_id()
    file = _delete_file(table, target, positions, snapshot_id)
    commit_delete_file(catalog, table, snapshot_id, file)


def _delete_file(table: Table, target: DataFile, positions: list[int], snapshot_id: int) -> DataFile:
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_FIELD_ID)}),
    ]
    data: Any = pa.table(
        {"file_path": [target.file_path] * len(positions), "pos": positions}, schema=pa.schema(fields)
    )
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    location = f"{table.location()}/data/deletes-{snapshot_id}.parquet"
    Storage().put_if_absent(location, buffer.getvalue())
    bounds = {PATH_FIELD_ID: target.file_path.encode()}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=target.partition,
        record_count=len(positions),
        file_size_in_bytes=buffer.tell(),
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = target.spec_id
    return file
