"""A modelled Iceberg catalog: PyIceberg's own metadata, requirements and updates, applied in one instant.

It answers ok, conflict, refused, or not at all, while the commit lands, never lands, lands late or lands again. What
each commit changed is kept, whatever becomes of its snapshot: the check reads it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from support.simulator.objects import ModelledFileIO, ModelledObjects
from support.simulator.weather import Weather

T = TypeVar("T")
Name = tuple[str, ...]
_LAGS = (2.0, 10.0, 40.0)  # seconds that a read may be behind


@dataclass(frozen=True, kw_only=True)
class Landed:
    """One snapshot that was committed: when, for which process, and the files that main got and lost by it."""

    at: float
    table: Name
    uuid: str
    snapshot_id: int
    process_id: str  # "" for somebody else's
    added: frozenset[str]
    removed: frozenset[str]


def _away() -> Exception:
    return requests.exceptions.ConnectionError("connection refused")


def _silent() -> Exception:
    return requests.exceptions.ReadTimeout("no answer within 15 s")


class ModelledCatalog(MetastoreCatalog):
    def __init__(
        self,
        name: str,
        weather: Weather,
        objects: ModelledObjects,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, warehouse=f"s3://{name}")
        self._properties = dict(properties or {})  # of the tables that are made here
        self.weather = weather
        self._objects = objects
        self._io = ModelledFileIO(objects)
        self.tables: dict[Name, TableMetadata] = {}
        self.spaces: set[Name] = set()
        self.dropped: list[TableMetadata] = []
        self.landed: list[Landed] = []
        self._past: list[tuple[float, dict[Name, TableMetadata]]] = []  # for reads that lag behind
        self._files: dict[str, frozenset[str]] = {}  # of a manifest, and of a list of them: they never change

    # -- what the product calls ---------------------------------------------------------------------

    def load_table(self, identifier: str | Name) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        metadata = self.call("load", lambda: self.tables.get(name), stale=lambda: self._lagging().get(name))
        if metadata is None:
            raise NoSuchTableError(f"no table {name}")
        return self.table(name, metadata)

    def create_table(
        self,
        identifier: str | Name,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: dict[str, str] | None = None,
    ) -> Table:
        name = Catalog.identifier_to_tuple(identifier)

        def create() -> TableMetadata:
            if name[:-1] not in self.spaces:
                raise NoSuchNamespaceError(f"no namespace {name[:-1]}")
            if name in self.tables:
                raise TableAlreadyExistsError(f"{name} exists")
            made = new_table_metadata(
                schema=schema,
                partition_spec=partition_spec,
                sort_order=sort_order,
                location=location or f"s3://{self.name}/{'/'.join(name)}",
                properties=self._properties | (properties or {}),
            )
            self.put(name, made)
            return self.tables[name]

        return self.table(name, self.call("other", create))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        name = tuple(table.name())

        def commit() -> CommitTableResponse:
            metadata = self.tables.get(name)
            if metadata is None:
                raise NoSuchTableError(f"no table {name}")
            for requirement in requirements:
                requirement.validate(metadata)
            self.apply(name, updates)
            return CommitTableResponse.model_validate(
                {"metadata": self.tables[name], "metadata-location": ""}
            )

        return self.call("commit", commit, latency=0.02)

    def list_namespaces(self, namespace: str | Name = ()) -> list[Name]:
        above = Catalog.identifier_to_tuple(namespace)
        depth = len(above) + 1
        return self.call(
            "load",
            lambda: sorted(
                {one[:depth] for one in self.spaces if one[: depth - 1] == above and len(one) >= depth}
            ),
        )

    def list_tables(self, namespace: str | Name) -> list[Name]:
        space = Catalog.identifier_to_tuple(namespace)
        return self.call(
            "load",
            lambda: sorted(one for one in self.tables if one[:-1] == space),
            stale=lambda: sorted(one for one in self._lagging() if one[:-1] == space),
        )

    def namespace_exists(self, namespace: str | Name) -> bool:
        return self.call("load", lambda: Catalog.identifier_to_tuple(namespace) in self.spaces)

    def create_namespace(self, namespace: str | Name, properties: Any = None) -> None:
        self.call("other", lambda: self.spaces.add(Catalog.identifier_to_tuple(namespace)))

    def call(
        self, kind: str, work: Callable[[], T], latency: float = 0.005, stale: Callable[[], T] | None = None
    ) -> T:
        return self.weather.call(
            f"catalog.{kind}",
            work,
            stale=stale,
            failed=_conflict if kind == "commit" else _away,
            lost=_silent,
            refused=lambda: ForbiddenError("403"),
            latency=latency,
            service=self.name,
        )

    def seen(self, name: Name) -> TableMetadata | None:
        """As a reader has it."""
        return self.call("load", lambda: self.tables.get(name), stale=lambda: self._lagging().get(name))

    def _lagging(self) -> Mapping[Name, TableMetadata]:
        """As a replica has it that is some seconds behind."""
        schedule = self.weather.schedule
        seconds = _LAGS[int(schedule.draw("lag")[1] * len(_LAGS))]
        past = [tables for at, tables in self._past if at <= schedule.now - seconds]
        return past[-1] if past else {}

    def put(self, name: Name, metadata: TableMetadata | None, *, was: Name | None = None) -> None:
        """The one place where what the catalog has changes."""
        gone = self.tables.pop(was or name, None)
        if metadata is None and gone is not None:
            self.dropped.append(gone)
        if metadata is not None:
            self.tables[name] = metadata.model_copy(update={"last_updated_ms": self._now_ms()})
        self._past.append((self.weather.schedule.now, dict(self.tables)))

    # -- what the world does and sees ---------------------------------------------------------------

    def table(self, name: Name, metadata: TableMetadata) -> Table:
        return Table(identifier=name, metadata=metadata, metadata_location="", io=self._io, catalog=self)

    def _now_ms(self) -> int:
        return int(self.weather.schedule.clock().timestamp() * 1000)

    def apply(self, name: Name, updates: Iterable[TableUpdate]) -> None:
        """One commit, whole."""
        metadata, context = self.tables[name], _TableMetadataUpdateContext()
        before = self.shown(name)
        for update in updates:
            metadata = _apply_table_update(update, metadata, context)
        self.put(name, metadata)
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                self._note(name, metadata, update.snapshot, before)

    def _note(self, name: Name, metadata: TableMetadata, snapshot: Snapshot, before: frozenset[str]) -> None:
        after = self.files(snapshot)
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        self.landed.append(
            Landed(
                at=self.weather.schedule.now,
                table=name,
                uuid=str(metadata.table_uuid),
                snapshot_id=snapshot.snapshot_id,
                process_id=summary.get("calve.process-id", ""),
                added=after - before,
                removed=before - after,
            )
        )

    def files(self, snapshot: Snapshot) -> frozenset[str]:
        """The data files that it shows."""
        found = self._files.get(snapshot.manifest_list)
        if found is None:
            try:
                with self.weather.schedule.aside():
                    manifests = list(read_manifest_list(self._io.new_input(snapshot.manifest_list)))
                    found = frozenset[str]().union(*(self._in_manifest(one) for one in manifests))
            except FileNotFoundError:
                return frozenset()  # somebody deleted it: `referenced` names it all the same
            self._files[snapshot.manifest_list] = found
        return found

    def _in_manifest(self, manifest: ManifestFile) -> frozenset[str]:
        if manifest.manifest_path not in self._files:
            entries = manifest.fetch_manifest_entry(self._io)
            self._files[manifest.manifest_path] = frozenset(one.data_file.file_path for one in entries)
        return self._files[manifest.manifest_path]

    def shown(self, name: Name) -> frozenset[str]:
        """By main, now."""
        metadata = self.tables[name]
        main = metadata.refs.get(MAIN_BRANCH)
        head = metadata.snapshot_by_id(main.snapshot_id) if main else None
        return self.files(head) if head else frozenset()

    def referenced(self) -> set[str]:
        """Everything that a snapshot of any table still names."""
        found: set[str] = set()
        for metadata in self.tables.values():
            for snapshot in metadata.snapshots:
                found.add(snapshot.manifest_list)
                found |= self.files(snapshot)
        return found

    # -- what nothing here needs --------------------------------------------------------------------

    def _absent(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this catalog has none of it")

    create_table_transaction = table_exists = view_exists = register_table = drop_table = _absent
    purge_table = rename_table = drop_namespace = list_views = load_view = _absent
    load_namespace_properties = update_namespace_properties = register_view = drop_view = _absent
    create_view = supports_server_side_planning = _absent


def _conflict() -> Exception:
    return CommitFailedException("the table moved")


def rows_of(objects: ModelledObjects, uri: str) -> list[str]:
    """The rows of a modelled data file."""
    return list(json.loads(objects.held[uri]))
