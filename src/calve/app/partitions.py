"""The partitions of a table, and what of them a destination has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from calve.app.destination import parse_destination
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.sql.tokens import TableName, string
from calve.destination.content import increments_by_input, unchanged
from calve.destination.names import DestinationAddress
from calve.destination.outcome import EarlierExport
from calve.destination.plan import PartPlan
from calve.export.request import ExportRequest, exported, key_hash, key_text

_WHOLE = ExportRequest(
    source="", database="", table="", catalog="", identifier=(), partitions=()
).selection  # of a whole partition
_PLAIN = re.compile(r"\w+\.\w+", re.ASCII)
_NOT_LISTED = ("system", "INFORMATION_SCHEMA", "information_schema", "calve_pins", "calve_restore")


class Exported(StrEnum):
    NO = "no"
    UNCHANGED = "unchanged"  # exported, and the source is as it was then
    CHANGED = "changed"  # exported, and the source has changed since
    MISSING = "missing"  # exported, and no longer there: rolled back or deleted in the lake (T11)
    GONE = "gone"  # exported, and the source has no such partition any more


@dataclass(frozen=True, kw_only=True)
class ListedPartition:
    partition: PartitionInfo
    exported: Exported | None = None  # None: no destination was named
    earlier: EarlierExport | None = None


def list_partitions(app: App, table_name: str, to: str = "") -> list[ListedPartition]:
    """With `to`, also what that destination has of each."""
    return compare(app, table_name, to)[0]


def list_tables(app: App, source_name: str) -> list[dict[str, Any]]:
    """Tables that have parts, the largest first. Sizes are those of active parts: servers of every age have them."""
    with app.source(source_name).visit() as session:
        tables = session.rows(
            "SELECT database, name, engine FROM system.tables WHERE engine LIKE '%MergeTree' "
            f"AND database NOT IN ({', '.join(map(string, _NOT_LISTED))})",
            what=f"source {source_name}",
        )
        parts = session.rows(
            "SELECT database, table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes, uniqExact(partition_id) AS partitions "
            "FROM system.parts WHERE active GROUP BY database, table",
            what=f"source {source_name}",
        )
    sizes = {(row["database"], row["table"]): row for row in parts}
    found = []
    for row in tables:
        size = sizes.get((row["database"], row["name"]), {})
        name = TableName(source=source_name, database=row["database"], table=row["name"])
        counts = {one: int(size.get(one, 0)) for one in ("rows", "bytes", "partitions")}
        # Of names that a catalog takes, too.
        plain = f"{name.database}.{name.table}" if _PLAIN.fullmatch(f"{name.database}.{name.table}") else ""
        found.append({"table": str(name), "plain": plain, "engine": row["engine"], **counts})
    return sorted(found, key=lambda one: (-one["bytes"], one["table"]))


def compare(app: App, table_name: str, to: str) -> tuple[list[ListedPartition], list[EarlierExport]]:
    """The partitions of the source, and whole ones that the destination has and the source no longer."""
    name = app.table(table_name)
    destination = parse_destination(to, app.config) if to else None
    source = app.source(name.source or app.config.default_source)
    with source.visit() as session:
        table = session.describe(name.database, name.table)
        found = session.partitions(table)
    if destination is None:
        return [ListedPartition(partition=partition) for partition in found], []
    return compared(app, table.identity, found, destination)


def list_parts(app: App, table_name: str) -> list[PartPlan]:
    """The parts that `--part` can name, as they are now."""
    name = app.table(table_name)
    source = app.source(name.source or app.config.default_source)
    with source.visit() as session:
        return list(session.parts(session.describe(name.database, name.table)))


def compared(
    app: App, identity: str, found: Sequence[PartitionInfo], destination: DestinationAddress
) -> tuple[list[ListedPartition], list[EarlierExport]]:
    """What a destination has of these partitions, and of those that the source has no longer."""
    table = app.destination(destination).find()
    if table is None:  # it does not exist yet, so it has nothing of any partition
        return [ListedPartition(partition=partition, exported=Exported.NO) for partition in found], []
    listed, exports = [], list(table.exports())
    increments = increments_by_input(exports)
    for partition in found:
        text = key_text(identity=identity, partition=partition.id, selection=_WHOLE, uuid=table.uuid)
        earlier = exported(table, key_hash(text), (identity, partition.id), increments)
        listed.append(
            ListedPartition(partition=partition, exported=_status(partition, earlier), earlier=earlier)
        )
    here = {partition.id for partition in found}
    gone = [
        one
        for one in exports
        if one.input[0] == identity
        and one.input[1] not in here
        and one.input[2] == _WHOLE
        and not one.missing
    ]
    return listed, gone


def _status(partition: PartitionInfo, earlier: EarlierExport | None) -> Exported:
    if earlier is None:
        return Exported.NO
    if earlier.missing:
        return Exported.MISSING
    if earlier.released and not partition.rows:
        return Exported.GONE  # MOVE leaves parts without rows for a while
    return Exported.UNCHANGED if unchanged(earlier.content, partition.content) else Exported.CHANGED
