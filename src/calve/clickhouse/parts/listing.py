"""The parts of a table as they are now, before anything is pinned: for looking, never for a plan (D6)."""

from collections.abc import Sequence

from calve.clickhouse.source import Statements
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import PATCH_PREFIX, TableInfo
from calve.model.plan import PartPlan


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
