"""Parts as `system.parts` lists them, whatever the server's age."""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.clickhouse.parts.content import server_hash
from calve.clickhouse.parts.part_facts import PartFacts
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import PATCH_PREFIX
from calve.model.content import PartMark


@dataclass(frozen=True, kw_only=True)
class ListedPart(PartFacts):
    """One part of a table or of a clone."""

    disk: str
    hash: str  # of all files; "" where the server has none
    modified: int = 0  # when it was written, in seconds
    masked: bool  # lightweight deletes left their mask
    active: bool

    @property
    def fingerprint(self) -> str:
        """What another part of the same name does not have."""
        return server_hash(self.hash, self.modified, self.bytes)

    @property
    def mark(self) -> PartMark:
        return self.mark_with(self.fingerprint)


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
        "SELECT name, partition_id, rows, bytes_on_disk AS bytes, min_block_number AS min_block, "
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
