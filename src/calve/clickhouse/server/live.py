"""Reading live, over HTTP: what the plan says about it, and the statements that executors send.

The rows come as Native blocks, so values are the server's own bytes: no time zone, no text, no
rounding in between (P3). A relation holds no secret: the program that runs it has the configuration.

Whether parts can instead be frozen and read as files is decided once, when planning, and reported.
"""

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calve.clickhouse.engine.ddl import explicit, scratch_table
from calve.clickhouse.server.parts import ListedPart
from calve.clickhouse.server.session import ServerSession, Version, parse
from calve.clickhouse.sql import types
from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.sql.tokens import Sort, name, string, tokens
from calve.clickhouse.tables import Column, TableInfo
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import PermanentError

_OLDEST_FROZEN = Version(21, 3)


def engine_version() -> Version:
    """Of the engine in this installation, and so in the executors'."""
    return parse(importlib.metadata.version("chdb-core"))


_ZERO_COPY = "allow_remote_fs_zero_copy_replication"


def obstacle(session: ServerSession, table: TableInfo, parts: Sequence[ListedPart]) -> str:
    """Why these parts cannot be frozen and read as files; "" when they can."""
    seen = {disk.name: disk.path for disk in session.mapped_disks()}
    if not seen:
        return "no disk of the server is mapped to a folder (disks)"
    if session.features.version < _OLDEST_FROZEN:
        return f"ClickHouse {session.version} is older than {_OLDEST_FROZEN}"
    if session.features.version > engine_version():
        return f"parts of ClickHouse {session.version} may be newer than the engine ({engine_version()})"
    used = sorted({part.disk for part in parts})
    if unmapped := [name for name in used if name not in seen]:
        return f"disk {', '.join(unmapped)} is not mapped to a folder"
    if unlike := _not_plain(session, used):
        return f"disk {', '.join(unlike)} holds no plain files (object storage, or encrypted)"
    if unknown := unknown_columns(table):
        return f"the engine does not know the type of column {', '.join(unknown)}"
    return next((text for name in used if (text := _closed(seen[name]))), "")


def unknown_columns(table: TableInfo) -> list[str]:
    """Columns whose type no engine of ours has."""
    return [
        column.name
        for column in table.columns
        if isinstance(types.strip_wrappers(types.parse(column.type)), types.Other | types.Object)
    ]


def why_no_clone(session: ServerSession, table: TableInfo, parts: Sequence[ListedPart]) -> str:
    """Why a clone of links could not be made, or would harm; "" if nothing is against it.

    With zero-copy replication, replicas share a part's objects and count them in Keeper, where a plain table is not
    counted: dropping a clone could take objects that another replica still needs. No setting makes such a clone copy
    (tried: `always_use_copy_instead_of_hardlinks` does not)."""
    used = sorted({part.disk for part in parts})
    if session.has("disks", "is_read_only"):
        found = session.rows("SELECT name FROM system.disks WHERE is_read_only")
        if closed := sorted({row["name"] for row in found} & set(used)):
            return f"disk {', '.join(closed)} is read-only"
    if not table.clause.replicated or not _zero_copy(session, table):
        return ""
    shared = _not_plain(session, used)
    return f"its replicas share the objects of disk {', '.join(shared)} (zero copy)" if shared else ""


def _zero_copy(session: ServerSession, table: TableInfo) -> bool:
    if (given := table.settings.get(_ZERO_COPY)) is not None:
        return given == "1"
    query = f"SELECT name FROM system.merge_tree_settings WHERE name = {string(_ZERO_COPY)} AND value = '1'"
    return bool(session.rows(query))


def _not_plain(session: ServerSession, names: Sequence[str]) -> list[str]:
    encrypted = "toUInt8(is_encrypted)" if session.has("disks", "is_encrypted") else "0"
    found = session.rows(f"SELECT name, lower(type) AS type, {encrypted} AS encrypted FROM system.disks")
    plain = {row["name"] for row in found if row["type"] == "local" and not row["encrypted"]}
    return [name for name in names if name not in plain]


