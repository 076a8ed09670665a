"""Parts and partitions as a server of any age lists them, and which part of the source each part of a
clone is: a clone numbers its blocks anew, and only the source's own numbers show what changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calve.clickhouse.parts.content import PartFacts, server_hash
from calve.clickhouse.parts.partitions import MARKS, PartitionInfo, partition_of, rows_seen
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import PATCH_PREFIX, TableInfo
from calve.destination.content import PartMark
from calve.destination.plan import PartPlan
from calve.model.errors import TemporaryError


@dataclass(frozen=True, kw_only=True)
class ListedPart(PartFacts):
    """One part of a table or of a clone."""

    disk: str
    hash: str  # of all files; "" where the server has none
    modified: int = 0  # when it was written, in seconds
    masked: bool  # lightweight deletes left their mask
    active: bool
    uncompressed: int = 0  # bytes of all values

    @property
    def fingerprint(self) -> str:
        """What another part of the same name does not have."""
        return server_hash(self.hash, self.modified, self.bytes)

    @property
    def mark(self) -> PartMark:
        return self.mark_with(self.fingerprint)

    def plan_with(self, *, path: str = "", disk: str = "default", content: str) -> PartPlan:
        plan = super().plan_with(path=path, disk=disk, content=content)
        return replace(plan, uncompressed=self.uncompressed)


def table_condition(database: str, table: str) -> str:
    """The rows of `system.parts` that are data of a table: patch parts are not."""
    return (
        f"database = {string(database)} AND table = {string(table)} "
        f"AND NOT startsWith(partition_id, {string(PATCH_PREFIX)})"
    )


def listed_parts(
    session: ServerSession,
    database: str,
    table: str,
    partition_ids: Sequence[str] | None,
    *,
    inactive: bool = False,
) -> list[ListedPart]:
    """By partition and block; of all partitions for None. With `inactive` also those that a merge has
    just replaced."""
    if partition_ids is not None and not partition_ids:
        return []
    content = "hash_of_all_files" if session.has("parts", "hash_of_all_files") else "''"
    masked = "has_lightweight_delete" if session.has("parts", "has_lightweight_delete") else "0"
    disk = "disk_name" if session.has("parts", "disk_name") else "'default'"
    conditions = [table_condition(database, table)]
    if partition_ids is not None:
        conditions.append(f"partition_id IN ({', '.join(map(string, partition_ids))})")
    if not inactive:
        conditions.append("active")
    found = session.rows(
        "SELECT name, partition_id, rows, bytes_on_disk AS bytes, data_uncompressed_bytes AS uncompressed, "
        "min_block_number AS min_block, "
        "max_block_number AS max_block, toInt64(level) AS level, data_version, "
        "if(data_version = min_block_number, 0, data_version) AS mutation, "
        f"{disk} AS disk, {content} AS hash, toUnixTimestamp(modification_time) AS modified, "
        f"toUInt8({masked}) AS masked, toUInt8(active) AS active "
        f"FROM system.parts WHERE {' AND '.join(conditions)} ORDER BY partition_id, min_block_number, name",
        what=f"parts of {database}.{table}",
    )
    return [
        ListedPart(**row | {"masked": bool(row["masked"]), "active": bool(row["active"])}) for row in found
    ]


def part_columns(
    session: ServerSession, database: str, table: str, names: Sequence[str]
) -> dict[str, frozenset[str]]:
    """The columns that each part has values for itself; others get their defaults when read."""
    if not names:
        return {}
    found = session.rows(
        "SELECT name, groupArray(column) AS columns FROM system.parts_columns "
        f"WHERE active AND {table_condition(database, table)} "
        f"AND name IN ({', '.join(map(string, names))}) GROUP BY name"
    )
    return {row["name"]: frozenset(row["columns"]) for row in found}


def partitions(session: ServerSession, table: TableInfo) -> list[PartitionInfo]:
    """`Session.partitions` of a server."""
    deleted = "max(has_lightweight_delete)" if session.has("parts", "has_lightweight_delete") else "0"
    disks = "groupUniqArray(disk_name)" if session.has("parts", "disk_name") else "['default']"
    hashes = "hash_of_all_files" if session.has("parts", "hash_of_all_files") else "''"
    found = session.rows(
        "SELECT partition_id AS id, any(partition) AS value, sum(rows) AS physical_rows, "
        "sum(bytes_on_disk) AS bytes, count() AS parts, toUnixTimestamp(max(modification_time)) AS modified, "
        "min(min_block_number) AS min_block, max(max_block_number) AS max_block, "
        "max(if(data_version = min_block_number, 0, data_version)) AS mutation, "
        f"{deleted} AS has_deleted, {disks} AS disks, {MARKS}, groupArray({hashes}) AS hashes, "
        "groupArray(toUnixTimestamp(modification_time)) AS times, groupArray(bytes_on_disk) AS sizes, "
        "toUnixTimestamp(min(min_time)) AS min_time, toUnixTimestamp(max(max_time)) AS max_time, "
        "min(toUInt32(min_date)) AS min_day, max(toUInt32(max_date)) AS max_day "
        f"FROM system.parts WHERE active AND {table_condition(table.database, table.name)} "
        "GROUP BY partition_id ORDER BY partition_id",
        what=f"table {table}",
    )
    masked = [row["id"] for row in found if row["has_deleted"]]
    seen = rows_seen(session, table, masked, "_partition_id")
    return [partition_of(row, seen, None if table.clause.replicated else _fingerprints(row)) for row in found]


def _fingerprints(row: Mapping[str, Any]) -> list[str]:
    """Of the parts of a partition, as `ListedPart.fingerprint` has them."""
    return [server_hash(*one) for one in zip(row["hashes"], row["times"], row["sizes"], strict=True)]


def live_parts(
    session: ServerSession, table: TableInfo, partition_ids: Sequence[str], names: Sequence[str]
) -> tuple[PartPlan, ...]:
    """`Session.parts` of a server."""
    found = listed_parts(session, table.database, table.name, partition_ids or None)
    return tuple(
        part.plan_with(disk=part.disk, content=part.fingerprint)
        for part in found
        if not names or part.name in names
    )


def matched(
    table: TableInfo, before: Sequence[ListedPart], after: Sequence[ListedPart], cloned: Sequence[ListedPart]
) -> list[tuple[ListedPart, ListedPart]]:
    """Each part of the clone with its origin. A merge meanwhile is seen by the parts it left inactive;
    what cannot be told apart is tried again under a new name."""
    if not any(part.hash for part in cloned) and _active(before) != _active(after):
        raise _moving(table)
    candidates: dict[tuple[object, ...], dict[str, ListedPart]] = {}
    for part in (*before, *after):
        candidates.setdefault(_likeness(part), {})[part.name] = part
    pairs = []
    for part in cloned:
        alike = candidates.get(_likeness(part))
        if not alike:
            raise _moving(table)
        # Equal parts are equal in all that matters, except for their blocks: taken in order.
        pairs.append(
            (part, alike.pop(min(alike, key=lambda name: (not alike[name].active, alike[name].min_block))))
        )
    if _active(before) == _active(after) and len(cloned) != len(_active(after)):
        raise _moving(table)
    return pairs


def _likeness(part: ListedPart) -> tuple[object, ...]:
    return part.partition_id, part.rows, part.hash or part.bytes


def _active(parts: Sequence[ListedPart]) -> Counter[str]:
    return Counter(part.name for part in parts if part.active)


def _moving(table: TableInfo) -> TemporaryError:
    return TemporaryError(
        f"table {table} changed at the moment it was pinned, so what the pin holds cannot be named",
        code="altered_meanwhile",
        hint="Calve retries; a partition under constant change is best exported when it is quiet",
    )
