"""The manifest: what a backup holds. Put once, last, if-none-match; without it there is no backup.

It names every stored part with the hash of its index, the index names every file with its hash,
and the manifest carries a hash of itself: a flipped bit anywhere is found. Fields added after
version 1 have defaults (L12).
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from calve.archive.access import AccessEntry
from calve.clickhouse.parts.content import FiledPart
from calve.clickhouse.sql import create_table
from calve.clickhouse.tables import Column, TableInfo
from calve.model.codec import Malformed, decode, encode
from calve.model.errors import DamagedError, RefusedError

MANIFEST_VERSION = 1
_SIGNATURE = "hmac_sha256"  # beside the manifest, where older versions do not look
_PLACE = re.compile(r'"place": ?"([a-z0-9]{1,64}/\d{1,10}-\d{1,10}/[0-9a-f]{40})"')


@dataclass(frozen=True, kw_only=True)
class PartEntry(FiledPart):
    """One part of a table, and where it is stored."""

    address: str  # of its content
    lacks: tuple[str, ...] = ()  # columns without values here whose default only a server can compute
    place: str = ""  # below `parts/`; known once it is stored
    index_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class PartitionEntry:
    """A partition as its table showed it."""

    id: str
    value: str
    min_time: str = ""  # ISO, of the partition key's time column
    max_time: str = ""


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """A MergeTree table as it was when it was frozen."""

    database: str
    name: str
    uuid: str
    identity: str
    engine: str
    engine_full: str
    create: str
    columns: tuple[Column, ...]
    partition_key: str
    sorting_key: str
    primary_key: str
    sampling_key: str
    timezone: str
    version: str  # of ClickHouse
    scratch: str  # CREATE of the table that parts are read through, with {table} for its name
    scratch_final: str = ""  # the same for FINAL; "" where the merged view cannot be had elsewhere
    stripped: tuple[str, ...] = ()
    partitions: tuple[PartitionEntry, ...] = ()
    parts: tuple[PartEntry, ...] = ()
    row_policies: tuple[str, ...] = ()  # that a backup reads past, as ClickHouse names them

    @property
    def full_name(self) -> tuple[str, str]:
        return self.database, self.name

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def rows(self) -> int:
        return sum(part.rows_seen for part in self.parts)

    def info(self, source: str) -> TableInfo:
        """As the source would describe it."""
        return TableInfo(
            source=source,
            database=self.database,
            name=self.name,
            uuid=self.uuid,
            identity=self.identity,
            engine=self.engine,
            clause=create_table.parse(self.engine_full),
            columns=self.columns,
            partition_key=self.partition_key,
            sorting_key=self.sorting_key,
            primary_key=self.primary_key,
            sampling_key=self.sampling_key,
            create_query=self.create,
            storage_policy="",
            data_paths=(),
            timezone=self.timezone,
            version=self.version,
        )


@dataclass(frozen=True, kw_only=True)
class SchemaEntry:
    """Something that is kept by its CREATE alone: a view, a dictionary, a table of another engine."""

    database: str
    name: str
    engine: str
    uuid: str
    create: str

    @property
    def full_name(self) -> tuple[str, str]:
        return self.database, self.name


@dataclass(frozen=True, kw_only=True)
class Manifest:
    name: str
    number: int  # which use of the name this is
    process_id: str
    location_id: str
    source: str
    created_at: str  # by the store's clock
    calve_version: str
    databases: Mapping[str, str] = field(default_factory=dict)  # name -> CREATE
    functions: Mapping[str, str] = field(default_factory=dict)
    order: tuple[tuple[str, str], ...] = ()  # in which tables and schemas are to be made
    tables: tuple[TableEntry, ...] = ()
    schemas: tuple[SchemaEntry, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # a table, and why
    moved_bytes: int = 0  # that this backup itself stored
    access: tuple[AccessEntry, ...] = ()  # row policies of its tables; with `rbac`, everything else too
    rbac: bool = False
    remarks: tuple[tuple[str, str], ...] = ()  # what else is not in it, and why
    schedule: str = ""  # that made it, and may delete it
    version: int = MANIFEST_VERSION

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def parts(self) -> int:
        return sum(len(table.parts) for table in self.tables)

    @property
    def places(self) -> dict[str, PartEntry]:
        """Every stored part once: tables may share one."""
        return {part.place: part for table in self.tables for part in table.parts}

    def to_json(self, signing_key: str = "") -> str:
        body = json.dumps(encode(self), separators=(",", ":"), sort_keys=True)
        document = {"sha256": _sha256(body), "manifest": json.loads(body)}
        if signing_key:
            document[_SIGNATURE] = _signature(body, signing_key)
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str, hint: str = "") -> Self:
        """PermanentError naming the object if it is not what was written."""
        try:
            document = json.loads(text)
            data: dict[str, Any] = document["manifest"]
            whole = document["sha256"] == _sha256(json.dumps(data, separators=(",", ":"), sort_keys=True))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damaged(where, "it is not a manifest", hint) from None
        if not isinstance(data, dict):
            raise damaged(where, "it is not a manifest", hint)
        if not whole:
            raise damaged(where, "its content does not match its checksum", hint)
        if lacking := _lacking(data):
            raise damaged(where, f"it has no {lacking}", hint)
        try:
            return decode(cls, data)
        except Malformed as error:
            raise damaged(where, f"it does not read as a manifest ({error})", hint) from None


def _lacking(data: Mapping[str, Any]) -> str:
    """What every manifest has, and would read as an empty backup without. Later fields may be absent."""
    tables = data.get("tables")
    if not isinstance(tables, list):
        return "list of tables"
    for table in tables:
        if isinstance(table, dict) and "parts" not in table:
            return f"list of the parts of table {table.get('database')}.{table.get('name')}"
    return ""


def refuse_unsigned(text: str, where: str, signing_key: str) -> None:
    """RefusedError unless a whole manifest was signed with the key. It names every index by its hash and
    an index every file, so the signature covers all that the backup holds."""
    document = json.loads(text)
    body = json.dumps(document["manifest"], separators=(",", ":"), sort_keys=True)
    signature = document.get(_SIGNATURE)
    if isinstance(signature, str) and hmac.compare_digest(signature, _signature(body, signing_key)):
        return
    raise RefusedError(
        f"{where} is {'signed with another key' if signature else 'not signed'}",
        code="backup_unsigned",
        hint="if you trust it, give --unsigned; otherwise find out who wrote it",
    )


def damaged(where: str, what: str, hint: str = "") -> DamagedError:
    return DamagedError(f"{where} is damaged: {what}", code="backup_damaged", hint=hint)


def salvaged_places(text: str) -> list[str]:
    """The stored parts that a manifest names whose checksum does not hold: as many as can still be made
    out. Good for finding what to look at, never for saying what is needed."""
    return list(dict.fromkeys(_PLACE.findall(text)))


def _signature(body: str, signing_key: str) -> str:
    return hmac.new(signing_key.encode(), body.encode(), hashlib.sha256).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