def _closed(path: Path) -> str:
    """A freeze is read, and in the end removed, as files: both must be allowed, since a release may
    find its table dropped, and then nothing else can take the freeze away."""
    try:
        if not path.is_dir():
            return f"{path} is not a folder on this machine"
        shadow = path / "shadow"
        target = shadow if shadow.exists() else path
    except PermissionError:  # of a folder above it
        return f"{path} may not be read and written by this user"
    if not os.access(target, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return f"{target} may not be read and written by this user"
    return ""


MODE = "live"
READER = "calve.clickhouse.server.stage:opened"
_STORED = frozenset({"", "DEFAULT", "MATERIALIZED"})
_ORDERED = {"max_threads": "1"}


@dataclass(frozen=True, kw_only=True)
class LiveTable:
    """`Relation.detail` of the live way."""

    source: str
    replica: str  # where the pin is
    database: str
    table: str
    pinned: bool
    masked: tuple[str, ...]  # parts with lightweight deletes: fewer rows come than they have
    part_offset: bool  # a part can be read by ranges
    settings: Mapping[str, str]
    aliases: Mapping[str, str]  # ALIAS columns and their types: asked for only where they are named
    included: tuple[str, ...] = ()  # ALIAS columns that are exported
    where: str = ""  # what the server itself filters by: fewer rows come, and it says how many

    @classmethod
    def of(cls, relation: Relation) -> "LiveTable":
        detail: dict[str, Any] = dict(relation.detail)
        return cls(
            **detail | {"masked": tuple(detail["masked"]), "included": tuple(detail.get("included", ()))}
        )

    def query(self, columns: tuple[str, ...], part: PartPlan, start: int, end: int) -> str:
        """The rows of a slice, without FORMAT."""
        return f"SELECT {', '.join(map(name, columns))} {self._from(part, start, end)}"

    def count(self, part: PartPlan, start: int, end: int) -> str:
        return f"SELECT count() {self._from(part, start, end)}"  # no alias: a filter may name a column so

    def counts(self, part: PartPlan) -> bool:
        """Whether only the server can say how many rows of the part are to come."""
        return bool(self.where) or part.path in self.masked

    def still_there(self, part: PartPlan) -> str:
        return (
            f"SELECT count() FROM system.parts WHERE active AND database = {string(self.database)} "
            f"AND table = {string(self.table)} AND name = {string(part.path)}"
        )

    def _from(self, part: PartPlan, start: int, end: int) -> str:
        text = f"FROM {name(self.database)}.{name(self.table)} WHERE _part = {string(part.path)}"
        if self.where:
            text += f" AND ({self.where})"
        if start == 0 and end == part.rows:
            return text
        if not self.part_offset:
            raise PermanentError(
                f"rows {start} to {end} of part {part.name} cannot be asked for: the server has no _part_offset",
                code="part_not_split",
                hint="raise limits.task_bytes_mb above the size of the table's largest part",
            )
        return f"{text} AND _part_offset >= {start} AND _part_offset < {end}"


def relation(
    session: ServerSession, table: TableInfo, there: TableInfo, *, masked: list[str], final: bool
) -> Relation:
    """How executors read `there`: the clone of `table`, or the table itself."""
    unknown = set(unknown_columns(table))  # never exported: mapping refuses them unless excluded
    known = [
        replace(column, type=explicit(column.type, table.timezone))
        for column in table.columns
        if column.name not in unknown
    ]
    stored = tuple(
        Column(name=column.name, type=column.type) for column in known if column.default_kind in _STORED
    )
    detail = {
        "source": session.source,
        "replica": session.address.url,
        "database": there.database,
        "table": there.name,
        "pinned": there is not table,
        "masked": masked,
        "part_offset": session.features.part_offset,
        "settings": {} if session.read_only else dict(_ORDERED),
        "aliases": {column.name: column.type for column in known if column.default_kind == "ALIAS"},
    }
    return Relation(
        mode=MODE,
        create=_create(table, stored, final=final),
        structure=", ".join(f"{name(column.name)} {column.type}" for column in stored),
        final=final,
        detail=detail,
    )


def _create(table: TableInfo, stored: tuple[Column, ...], *, final: bool) -> str:
    """A table to stage the rows in: columns without defaults, since every value comes. Its engine
    matters only to FINAL; otherwise rows stay in the order they came in."""
    if final:
        return scratch_table(replace(table, columns=stored), final=True).create
    plain = EngineClause(name="MergeTree", order_by="tuple()")
    return scratch_table(replace(table, columns=stored, clause=plain)).create


def named_aliases(live: LiveTable, where: str) -> dict[str, str]:
    """The ALIAS columns that a row filter names, or the export itself: the server computes them."""
    words = {word.value for word in tokens(where) if word.sort in (Sort.NAME, Sort.QUOTED)}
    words |= set(live.included)
    return {alias: kind for alias, kind in live.aliases.items() if alias in words}
