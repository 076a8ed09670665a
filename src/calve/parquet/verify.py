"""Proving an export to plain Parquet: the files that its commit lists, read by another engine."""

from collections.abc import Sequence

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from calve.iceberg.errors import catalog_call
from calve.iceberg.tables import load
from calve.iceberg.verify import Proof, prove
from calve.model.errors import PermanentError, RefusedError
from calve.model.plan import ExportPlan
from calve.model.receipt import Receipt
from calve.parquet import commits
from calve.parquet.commits import Commit, only_key, shown
from calve.parquet.folder import IDENTIFIER, ParquetFolder


def verify(folder: ParquetFolder, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> Proof:
    """RefusedError where another export replaced it: its files are gone."""
    commit = _commit(folder, process_id, plan)
    _check_listed(folder, commit, receipts)
    table = load(folder, IDENTIFIER)
    work = [_task(table, commit, n) for n in range(len(commit.files))]
    with catalog_call(folder.location, f"reading the files of process {process_id}"):
        return prove(table, plan, receipts, work, f"{commit.key}.{commit.generation}")


def _commit(folder: ParquetFolder, process_id: str, plan: ExportPlan) -> Commit:
    found = commits.generations(folder.storage, folder.location, only_key(plan).hash)
    current = shown(found)
    if current is not None and current.process == process_id:
        return current
    if any(one.process == process_id and not one.tombstone for one in found):
        by = current.process if current else "nobody"
        raise RefusedError(
            f"what process {process_id} exported to {folder.location} was replaced by process {by}",
            code="replaced",
            hint=f"calve verify {by}",
        )
    raise PermanentError(
        f"{folder.location} has no commit of process {process_id}",
        code="commit_missing",
        hint="somebody removed it, and with it what readers go by; export again with --force",
    )


def _check_listed(folder: ParquetFolder, commit: Commit, receipts: Sequence[Receipt]) -> None:
    """What readers are told must be what the tasks wrote, and be there, whole."""
    wrote = {file.path: file.bytes for receipt in receipts for file in receipt.files}
    listed = {file.path: file.bytes for file in commit.files}
    there = folder.storage.sizes(folder.location)
    faults = sorted(
        uri for uri in wrote.keys() | listed.keys() if not wrote.get(uri) == listed.get(uri) == there.get(uri)
    )
    if faults:
        raise PermanentError(
            f"{len(faults)} of {len(wrote)} files of process {commit.process} are missing, changed or not"
            f" listed, {faults[0]} among them",
            code="files_missing",
            hint="export again with --force",
        )


def _task(table: Table, commit: Commit, number: int) -> FileScanTask:
    file = commit.files[number]
    data = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
    )
    data.spec_id = table.spec().spec_id
    return FileScanTask(data)
