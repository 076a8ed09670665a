"""The partitions of a server's table as they are now, whatever the server's age."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from calve.source.content import Extent, content_id
from calve.source.partitions import PartitionInfo, rows_seen
from calve.source.server.parts import table_condition
from calve.source.server.session import ServerSession
from calve.source.tables import TableInfo


def partitions(session: ServerSession, table: TableInfo) -> list[PartitionInfo]:
    """All partitions with active parts, by id. Patch parts belong to none."""
    deleted = "max(has_lightweight_delete)" if session.has("parts", "has_lightweight_delete") else "0"
    disks = "groupUniqArray(disk_name)" if session.has("parts", "disk_name") else "['default']"
    found = session.rows(
        "SELECT partition_id AS id, any(partition) AS value, sum(rows) AS physical_rows, "
        "sum(bytes_on_disk) AS bytes, count() AS parts, toUnixTimestamp(max(modification_time)) AS modified, "
        "min(min_block_number) AS min_block, max(max_block_number) AS max_block, "
        "max(if(data_version = min_block_number, 0, data_version)) AS mutation, "
        f"{deleted} AS has_deleted, {disks} AS disks, "
        "toUnixTimestamp(min(min_time)) AS min_time, toUnixTimestamp(max(max_time)) AS max_time "
        f"FROM system.parts WHERE active AND {table_condition(table.database, table.name)} "
        "GROUP BY partition_id ORDER BY partition_id",
        what=f"table {table}",
    )
    masked = [row["id"] for row in found if row["has_deleted"]]
    seen = rows_seen(session, table, masked, "_partition_id")
    return [_partition(row, seen) for row in found]


def _partition(row: Mapping[str, Any], seen: Mapping[str, int]) -> PartitionInfo:
    rows = seen.get(row["id"], 0) if row["has_deleted"] else row["physical_rows"]
    extent = Extent(
        min_block=row["min_block"], max_block=row["max_block"], mutation=row["mutation"], rows=rows
    )
    timed = row["max_time"] > 0
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
        content=content_id([extent]),
        disks=tuple(sorted(_texts(row["disks"]))),
        min_time=datetime.fromtimestamp(row["min_time"], UTC) if timed else None,
        max_time=datetime.fromtimestamp(row["max_time"], UTC) if timed else None,
    )


def _texts(values: Sequence[str]) -> list[str]:
    return [str(value) for value in values]
