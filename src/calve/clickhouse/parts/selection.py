"""Which partitions of a table a person means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from calve.clickhouse.parts import partitions
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import View
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
                "choose partitions in exactly one way",
                code="selection",
                hint="--partition ID_OR_VALUE…, --part NAME…, --all or --older-than 90d",
            )


def select(view: View, table: TableInfo, wanted: Selection) -> list[PartitionInfo]:
    """The partitions meant, as they are now. Those named one by one must be there and have rows;
    of those chosen all at once, the empty ones are left out."""
    if wanted.partitions or wanted.parts:
        names = wanted.partitions or _partitions_of(view, table, wanted.parts)
        found = partitions.find(view, table, names)
        _refuse_empty(view, table, found)
        if not wanted.parts:
            return found
        return [replace(one, named=view.named_content(table, one.id, wanted.parts)) for one in found]
    known = [one for one in view.partitions(table) if one.rows]
    if wanted.older_than is not None:
        return _older(view, table, known, wanted.older_than)
    return known


def _refuse_empty(view: View, table: TableInfo, found: Sequence[PartitionInfo]) -> None:
    empty = [one.id for one in found if not one.rows]
    if empty:
        what = "partition" if len(empty) == 1 else "partitions"
        raise RefusedError(
            f"{what} {', '.join(empty)} of table {table} has no rows",
            code="empty_partition",
            hint=f"its rows were deleted; see: {view.command_for(table)}",
        )


def _partitions_of(view: View, table: TableInfo, names: Sequence[str]) -> list[str]:
    """The partitions that named parts belong to. NotFoundError names parts that are not there."""
    found = view.parts(table, names=names)
    missing = sorted(set(names) - {part.name for part in found})
    if missing:
        raise NotFoundError(
            f"table {table} has no part {', '.join(missing)}",
            code="no_part",
            hint=f"see: {view.command_for(table)} --parts",
        )
    return sorted({part.partition_id for part in found})


def _older(
    view: View, table: TableInfo, known: Sequence[PartitionInfo], age: timedelta
) -> list[PartitionInfo]:
    """By the partition key's own time column: when the newest row of a partition is older."""
    timeless = [one.id for one in known if one.max_time is None]
    if timeless:
        raise RefusedError(
            f"the partition key of table {table} has no date or time column, so its partitions have no age",
            code="no_partition_time",
            hint="name the partitions with --partition",
        )
    limit = view.now() - age
    return [one for one in known if one.max_time is not None and one.max_time < limit]
