"""Reading live, over HTTP: what the plan says about it, and the statements that executors send.

The rows come as Native blocks, so values are the server's own bytes: no time zone, no text, no
rounding in between (P3). Nothing secret is in a relation: whoever runs it has the configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.server.freezable import unknown_columns
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.sql.tokens import Sort, name, string, tokens
from calve.clickhouse.sql.zones import explicit
from calve.clickhouse.tables import Column, TableInfo
from calve.destination.plan import PartPlan, Relation
from calve.model.errors import PermanentError

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
    aliases: Mapping[str, str]  # ALIAS columns and their types: asked for only where the filter names them
    where: str = ""  # what the server itself filters by: fewer rows come, and it says how many

    @classmethod
    def of(cls, relation: Relation) -> "LiveTable":
        detail: dict[str, Any] = dict(relation.detail)
        return cls(**detail | {"masked": tuple(detail["masked"])})

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
    """The ALIAS columns that a row filter names."""
    words = {word.value for word in tokens(where) if word.sort in (Sort.NAME, Sort.QUOTED)}
    return {alias: kind for alias, kind in live.aliases.items() if alias in words}
