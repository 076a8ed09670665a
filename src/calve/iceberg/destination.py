"""Iceberg tables behind the destination port: publishing, fencing and the rest are in `publish`, `undo`
and `verify`; here they meet one table, its catalog and its storage."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, NestedField

from calve.destination import names
from calve.destination.names import DestinationAddress, receipts_hint
from calve.destination.outcome import (
    AlreadyExported,
    EarlierExport,
    PublishedSnapshot,
    PublishFenced,
    Undone,
    Verification,
)
from calve.destination.plan import DestinationPlan, ExportPlan
from calve.destination.port import Destination, ExecutorAccess, FoundTable, write_probe
from calve.destination.proof import Box, Scan
from calve.destination.receipt import Receipt, files_of
from calve.iceberg import tables, undo, verify
from calve.iceberg.catalogs.lent_keys import Lender, lender
from calve.iceberg.errors import catalog_call
from calve.iceberg.publish import fence, publish
from calve.iceberg.publish.marks import all_exports, find_export, search
from calve.iceberg.publish.presence import with_presence
from calve.model.errors import DeniedError, NotFoundError, PermanentError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.objects.uri import LOCAL, kind_of

_LONGEST_FOLDER = 200  # bytes; file systems end at 255


class Catalogs(Protocol):
    @property
    def limits(self) -> Limits: ...
    def catalog(self, name: str) -> Catalog: ...
    def catalog_properties(self, name: str) -> dict[str, Any]: ...


def configuration(address: DestinationAddress, reach: Catalogs) -> dict[str, Any]:
    return reach.catalog_properties(address.catalog)


def open_destination(address: DestinationAddress, reach: Catalogs) -> "IcebergDestination":
    catalog = reach.catalog(address.catalog)
    return IcebergDestination(address, catalog, configuration(address, reach), reach.limits)


class IcebergTable(FoundTable):
    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def uuid(self) -> str:
        return str(self.table.metadata.table_uuid)

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    @property
    def spec(self) -> PartitionSpec:
        return self.table.spec()

    @property
    def sort_order(self) -> SortOrder:
        return self.table.sort_order()

    def find_export(self, key_hash: str) -> EarlierExport | None:
        export = find_export(self.table, key_hash)
        if export is None:
            return None
        with catalog_call(self.table.catalog.name, f"looking for the rows of process {export.process_id}"):
            return with_presence(self.table, export)

    def exports(self) -> Iterable[EarlierExport]:
        return all_exports(self.table.metadata)


class IcebergDestination(Destination):
    """`properties` are the catalog's entry, with the keys of its storage."""

    shares_commits = True  # each commit costs a snapshot, so partitions share one
    evolves = True

    def __init__(
        self, address: DestinationAddress, catalog: Catalog, properties: Mapping[str, Any], limits: Limits
    ) -> None:
        self.address = address
        self.catalog = catalog
        self.tells_sort_order = tables.tells_sort_orders(catalog)
        self._properties = dict(properties)
        self._limits = limits
        self._publishing = threading.Lock()
        self._lender: Lender | None = None
        if isinstance(catalog, RestCatalog) and address.identifier:
            self._lender = lender(catalog, address.identifier, self._configured)

    def find(self) -> IcebergTable | None:
        try:
            return self._load()
        except NotFoundError:
            return None

    def create(self, schema: Schema, spec: PartitionSpec, sort_order: SortOrder) -> IcebergTable:
        made = tables.create(self.catalog, self.address.identifier, schema, spec=spec, sort_order=sort_order)
        return IcebergTable(made)

    def add_columns(self, table: FoundTable, columns: Sequence[tuple[str, IcebergType]]) -> IcebergTable:
        found = _own(table)
        doing = f"adding columns to table {'.'.join(found.name())}"
        # If we die here, the columns are there or not: the next try matches again and adds the rest.
        with catalog_call(self.catalog.name, doing), found.update_schema() as update:
            for name, kind in columns:
                update.add_column(name, kind)
        return self._load()

    def widen_columns(self, table: FoundTable, columns: Sequence[NestedField]) -> IcebergTable:
        found = _own(table)
        doing = f"widening columns of table {'.'.join(found.name())}"
        # If we die here, they are wider or not: the next try matches again.
        with catalog_call(self.catalog.name, doing), found.update_schema() as update:
            for column in columns:
                update.update_column((column.name,), field_type=column.field_type, required=column.required)
        return self._load()

    def rename_columns(self, table: FoundTable, renames: Mapping[str, str]) -> IcebergTable:
        found = _own(table)
        doing = f"renaming columns of table {'.'.join(found.name())}"
        # If we die here, they have their new names or not: the next try looks again.
        with catalog_call(self.catalog.name, doing), found.update_schema() as update:
            for old, new in renames.items():
                update.rename_column((old,), new)
        return self._load()

    def describe(self, table: FoundTable) -> DestinationPlan:
        return tables.describe(self.catalog, _own(table))

    def check_writable(self, plan: ExportPlan) -> None:
        """Only keys that a catalog lends are in doubt: a table bucket takes nothing but tables."""
        where = plan.destination.receipts_location
        if self._lender is None or kind_of(where) == LOCAL:
            return
        try:
            write_probe(self.storage(), f"{names.receipts_of(where, plan.process_id)}/probe")
        except DeniedError as error:
            raise PermanentError(
                f"cannot write receipts to {where}: {error.message}",
                code="receipts_refused",
                hint=receipts_hint(self.catalog.name),
            ) from error

    def publish(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        note: Callable[[str], None],
    ) -> PublishedSnapshot | AlreadyExported:
        # A worker's publishes into one table take turns: of two at once, one would be refused and start again.
        # This is only for speed: after `call_seconds` it goes ahead without its turn. The table is loaded after that.
        has_turn = self._publishing.acquire(timeout=self._limits.call_seconds)
        try:
            return publish(self.catalog, process_id, plan, receipts, noted, note, limits=self._limits)
        finally:
            if has_turn:
                self._publishing.release()

    def find_publish(self, process_id: str, plan: ExportPlan) -> PublishedSnapshot | None:
        table = tables.find_by_uuid(self.catalog, plan.destination.identifier, plan.destination.uuid)
        return None if table is None else search(table.metadata, process_id, plan.keys).ours

    def fence(self, process_id: str, plan: ExportPlan, noted: str) -> PublishFenced | PublishedSnapshot:
        return fence(self.catalog, process_id, plan, noted, limits=self._limits)

    def undo(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        used: Sequence[Receipt] = (),
    ) -> Undone:
        return undo.undo(
            self.catalog, self.storage(), process_id, plan, receipts, noted, used, limits=self._limits
        )

    def remove_lost(self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        return undo.remove_lost(self.catalog, self.storage(), process_id, plan, receipts)

    def files_of(self, process_id: str, plan: ExportPlan) -> tuple[str, ...]:
        return files_of(self.storage(), process_id, plan)

    def verify(
        self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt], snapshot_id: str
    ) -> Verification:
        return verify.verify(self.catalog, plan, receipts, snapshot_id)

    def scan(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        snapshot_id: str,
        boxes: Sequence[Box] = (),
    ) -> Scan:
        return verify.scan(self.catalog, plan, receipts, snapshot_id, boxes)

    def probe(self, process_id: str = "") -> None:
        """A lane is named after its catalog and stands for the storage of its tables too. The storage is
        asked for a write: gateways answer reads before they take data."""
        with catalog_call(self.catalog.name, "probing"):
            self.catalog.list_namespaces()
        where = self._receipts() if process_id else ""
        if "://" in where and kind_of(where) != LOCAL:
            write_probe(self.storage(), f"{names.receipts_of(where, process_id)}/probe")

    def storage(self) -> Storage:
        return Storage(
            self._configured,
            connect_seconds=self._limits.connect_seconds,
            call_seconds=self._limits.call_seconds,
            keys=self._lender,
        )

    def executor_access(self) -> ExecutorAccess:
        if self._lender is None:
            return ExecutorAccess(storage=self._configured)
        lending = {
            "name": self.catalog.name,
            "properties": self._properties,
            "storage": self._configured,
        }
        return ExecutorAccess(storage=self._lender.properties(), lending=lending)

    @property
    def _configured(self) -> dict[str, str]:
        """Those that are text: nested tables (auth, ssl) are for the catalog's client."""
        return {name: value for name, value in self._properties.items() if isinstance(value, str)}

    def _load(self) -> IcebergTable:
        return IcebergTable(tables.load(self.catalog, self.address.identifier))

    def _receipts(self) -> str:
        """Where receipts go; "" where only the catalog's server knows."""
        try:
            return tables.receipts_location(self.catalog, self._load().table)
        except NotFoundError:
            warehouse = str(self.catalog.properties.get("warehouse", "")).rstrip("/")
            return f"{warehouse}/{names.RECEIPTS}" if "://" in warehouse else ""


