"""Plain Parquet behind the destination port. It has no catalog and no snapshots: a commit of one key is
one small object in the folder.

Proving an export to plain Parquet: the files that its commit lists, read by another engine.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record

from calve.destination import file_io
from calve.destination.description import describe_metadata
from calve.destination.names import PARQUET, DestinationAddress, receipts_of
from calve.destination.outcome import AlreadyExported, PublishedSnapshot, PublishFenced, Undone, Verification
from calve.destination.plan import DestinationPlan, ExportPlan
from calve.destination.port import Destination, ExecutorAccess, FoundTable, write_probe
from calve.destination.proof import Box, Scan, ScanFile, prove
from calve.destination.receipt import Receipt, files_of
from calve.iceberg.errors import catalog_call
from calve.model.errors import PermanentError, RefusedError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.parquet import publish
from calve.parquet.commits import KeyCommit, ListedFile, only_key, shown
from calve.parquet.folder import Folder, FolderTable, hive_path


def verify(folder: Folder, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> Verification:
    """RefusedError where another export replaced it: its files are gone."""
    commit, table, work = _listed(folder, process_id, plan, receipts)
    io = load_file_io(file_io.bounded(folder.storage.properties), folder.location)
    entry = f'[storage."{folder.location}"], or of the bucket it is in'
    with catalog_call(folder.location, f"reading the files of process {process_id}", entry=entry):
        return prove(table.metadata, io, plan, receipts, work, commit.id)


def _listed(
    folder: Folder, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]
) -> tuple[KeyCommit, FolderTable, list[FileScanTask]]:
    commit = _commit(folder, process_id, plan)
    _check_listed(folder, commit, receipts)
    table = folder.table()
    return commit, table, [_task(file, table.spec.spec_id) for file in commit.files]


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
    return ScanFile(path=file.path, bytes=file.bytes, rows=file.rows, spec_id=spec_id).task


class Locations(Protocol):
    @property
    def limits(self) -> Limits: ...
    def location_properties(self, uri: str) -> dict[str, str]: ...


def configuration(address: DestinationAddress, reach: Locations) -> dict[str, str]:
    return reach.location_properties(address.catalog)


def open_destination(address: DestinationAddress, reach: Locations) -> "ParquetDestination":
    storage = Storage(
        configuration(address, reach),
        connect_seconds=reach.limits.connect_seconds,
        call_seconds=reach.limits.call_seconds,
    )
    return ParquetDestination(address, storage)


class ParquetDestination(Destination):
    shares_commits = False  # a commit is one object, and one put must be a whole publish
    evolves = False
    tells_sort_order = True

    def __init__(self, address: DestinationAddress, storage: Storage) -> None:
        self.address = address
        self._folder = Folder(address.catalog, storage)

    def find(self) -> FolderTable | None:
        return self._folder.find()

    def create(self, schema: Schema, spec: PartitionSpec, sort_order: SortOrder) -> FolderTable:
        return self._folder.create(schema, spec, sort_order)

    def describe(self, table: FoundTable) -> DestinationPlan:
        assert isinstance(table, FolderTable)
        return describe_metadata(
            table.metadata,
            catalog=self.address.catalog,
            identifier=self.address.identifier,
            form=PARQUET,
            data_location=self._folder.location,
            receipts_location=self._folder.receipts,
        )

    def check_writable(self, plan: ExportPlan) -> None:
        """Creating the folder's schema was a write with the same keys."""

    def publish(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        note: Callable[[str], None],
    ) -> PublishedSnapshot | AlreadyExported:
        return publish.publish(self._folder, process_id, plan, receipts, noted, note)

    def find_publish(self, process_id: str, plan: ExportPlan) -> PublishedSnapshot | None:
        return publish.find(self._folder, process_id, plan)

    def fence(self, process_id: str, plan: ExportPlan, noted: str) -> PublishFenced | PublishedSnapshot:
        return publish.fence(self._folder, process_id, plan, noted)

    def undo(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        used: Sequence[Receipt] = (),
    ) -> Undone:
        return publish.undo(self._folder, process_id, plan, noted, used)

    def remove_lost(self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        return publish.remove_lost(self._folder, process_id, plan, receipts)

    def files_of(self, process_id: str, plan: ExportPlan) -> tuple[str, ...]:
        return files_of(self.storage(), process_id, plan)

    def verify(
        self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt], snapshot_id: str
    ) -> Verification:
        return verify(self._folder, process_id, plan, receipts)

    def scan(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        snapshot_id: str,
        boxes: Sequence[Box] = (),
    ) -> Scan:
        """A folder has no snapshot, so nobody can tell what else it shows."""
        commit, table, work = _listed(self._folder, process_id, plan, receipts)
        return Scan.of(table.metadata, work, commit.id, current=True)

    def probe(self, process_id: str = "") -> None:
        """Without a process there is no name to write to, and a lane is a whole bucket: its first
        process asks."""
        if process_id:
            write_probe(self.storage(), f"{receipts_of(self._folder.receipts, process_id)}/probe")

    def storage(self) -> Storage:
        return self._folder.storage

    def executor_access(self) -> ExecutorAccess:
        return ExecutorAccess(storage=self.storage().properties)


def placement(plan: DestinationPlan, spec: PartitionSpec, schema: Schema) -> "HivePlacement":
    return HivePlacement(plan, spec, schema)


class HivePlacement:
    """Files go into hive-style folders of their partition's values."""

    def __init__(self, plan: DestinationPlan, spec: PartitionSpec, schema: Schema) -> None:
        self._plan, self._spec, self._schema = plan, spec, schema

    def file(self, partition: Record | None, name: str) -> str:
        folder = self._plan.data_location
        if partition is not None:
            folder = f"{folder}/{hive_path(self._spec, self._schema, partition)}"
        return f"{folder}/{name}"
