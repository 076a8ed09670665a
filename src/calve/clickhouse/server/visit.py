"""A visit to one replica as the rest of Calve sees it: `Session` for servers old and new."""

from collections.abc import Sequence
from datetime import datetime

from calve.clickhouse.parts.content import parts_content
from calve.clickhouse.parts.links import LinkedPart
from calve.clickhouse.parts.partitions import PartitionInfo, clock
from calve.clickhouse.pins import freeze, shadow
from calve.clickhouse.server import clone, links, parts, tables
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql import filters
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import Mutation, TableInfo
from calve.destination.plan import PartPlan


class ServerVisit(ServerSession):
    """See `clickhouse.source.Session` for what each call promises."""

    @property
    def unfreezes_tables(self) -> bool:
        return self.features.table_unfreeze

    @property
    def unfreezes_all(self) -> bool:
        return self.features.system_unfreeze

    def describe(self, database: str, table: str) -> TableInfo:
        return tables.describe(self, database, table)

    def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return parts.partitions(self, table)

    def parts(
        self, table: TableInfo, partition_ids: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[PartPlan, ...]:
        return parts.live_parts(self, table, partition_ids, names)

    def named_content(self, table: TableInfo, partition_id: str, names: Sequence[str]) -> str:
        """By the server's own hashes."""
        return parts_content(part.content for part in self.parts(table, [partition_id], names))

    def refuse_unfinished(
        self, table: TableInfo, partition_ids: Sequence[str] = (), *, ignore: bool
    ) -> tuple[str, ...]:
        return freeze.refuse_unfinished(self, table, partition_ids, ignore=ignore)

    def check_where(self, table: TableInfo, where: str) -> None:
        filters.check_at_source(self, table, where)

    def now(self) -> datetime:
        return clock(self)

    def command_for(self, table: TableInfo) -> str:
        return f"calve partitions '{table}'"

    def unfinished_mutations(self, table: TableName) -> tuple[Mutation, ...]:
        return tables.unfinished_mutations(self, table)

    def cannot_recompute(self) -> str:
        """Checksums are computed by functions of today, in the zone and by the rules of the export."""
        if not self.features.session_timezone:
            return f"ClickHouse {self.version} lacks the functions and settings (from 23.6 on it has them)"
        if self.read_only:
            return "its user may give no settings with a query"
        return ""

    def link(self, table: TableInfo, partition_ids: Sequence[str], name: str) -> list[LinkedPart]:
        return links.link(self, table, partition_ids, name)

    def pin_names(self) -> tuple[str, ...]:
        cloned = {name for name in clone.names(self) if shadow.is_ours(name)}
        return tuple(sorted(cloned.union(shadow.names([disk.path for disk in self.disks()]))))

    def remarks(self) -> tuple[str, ...]:
        self.has("tables")  # an error where the user is not shown what every command asks for
        alone = ("its user may only read, so nothing holds parts still during an export",)
        return self.features.lacking() + (alone if self.read_only else ())
