"""The partitions and parts of a table as they are now, before anything is pinned: for looking, never for
a plan (D6).

Which partitions of a table a person means.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from calve.clickhouse.errors import NoPartitionError
from calve.clickhouse.parts.content import Extent, content_hash, content_id, file_hash
from calve.clickhouse.source import Statements, View
from calve.clickhouse.sql.tokens import split_arguments, string, unquote
from calve.clickhouse.tables import PATCH_PREFIX, TableInfo
from calve.destination.content import PartMark
from calve.destination.plan import PartPlan
from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError, UsageError

_NO_SETTINGS: Mapping[str, str] = {}
# Of each part of a partition, in one and the same order.
MARKS = (
    "groupArray(min_block_number) AS lows, groupArray(max_block_number) AS highs, "
    "groupArray(toInt64(level)) AS levels, groupArray(data_version) AS versions, groupArray(rows) AS counts"
)


@dataclass(frozen=True, kw_only=True)
class PartitionInfo:
    """One partition. `rows` are those a reader sees; lightweight-deleted ones do not count."""

    id: str
    value: str  # as ClickHouse writes it: "202401", "('a',1)"
    rows: int
    bytes: int
    parts: int
    modified_at: datetime  # of its newest part
    min_block: int
    max_block: int
    mutation: int  # the last that changed it; 0 for none
    content: str
    disks: tuple[str, ...]
    min_time: datetime | None = None  # of the partition key's time column, where it has one
    max_time: datetime | None = None
    named: str = ""  # the content of the parts that were named, where some were


def partitions(session: Statements, table: TableInfo) -> list[PartitionInfo]:
    """All partitions with active parts, by id. Patch parts belong to none."""
    found = session.rows(
        "SELECT partition_id AS id, any(partition) AS value, sum(rows) AS physical_rows, "
        "sum(bytes_on_disk) AS bytes, count() AS parts, toUnixTimestamp(max(modification_time)) AS modified, "
        "min(min_block_number) AS min_block, max(max_block_number) AS max_block, "
        "max(if(data_version = min_block_number, 0, data_version)) AS mutation, "
        "max(has_lightweight_delete) AS has_deleted, groupUniqArray(disk_name) AS disks, "
        f"{MARKS}, groupArray(path) AS paths, "
        "toUnixTimestamp(min(min_time)) AS min_time, toUnixTimestamp(max(max_time)) AS max_time, "
        "min(toUInt32(min_date)) AS min_day, max(toUInt32(max_date)) AS max_day "
        f"FROM system.parts WHERE active AND database = {string(table.database)} "
        f"AND table = {string(table.name)} AND NOT startsWith(partition_id, {string(PATCH_PREFIX)}) "
        "GROUP BY partition_id ORDER BY partition_id",
        what=f"table {table}",
    )
    seen = rows_seen(session, table, [row["id"] for row in found if row["has_deleted"]], "_partition_id")
    return [partition_of(row, seen, _file_hashes(row["paths"])) for row in found]


def find(view: View, table: TableInfo, wanted: Sequence[str]) -> list[PartitionInfo]:
    """The partitions that a person names by id or value, in that order, each once.
    NotFoundError names those that are not there."""
    known = view.partitions(table)
    by_name = {partition.value: partition for partition in known} | {
        partition.id: partition for partition in known
    }
    absent = [name for name in wanted if _key(name, by_name) is None]
    if absent:
        raise _missing(view, table, absent, known)
    chosen = {by_name[key].id: by_name[key] for name in wanted if (key := _key(name, by_name)) is not None}
    return list(chosen.values())


def id_of(session: Statements, table: TableInfo, value: str) -> str:
    """The id of the partition with this value, whether or not the table has it. "" where the text is no value of its key, and at
    servers that do not compute ids."""
    try:
        [key] = session.rows(f"DESCRIBE (SELECT _partition_value FROM {table.sql})", what=f"table {table}")
        kinds = split_arguments(key["type"].removeprefix("Tuple(").removesuffix(")"))
        of_several = len(kinds) > 1
        members = [f"value.{place}" for place in range(1, len(kinds) + 1)] if of_several else ["value"]
        [found] = session.rows(
            f"WITH CAST({string(value)} AS {key['type'] if of_several else kinds[0]}) AS value "
            f"SELECT partitionId({', '.join(members)}) AS id",
            what=f"table {table}",
        )
    except PermanentError:
        return ""
    return str(found["id"])


def id_among(session: Statements, table: TableInfo, name: str, ids: Collection[str]) -> str:
    """Which of these partitions a person means by an id or a value; "" for none."""
    if name in ids:
        return name
    found = id_of(session, table, name)
    return found if found in ids else ""


def clock(session: Statements) -> datetime:
    """The source's own clock."""
    [found] = session.rows("SELECT toUnixTimestamp(now()) AS now")
    return datetime.fromtimestamp(found["now"], UTC)


