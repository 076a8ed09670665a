"""Which partitions of a table a person means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from calve.clickhouse.parts import part_files, partitions
from calve.clickhouse.parts.content import file_hash, parts_content
from calve.clickhouse.parts.part_files import content_hash
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import NotFoundError, RefusedError, UsageError


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Exactly one of the four ways to choose."""

    partitions: tuple[str, ...] = ()  # ids or values
    parts: tuple[str, ...] = ()
    all: bool = False
    older_than: timedelta | None = None

    def __post_init__(self) -> None:
        ways = (bool(self.partitions), bool(self.parts), self.all, self.older_than is not None)
        if sum(ways) != 1:
            raise UsageError(
                "say which partitions, in exactly one way",
                code="selection",
                hint="--partition ID_OR_VALUE…, --part NAME…, --all or --older-than 90d",
            )


def select(session: Session, table: TableInfo, wanted: Selection) -> list[PartitionInfo]:
    """The partitions meant, as they are now. Those named one by one must be there and have rows;
    of those chosen all at once, the empty ones are left out."""
    if wanted.partitions or wanted.parts:
        names = wanted.partitions or _partitions_of(session, table, wanted.parts)
        found = partitions.find(session, table, names)
        _refuse_empty(table, found)
        if not wanted.parts:
            return found
        return [replace(one, named=named_content(session, table, one.id, wanted.parts)) for one in found]
    known = [one for one in session.partitions(table) if one.rows]
    if wanted.older_than is not None:
        return _older(session, table, known, wanted.older_than)
    if not known:
        raise NotFoundError(
            f"table {table} is empty", code="no_partition", hint="there is nothing to export yet"
        )
    return known


def named_content(session: Session, table: TableInfo, partition_id: str, names: Sequence[str]) -> str:
    """The content of those of the named parts that are in a partition, by their files or, at a server,
    by its own hashes; "" where a hash is not known."""
    parts = session.parts(table, [partition_id], names)
    if session.embedded:
        return parts_content(file_hash(content_hash(Path(part.path))) for part in parts)
    return parts_content(part.content for part in parts)


def _refuse_empty(table: TableInfo, found: Sequence[PartitionInfo]) -> None:
    empty = [one.id for one in found if not one.rows]
    if empty:
        what = "partition" if len(empty) == 1 else "partitions"
        raise RefusedError(
            f"{what} {', '.join(empty)} of table {table} has no rows",
            code="empty_partition",
            hint=f"its rows were deleted; see: calve partitions '{table}'",
        )


def _partitions_of(session: Session, table: TableInfo, names: Sequence[str]) -> list[str]:
    """The partitions that named parts belong to. NotFoundError names parts that are not there."""
    rows = session.rows(
        f"SELECT name FROM system.parts WHERE active AND database = {string(table.database)} "
        f"AND table = {string(table.name)} AND name IN ({', '.join(map(string, names))})",
        what=f"table {table}",
    )
    missing = sorted(set(names) - {row["name"] for row in rows})
    if missing:
        raise NotFoundError(
            f"table {table} has no part {', '.join(missing)}",
            code="no_part",
            hint=f"calve partitions '{table}' --parts shows those it has now",
        )
    parsed = (part_files.parse_name(name, old_syntax=table.clause.old_syntax) for name in names)
    return sorted({name.partition_id for name in parsed if name is not None})


def _older(
    session: Session, table: TableInfo, known: Sequence[PartitionInfo], age: timedelta
) -> list[PartitionInfo]:
    """By the partition key's own time column: when the newest row of a partition is older."""
    timeless = [one.id for one in known if one.max_time is None]
    if timeless:
        raise RefusedError(
            f"the partition key of table {table} has no date or time column, so its partitions have no age",
            code="no_partition_time",
            hint="name the partitions with --partition",
        )
    [clock] = session.rows("SELECT toUnixTimestamp(now()) AS now")
    limit = datetime.fromtimestamp(clock["now"], UTC) - age
    return [one for one in known if one.max_time is not None and one.max_time < limit]
