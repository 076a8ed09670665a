"""Optimizes in the simulator: the real kind, with a modelled rewrite in place of Iceberg's Spark action.

The action is Iceberg's: it rewrites the small files of each partition, builds its snapshot on main as it is when it
commits, and fails where a file that it rewrote is no longer there. A row keeps its value.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from calve.control.ports import StoreReader, TaskOrder, TaskResult
from calve.iceberg.health import orphans
from calve.iceberg.health.orphans import TableFile
from calve.iceberg.publish.build import next_timestamp_ms
from calve.iceberg.publish.manifests import manifests_of
from calve.iceberg.publish.marks import head_of
from calve.model.errors import CalveError, TemporaryError, UnavailableError, UnknownOutcomeError
from calve.model.limits import Limits
from calve.optimize import cleanup
from calve.optimize import submit as submitting
from calve.optimize.request import OptimizeRequest
from calve.spark.actions import PROCESS_ID, TASK, answer_of
from support.simulator.catalog import ModelledCatalog, Name
from support.simulator.objects import ModelledObjects
from support.simulator.schedule import BEGIN, Schedule

if TYPE_CHECKING:
    from support.simulator.world import World

# The ages that a table of these histories is kept by: minutes are days here.
PROPERTIES = {
    "history.expire.max-snapshot-age-ms": "20000",
    "clean-orphan-file.min-existing-time-minutes": "1",
    "self-optimizing.minor.trigger.file-count": "2",
}


@dataclass
class ReachedTables:
    """`optimize.ports.OptimizePorts` of one worker."""

    limits: Limits
    store: StoreReader
    catalogs: Mapping[str, ModelledCatalog]
    driver: "Driver"

    def catalog(self, name: str) -> ModelledCatalog:
        return self.catalogs[name]

    def catalog_properties(self, name: str) -> Mapping[str, Any]:
        return {}

    def run_on_driver(self, order: TaskOrder) -> TaskResult:
        try:
            answer = json.loads(self.driver.idle(order.payload))
        except CalveError as error:
            return TaskResult(number=order.number, attempt=order.attempt, error=error.info)
        return TaskResult(number=order.number, attempt=order.attempt, **answer)


@dataclass
class Driver:
    catalogs: Mapping[str, ModelledCatalog]
    objects: ModelledObjects

    def idle(self, text: str) -> str:
        """Manifests are left as they are: that is allowed."""
        return json.dumps(answer_of("tidy", []))

    def rewrite(self, text: str) -> str:
        order = json.loads(text)
        where = order["where"]
        catalog, name = self.catalogs[where["catalog"]], tuple(where["identifier"])
        step = str(order["task"])
        done = [self._step(catalog, name, where["process_id"], step, where["uuid"])]
        if order.get("position_deletes"):
            done.append(None)  # nothing here has any
        return json.dumps(answer_of(step, [one for one in done if one]))

    def _step(
        self, catalog: ModelledCatalog, name: Name, process_id: str, step: str, uuid: str
    ) -> dict[str, str] | None:
        metadata = catalog.seen(name)
        if metadata is None or str(metadata.table_uuid) != uuid:
            raise TemporaryError("the table is gone", code="no_such_table")
        if (found := _marked(metadata, process_id, step)) is not None:
            return found
        rewrite = _Rewrite(catalog, self.objects, name, process_id, step)
        rewrite.write(metadata)
        if not rewrite.made:
            return None
        try:
            catalog.call("commit", rewrite.commit, latency=0.02)
        except CommitFailedException as error:
            raise TemporaryError(str(error), code="rewrite_conflict") from None
        except OSError as error:
            look = catalog.tables.get(name)
            if look is not None and (found := _marked(look, process_id, step)) is not None:
                return found
            raise UnknownOutcomeError(str(error), code="rewrite_unknown") from None
        except Exception as error:  # noqa: BLE001 - a refusal
            raise UnavailableError(str(error), code="catalog_refused", service="") from None
        return _marked(catalog.tables[name], process_id, step)


def _marked(metadata: TableMetadata, process_id: str, step: str) -> dict[str, str] | None:
    for snapshot in metadata.snapshots:
        found = snapshot.summary.additional_properties if snapshot.summary else {}
        if found.get(PROCESS_ID) == process_id and found.get(TASK) == step:
            return dict(found) | {"snapshot-id": str(snapshot.snapshot_id)}
    return None


@dataclass
class _Rewrite:
    """Of all partitions with two files or more, each into one."""

    catalog: ModelledCatalog
    objects: ModelledObjects
    name: Name
    process_id: str
    step: str

    def __post_init__(self) -> None:
        self.gone: set[str] = set()
        self.made: list[tuple[DataFile, int]] = []

    def write(self, metadata: TableMetadata) -> None:
        table = self.catalog.table(self.name, metadata)
        groups: dict[str, list[DataFile]] = defaultdict(list)
        for manifest in manifests_of(table, head_of(metadata)):
            for entry in manifest.fetch_manifest_entry(table.io):
                groups[str(entry.data_file.partition)].append(entry.data_file)
        for number, files in enumerate(one for one in groups.values() if len(one) > 1):
            rows = [text for file in files for text in json.loads(self.objects.read(file.file_path))]
            data = json.dumps(rows).encode()
            uri = f"{metadata.location}/data/rewritten-{self.process_id}-{self.step}-{self._number()}-{number}.parquet"
            self.objects.write(lambda data=data: (data,), uri)  # type: ignore[misc]
            made = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=uri,
                file_format=FileFormat.PARQUET,
                partition=files[0].partition,
                record_count=len(rows),
                file_size_in_bytes=len(data),
            )
            made.spec_id = files[0].spec_id
            self.made.append((made, len(rows)))
            self.gone |= {file.file_path for file in files}

    def _number(self) -> str:
        return self.catalog.weather.schedule.draw("rewrite")[0].partition("#")[2]

    def commit(self) -> None:
        """In one instant, on main as it is now."""
        metadata = self.catalog.tables.get(self.name)
        if metadata is None or not self.gone <= self.catalog.shown(self.name):
            raise CommitFailedException("a file that was rewritten is no longer there")
        table, parent = self.catalog.table(self.name, metadata), head_of(metadata)
        snapshot_id = metadata.new_snapshot_id()
        where = f"{metadata.location}/metadata/rewrite-{self.process_id}-{snapshot_id}"
        manifests = [self._added(table, metadata, snapshot_id, f"{where}-m0.avro")]
        for number, manifest in enumerate(manifests_of(table, parent), start=1):
            manifests += self._kept(table, metadata, snapshot_id, manifest, f"{where}-m{number}.avro")
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=table.io.new_output(f"{where}.avro"),
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=metadata.next_sequence_number(),
            avro_compression="null",
        ) as made:
            made.add_manifests(manifests)
        rows = str(sum(count for _, count in self.made))
        summary = {
            PROCESS_ID: self.process_id, TASK: self.step, "added-records": rows, "deleted-records": rows,
            "added-data-files": str(len(self.made)), "deleted-data-files": str(len(self.gone)),
        }  # fmt: skip
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": metadata.next_sequence_number(),
                "timestamp-ms": next_timestamp_ms(metadata),
                "manifest-list": f"{where}.avro",
                "summary": Summary(operation=Operation.REPLACE, **summary),
                "schema-id": metadata.current_schema_id,
            }
        )
        main = {"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": snapshot_id}
        self.catalog.apply(
            self.name, (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main))
        )

    def _writer(self, table: Table, metadata: TableMetadata, snapshot_id: int, uri: str) -> ManifestWriter:
        return write_manifest(
            format_version=metadata.format_version,
            spec=metadata.spec(),
            schema=metadata.schema(),
            output_file=table.io.new_output(uri),
            snapshot_id=snapshot_id,
            avro_compression="null",
        )

    def _added(self, table: Table, metadata: TableMetadata, snapshot_id: int, uri: str) -> ManifestFile:
        with self._writer(table, metadata, snapshot_id, uri) as writer:
            for file, _ in self.made:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file
                    )
                )
        return writer.to_manifest_file()

    def _kept(
        self, table: Table, metadata: TableMetadata, snapshot_id: int, manifest: ManifestFile, uri: str
    ) -> Sequence[ManifestFile]:
        entries = list(manifest.fetch_manifest_entry(table.io))
        left = [entry for entry in entries if entry.data_file.file_path not in self.gone]
        if len(left) == len(entries):
            return [manifest]
        if not left:
            return []
        with self._writer(table, metadata, snapshot_id, uri) as writer:
            for entry in left:
                writer.existing(entry)
        return [writer.to_manifest_file()]


def do(world: "World", full: bool) -> None:
    """As the command."""
    ports = world.optimize_ports()
    lake, name = world.lake
    request = OptimizeRequest(catalog=lake.name, identifier=name, full=full)
    submitting.check(ports, request)
    submitting.submit(ports, world.anyone, request)


@contextmanager
def listed(objects: ModelledObjects, schedule: Schedule) -> Iterator[None]:
    """The product lists a table's files through PyArrow, which these have not."""

    def list_files(table: Table, location: str) -> Iterator[TableFile]:
        for uri, size in objects.sizes(location).items():
            made_at = BEGIN.timestamp() + objects.made_at.get(uri, 0.0)
            yield TableFile(uri, size, datetime.fromtimestamp(made_at, UTC))

    with patch.object(orphans, "list_files", list_files), patch.object(cleanup, "list_files", list_files):
        yield
