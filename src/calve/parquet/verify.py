"""Proving an export to plain Parquet: the files that its commit lists, read by another engine."""

from collections.abc import Sequence

from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from calve.destination.outcome import Proof
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from calve.iceberg.catalogs import file_io
from calve.iceberg.errors import catalog_call
from calve.iceberg.verify import prove
from calve.model.errors import PermanentError, RefusedError
from calve.parquet.commits import KeyCommit, ListedFile, only_key, shown
from calve.parquet.folder import Folder


def verify(folder: Folder, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> Proof:
    """RefusedError where another export replaced it: its files are gone."""
    commit = _commit(folder, process_id, plan)
    _check_listed(folder, commit, receipts)
    table = folder.table()
    work = [_task(file, table.spec.spec_id) for file in commit.files]
    io = load_file_io(file_io.bounded(folder.storage.properties), folder.location)
    entry = f'[storage."{folder.location}"], or of the bucket it is in'
    with catalog_call(folder.location, f"reading the files of process {process_id}", entry=entry):
        return prove(table.metadata, io, plan, receipts, work, commit.id)


def _commit(folder: Folder, process_id: str, plan: ExportPlan) -> KeyCommit:
    found = folder.generations(only_key(plan).hash)
    current = shown(found)
    if current is not None and current.process == process_id:
        return current
    if any(one.process == process_id and not one.tombstone for one in found):
        by = current.process if current else "none"
        raise RefusedError(
            f"what process {process_id} exported to {folder.location} was replaced by process {by}",
            code="replaced",
            hint=f"calve verify {by}",
        )
    raise PermanentError(
        f"{folder.location} has no commit of process {process_id}",
        code="commit_missing",
        hint="it was removed, and with it the list that readers use; export again with --force",
    )


def _check_listed(folder: Folder, commit: KeyCommit, receipts: Sequence[Receipt]) -> None:
    """The files that the commit lists must be those that the tasks wrote, all there and whole."""
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


def _task(file: ListedFile, spec_id: int) -> FileScanTask:
    data = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
    )
    data.spec_id = spec_id
    return FileScanTask(data)
