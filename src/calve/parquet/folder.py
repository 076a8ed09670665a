"""A folder of plain Parquet, and where everything in it is.

Its schema, spec, sort order and identity are in `_calve/schema.json`, put if-none-match: the first
export decides, later ones must fit. The keys that are exported are its commits. Readers that glob skip
`_calve`: a name that begins with `_` is hidden to Spark, Hive and Trino.

Hive-style folders of partition values, for readers that take partitions from paths.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from urllib.parse import quote

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record

from calve.destination.names import CommitName
from calve.destination.outcome import EarlierExport
from calve.destination.port import FoundTable
from calve.model.errors import NotFoundError, RefusedError
from calve.objects.storage import Storage
from calve.objects.uri import full_uri, is_below
from calve.parquet.commits import KeyCommit, ListedFile, parse, shown

HIDDEN = "_calve"
_READS_AT_ONCE = 8


class Folder:
    """One folder and the storage that it is in. Thread-safe."""

    def __init__(self, location: str, storage: Storage) -> None:
        self.location = full_uri(location.rstrip("/"))
        self.storage = storage
        self._lock = Lock()
        self._read: dict[str, KeyCommit] = {}  # with one file at most; a commit never changes

    @property
    def schema_uri(self) -> str:
        return f"{self.location}/{HIDDEN}/schema.json"

    @property
    def receipts(self) -> str:
        return f"{self.location}/{HIDDEN}/receipts"

    @property
    def commits(self) -> str:
        return f"{self.location}/{HIDDEN}/commits"

    def commit_uri(self, key_hash: str, generation: int) -> str:
        return f"{self.commits}/{CommitName(key=key_hash, generation=generation)}"

    # -- the table ----------------------------------------------------------------------------------

    def find(self) -> "FolderTable | None":
        try:
            data = self.storage.read(self.schema_uri)
        except NotFoundError:
            return None
        return FolderTable(self, self._parsed(data))

    def table(self) -> "FolderTable":
        """NotFoundError where nothing was exported yet."""
        found = self.find()
        if found is None:
            raise NotFoundError(
                f"{self.location} holds no export: {HIDDEN}/schema.json is missing",
                code="no_such_table",
                hint="check the path; if the folder was removed, export again",
            )
        return found

    def create(self, schema: Schema, spec: PartitionSpec, sort_order: SortOrder) -> "FolderTable":
        """The first to ask decides; later callers get its table."""
        # Data files are under the folder itself, in the folders of their partition.
        properties = {"write.data.path": self.location, "write.object-storage.enabled": "false"}
        metadata = new_table_metadata(schema, spec, sort_order, self.location, properties)
        document = {"version": 1, "table": json.loads(metadata.model_dump_json())}
        # If we die here, the schema is there or not; the next try finds it and must fit.
        if self.storage.put_if_absent(self.schema_uri, json.dumps(document, indent=1).encode()):
            return FolderTable(self, metadata)
        return self.table()

    def _parsed(self, data: bytes) -> TableMetadata:
        try:
            return TableMetadataUtil.parse_obj(json.loads(data)["table"])
        except (ValueError, KeyError, TypeError, RecursionError) as cause:
            raise RefusedError(
                f"{self.schema_uri} cannot be read as a schema",
                code="mark_unreadable",
                hint="it was changed by hand or damaged; export into another folder",
            ) from cause

    # -- its commits --------------------------------------------------------------------------------

    def read_commit(self, key_hash: str, generation: int) -> KeyCommit | None:
        uri = self.commit_uri(key_hash, generation)
        try:
            return parse(uri, self.storage.read(uri))
        except NotFoundError:
            return None

    def generations(self, key_hash: str) -> list[KeyCommit]:
        """Every generation of a key, asked one by one: a listing may lag behind, a read may not."""
        found: list[KeyCommit] = []
        while (commit := self.read_commit(key_hash, len(found))) is not None:
            found.append(commit)
        return found

    def shown(self) -> "ShownCommit":
        """What every key shows now, with one of its files at most. A commit that cannot be read is an error of its key (T10)."""
        by_key: dict[str, list[KeyCommit]] = {}
        damaged: dict[str, RefusedError] = {}
        for uri, commit in self._listed():
            if isinstance(commit, RefusedError):
                name = CommitName.parse(uri)
                damaged[name.key if name else uri] = commit
            else:
                by_key.setdefault(commit.key, []).append(commit)
        found = (shown(sorted(own, key=lambda one: one.generation)) for own in by_key.values())
        return ShownCommit(
            commits={one.key: one for one in found if one is not None and one.key not in damaged},
            damaged=damaged,
        )

    def with_presence(self, commit: KeyCommit) -> EarlierExport:
        """The export, with what of it is missing (T11). One file that is there is enough; only if it is not, all
        are asked for, of the newest generation: another program may just have replaced this one. Nothing is said
        of a folder that was moved."""
        if not commit.rows or self._has_one_of(commit.files):
            return commit.export
        newest = shown(self.generations(commit.key)) or commit
        if not newest.rows or self._has_one_of(newest.files):
            return newest.export
        gone = f"its {newest.rows} rows were deleted there: none of its files is left"
        return replace(newest.export, missing=gone)

    def _has_one_of(self, files: Iterable[ListedFile]) -> bool:
        return any(not is_below(file.path, self.location) or self.storage.exists(file.path) for file in files)

    def _listed(self) -> list[tuple[str, KeyCommit | RefusedError]]:
        listed = [uri for uri in self.storage.list(self.commits) if CommitName.parse(uri)]
        with self._lock:
            found: dict[str, KeyCommit | RefusedError] = {
                uri: self._read[uri] for uri in listed if uri in self._read
            }
        missing = [uri for uri in listed if uri not in found]
        if missing:
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
                found |= zip(missing, pool.map(self._with_one_file, missing), strict=True)
            with self._lock:
                self._read |= {uri: one for uri, one in found.items() if isinstance(one, KeyCommit)}
        return [(uri, found[uri]) for uri in listed]

    def _with_one_file(self, uri: str) -> KeyCommit | RefusedError:
        try:
            commit = parse(uri, self.storage.read(uri))
            return replace(commit, files=commit.files[:1])
        except RefusedError as error:
            return error


@dataclass(frozen=True, kw_only=True)
class ShownCommit:
    commits: Mapping[str, KeyCommit]  # by key
    damaged: Mapping[str, RefusedError]


class FolderTable(FoundTable):
    """The folder as one look found it. Its commits are listed when they are first asked for."""

    def __init__(self, folder: Folder, metadata: TableMetadata) -> None:
        self.folder = folder
        self.metadata = metadata

    @property
    def uuid(self) -> str:
        return str(self.metadata.table_uuid)

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    @property
    def spec(self) -> PartitionSpec:
        return self.metadata.spec()

    @property
    def sort_order(self) -> SortOrder:
        orders = {order.order_id: order for order in self.metadata.sort_orders}
        return orders[self.metadata.default_sort_order_id]

    def find_export(self, key_hash: str) -> EarlierExport | None:
        if (damaged := self._shown.damaged.get(key_hash)) is not None:
            raise damaged
        commit = self._shown.commits.get(key_hash)
        return self.folder.with_presence(commit) if commit else None

    def exports(self) -> Iterable[EarlierExport]:
        """Raises for a commit that cannot be read: its rows may be any."""
        for damaged in self._shown.damaged.values():
            raise damaged
        return [commit.export for commit in self._shown.commits.values()]

    def released_exports(self) -> Iterable[EarlierExport]:
        return []  # nothing is released into a folder

    @cached_property
    def _shown(self) -> ShownCommit:
        return self.folder.shown()


NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_BYTES = 200  # file systems take 255 in a name


def hive_path(spec: PartitionSpec, schema: Schema, record: Record) -> str:
    types = [field.field_type for field in spec.partition_type(schema).fields]
    return "/".join(
        f"{_escaped(field.name)}={_value(field.transform.to_human_string(kind, value), value)}"
        for field, kind, value in zip(spec.fields, types, _values(record, len(types)), strict=True)
    )


def _values(record: Record, count: int) -> list[object]:
    return [record[place] for place in range(count)]


def _value(text: str, value: object) -> str:
    return NULL if value is None else _escaped(text)


def _escaped(text: str) -> str:
    escaped = quote(text, safe="")
    if len(escaped) <= _MOST_BYTES:
        return escaped
    # Cut, with a hash to keep it unique: paths are never parsed, so the value need not be readable.
    return f"{escaped[: _MOST_BYTES - 33]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
