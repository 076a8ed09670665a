"""The partitions and parts of a server's table as they are now, whatever the server's age."""

from collections.abc import Mapping, Sequence
from typing import Any

from calve.clickhouse.parts.content import server_hash
from calve.clickhouse.parts.partitions import MARKS, PartitionInfo, partition_of, rows_seen
from calve.clickhouse.server.parts import listed_parts, table_condition
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.tables import TableInfo
from calve.model.plan import PartPlan


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
