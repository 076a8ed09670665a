"""A folder of plain Parquet, seen as a catalog of one table.

So that choosing, mapping, planning and comparing are the same as for Iceberg. The table's schema,
spec, sort order and identity are in `_calve/schema.json`, put if-none-match: the first export
decides, later ones must fit. The keys that are exported are its commits, shown as the properties
that an Iceberg table would have. There are no snapshots.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from calve.iceberg.catalogs import file_io
from calve.iceberg.publish import marks
from calve.model.errors import NotFoundError, RefusedError
from calve.objects.storage import Storage
from calve.objects.uri import full_uri
from calve.parquet import places
from calve.parquet.commits import Commit, shown

IDENTIFIER = ("files",)
_READS_AT_ONCE = 8


class ParquetFolder(NoopCatalog):
    """See `pyiceberg.catalog.Catalog`: load and create are all there is to do."""

    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location, **storage.properties)
        self.location = full_uri(location.rstrip("/"))
        self.storage = storage
        self._lock = Lock()
        self._read: dict[str, Commit] = {}  # without their files; a commit never changes

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        try:
            data = self.storage.read(places.schema(self.location))
        except NotFoundError as cause:
            raise NoSuchTableError(f"nothing was exported to {self.location} yet") from cause
        return self._table(self._parsed(data))

    def create_table(
        self,
        identifier: str | tuple[str, ...],
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] = {},
    ) -> Table:
        assert isinstance(schema, Schema)
        metadata = new_table_metadata(
            schema,
            partition_spec,
            sort_order,
            self.location,
            # Data files stand under the folder itself, in the folders of their partition.
            {**properties, "write.data.path": self.location, "write.object-storage.enabled": "false"},
        )
        document = {"version": 1, "table": json.loads(metadata.model_dump_json())}
        # If we die here, the schema is there or not; the next try finds it and must fit.
        if not self.storage.put_if_absent(
            places.schema(self.location), json.dumps(document, indent=1).encode()
        ):
            raise TableAlreadyExistsError(self.location)
        return self._table(metadata)

    def namespace_exists(self, namespace: str | tuple[str, ...]) -> bool:
        return True

    def _parsed(self, data: bytes) -> TableMetadata:
        try:
            return TableMetadataUtil.parse_obj(json.loads(data)["table"])
        except (ValueError, KeyError, TypeError) as cause:
            raise RefusedError(
                f"{places.schema(self.location)} does not read as a schema",
                code="mark_unreadable",
                hint="somebody changed it; export into another folder",
            ) from cause

    def _table(self, metadata: TableMetadata) -> Table:
        keys = {marks.property_of(commit.key): _property(commit) for commit in self._shown()}
        seen = metadata.model_copy(update={"properties": {**metadata.properties, **keys}})
        return Table(
            IDENTIFIER,
            seen,
            places.schema(self.location),
            load_file_io(file_io.bounded(self.storage.properties), self.location),
            self,
        )

    def _shown(self) -> list[Commit]:
        """What every key shows now."""
        by_key: dict[str, list[Commit]] = {}
        for commit in self._commits():
            by_key.setdefault(commit.key, []).append(commit)
        found = (shown(sorted(own, key=lambda one: one.generation)) for own in by_key.values())
        return [commit for commit in found if commit is not None]

    def _commits(self) -> list[Commit]:
        listed = [uri for uri in self.storage.list(places.commits(self.location)) if places.parse_commit(uri)]
        with self._lock:
            missing = [uri for uri in listed if uri not in self._read]
        if missing:
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
                fresh = dict(zip(missing, pool.map(self._without_files, missing), strict=True))
            with self._lock:
                self._read |= fresh
        with self._lock:
            return [self._read[uri] for uri in listed]

    def _without_files(self, uri: str) -> Commit:
        commit = Commit.from_json(uri, self.storage.read(uri).decode(errors="replace"))
        return replace(commit, files=())


def folder_of(catalog: Catalog) -> ParquetFolder | None:
    """The folder that a catalog is, if it is one."""
    return catalog if isinstance(catalog, ParquetFolder) else None


def _property(commit: Commit) -> str:
    """As `marks.read_property` reads it; the generation stands where a snapshot would."""
    value = {
        "process": commit.process,
        "snapshot": str(commit.generation),
        "content": commit.content,
        "input": list(commit.input),
        "rows": commit.rows,
    }
    return json.dumps(value)
