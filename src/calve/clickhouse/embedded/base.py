"""Sources that are read with an engine of ours, of today: nothing has to be asked for first.

Bases of `EmbeddedSource` and `EmbeddedSession`, and of whatever stands in for them: a visit alone
is enough to be a whole `Source`, statements alone are enough to be a whole `Session`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from calve.clickhouse import tables
from calve.clickhouse.parts import listing, partitions
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.pins import pin, shadow
from calve.clickhouse.pins.pin import Held, Wanted
from calve.clickhouse.source import Disk, Session
from calve.clickhouse.sql.table_name import TableName
from calve.clickhouse.tables import Mutation, TableInfo
from calve.model.plan import PartPlan

NO_SETTINGS: Mapping[str, str] = {}


class OwnEngineSession(ABC):
    """What today's engine says of its tables, by statements that the class over it sends."""

    embedded = True
    unfreezes_tables = True
    unfreezes_all = False  # switched off in an engine without a configuration file (tried: code 344)
    source: str
    configured_id: str | None
    patience_seconds: float

    @abstractmethod
    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]: ...

    @abstractmethod
    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None: ...

    @abstractmethod
    def disks(self) -> tuple[Disk, ...]: ...

    def describe(self, database: str, table: str) -> TableInfo:
        return tables.describe(self, database, table)

    def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return partitions.partitions(self, table)

    def parts(
        self, table: TableInfo, partition_ids: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[PartPlan, ...]:
        return listing.live_parts(self, table, partition_ids, names)

    def unfinished_mutations(self, table: TableName) -> tuple[Mutation, ...]:
        return tables.unfinished_mutations(self, table)

    def cannot_recompute(self) -> str:
        return ""

    def held_names(self) -> tuple[str, ...]:
        return shadow.names([disk.path for disk in self.disks()])

    def remarks(self) -> tuple[str, ...]:
        return ()


class OwnEngineSource(ABC):
    """Pins by FREEZE, taken and released in a visit; executors need its files and nothing else."""

    name: str

    @abstractmethod
    def visit(self) -> AbstractContextManager[Session]: ...

    def hold(self, wanted: Wanted, name: str) -> Held:
        with self.visit() as session:
            return pin.hold(session, wanted, name)

    def let_go(self, name: str, detail: str) -> None:
        # The visit waits for the folder: a FREEZE that a killed client left under way has ended by then.
        with self.visit() as session:
            pin.let_go(session, name, detail)

    def access(self) -> dict[str, str]:
        return {}