def rows_seen(
    session: Statements,
    table: TableInfo,
    values: Sequence[str],
    column: str,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> Mapping[str, int]:
    """Rows that a reader sees, by `_partition_id` or `_part`, where `system.parts` counts deleted
    ones too. Reads only the masks."""
    if not values:
        return {}
    found = session.rows(
        f"SELECT {column} AS value, count() AS rows FROM {table.sql} "
        f"WHERE {column} IN ({', '.join(map(string, values))}) GROUP BY value",
        settings={"optimize_use_projections": "0", **settings},
        what=f"table {table}",
    )
    return {row["value"]: row["rows"] for row in found}


def partition_of(
    row: Mapping[str, Any], seen: Mapping[str, int], hashes: Sequence[str] | None
) -> PartitionInfo:
    """From a row as `partitions` asks for it, the rows that readers see where some are deleted, and the
    hashes of its parts; None for a table whose block numbers never begin again."""
    rows = seen.get(row["id"], 0) if row["has_deleted"] else row["physical_rows"]
    extent = Extent(
        min_block=row["min_block"], max_block=row["max_block"], mutation=row["mutation"], rows=rows
    )
    low, high = _times(row)
    return PartitionInfo(
        id=row["id"],
        value=row["value"],
        rows=rows,
        bytes=row["bytes"],
        parts=row["parts"],
        modified_at=datetime.fromtimestamp(row["modified"], UTC),
        min_block=row["min_block"],
        max_block=row["max_block"],
        mutation=row["mutation"],
        content=content_id([extent], _marks(row, hashes) if hashes is not None else ()),
        disks=tuple(sorted(row["disks"])),
        min_time=low,
        max_time=high,
    )


def _marks(row: Mapping[str, Any], hashes: Sequence[str]) -> list[PartMark]:
    places = zip(
        row["lows"], row["highs"], row["levels"], row["versions"], row["counts"], hashes, strict=True
    )
    return [
        PartMark(
            min_block=low,
            max_block=high,
            level=level,
            mutation=0 if version == low else version,
            rows=rows,
            hash=text,
        )
        for low, high, level, version, rows, text in places
    ]


def _file_hashes(paths: Sequence[str]) -> list[str]:
    """Of an embedded source, whose files are here."""
    return [file_hash(content_hash(Path(path))) for path in paths]


def _times(row: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """From the key's DateTime column, or its Date column; zero where it has neither."""
    if row["max_time"] > 0:
        return datetime.fromtimestamp(row["min_time"], UTC), datetime.fromtimestamp(row["max_time"], UTC)
    if row["max_day"] > 0:
        day = 86_400
        return (
            datetime.fromtimestamp(row["min_day"] * day, UTC),
            datetime.fromtimestamp((row["max_day"] + 1) * day - 1, UTC),
        )
    return None, None


def _key(name: str, by_name: Mapping[str, PartitionInfo]) -> str | None:
    """A value may be given with or without its quotes."""
    bare = unquote(name) if len(name) > 1 and name[0] == name[-1] == "'" else name
    return next((key for key in (name, string(name), bare) if key in by_name), None)


def _missing(
    view: View, table: TableInfo, absent: Sequence[str], known: Sequence[PartitionInfo]
) -> CalveError:
    some = ", ".join(partition.id for partition in known[:5]) + (", …" if len(known) > 5 else "")
    what = "partition" if len(absent) == 1 else "partitions"
    hint = f"it has {some}; see: {view.command_for(table)}" if known else "the table is empty"
    return NoPartitionError(
        f"table {table} has no {what} {', '.join(absent)}", code="no_partition", hint=hint
    )


def live_parts(
    session: Statements, table: TableInfo, partition_ids: Sequence[str] = (), names: Sequence[str] = ()
) -> tuple[PartPlan, ...]:
    """Active parts by partition and block; of some partitions, or those named, where given."""
    conditions = [
        "active",
        f"database = {string(table.database)}",
        f"table = {string(table.name)}",
        f"NOT startsWith(partition_id, {string(PATCH_PREFIX)})",
    ]
    if partition_ids:
        conditions.append(f"partition_id IN ({', '.join(map(string, partition_ids))})")
    if names:
        conditions.append(f"name IN ({', '.join(map(string, names))})")
    found = session.rows(
        "SELECT name, partition_id, rows, bytes_on_disk AS bytes, path, disk_name AS disk, "
        "min_block_number AS min_block, max_block_number AS max_block, level, data_version "
        f"FROM system.parts WHERE {' AND '.join(conditions)} ORDER BY partition_id, min_block_number, name",
        what=f"table {table}",
    )
    return tuple(PartPlan(**row) for row in found)


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
        found = find(view, table, names)
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