def _own(table: FoundTable) -> Table:
    assert isinstance(table, IcebergTable)
    return table.table


def placement(plan: DestinationPlan, spec: PartitionSpec, schema: Schema) -> "IcebergPlacement":
    return IcebergPlacement(plan, spec, schema)


class IcebergPlacement:
    """Files go where the table's location provider puts them."""

    def __init__(self, plan: DestinationPlan, spec: PartitionSpec, schema: Schema) -> None:
        self._spec, self._schema = spec, schema
        self._provider = load_location_provider(
            plan.location, {**plan.properties, "write.data.path": plan.data_location}
        )

    def file(self, partition: Record | None, name: str) -> str:
        key: Any = None if partition is None else _Key(self._path(partition))
        return str(self._provider.new_data_location(name, key))

    def _path(self, partition: Record) -> str:
        path = str(self._spec.partition_to_path(partition, self._schema))
        return "/".join(_short(folder) for folder in path.split("/"))


class _Key:
    """What a location provider asks of a partition key. PyIceberg's own applies transforms to source
    values; ours are transformed already."""

    def __init__(self, path: str) -> None:
        self._path = path

    def to_path(self) -> str:
        return self._path


def _short(folder: str) -> str:
    """A name that file systems take. Values are never read from paths, so it may be cut; the hash
    keeps it unique."""
    if len(folder) <= _LONGEST_FOLDER:
        return folder
    # Not within a %XX, which would encode nothing.
    kept = folder[: _LONGEST_FOLDER // 2].rsplit("%", 1)[0]
    return f"{kept}~{hashlib.sha256(folder.encode()).hexdigest()[:32]}"
