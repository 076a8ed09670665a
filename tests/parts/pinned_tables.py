"""Making tables and pinning them, for tests."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from calve.clickhouse.embedded.source import EmbeddedSession
from calve.clickhouse.engine import ddl
from calve.clickhouse.parts.partitions import partitions
from calve.clickhouse.pins import freeze
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import TableInfo, describe


@dataclass
class Pinned:
    """A table, pinned."""

    table: TableInfo
    parts: list[freeze.FrozenPart]
    name: str
    scratch: ddl.ScratchTable
    partition_ids: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [part.path for part in self.parts]

    @property
    def columns(self) -> str:
        """All that a person exports."""
        kept = [
            column.name for column in self.table.columns if column.default_kind not in ("ALIAS", "EPHEMERAL")
        ]
        return ", ".join(map(quoted, kept))


def pin(session: EmbeddedSession, table: str, name: str = "calve-test-1", database: str = "db") -> Pinned:
    described = describe(session, database, table)
    ids = [partition.id for partition in partitions(session, described)]
    freeze.freeze(session, described, ids, name)
    parts = freeze.frozen_parts(session, described, ids, name)
    return Pinned(
        table=described, parts=parts, name=name, scratch=ddl.scratch_table(described), partition_ids=ids
    )


def make(session: EmbeddedSession, table: str, statements: tuple[str, ...], database: str = "db") -> None:
    session.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
    session.execute("SYSTEM START MERGES")
    for statement in statements:
        session.execute(statement.replace("{t}", f"{quoted(database)}.{quoted(table)}"))
    session.execute("SYSTEM STOP MERGES")


def by_value(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(row) for row in rows)


@contextlib.contextmanager
def released(session: EmbeddedSession, name: str = "calve-test-1") -> Iterator[None]:
    try:
        yield
    finally:
        freeze.release(session, name)
