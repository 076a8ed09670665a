"""What every source has that is read with our own engine: its version and abilities are known.

`EmbeddedSource` and its session inherit these, and so do stand-ins in tests. A class that gives `visit`
becomes a whole `LiveSource`; one that gives statements becomes a whole `Session`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from calve.clickhouse import tables
from calve.clickhouse.parts import partitions
from calve.clickhouse.parts.content import content_hash, file_hash, parts_content
from calve.clickhouse.parts.links import LinkedPart
from calve.clickhouse.parts.partitions import PartitionInfo, clock
from calve.clickhouse.pins import freeze, pin, shadow
from calve.clickhouse.pins.pin import Pinned, PinRequest
from calve.clickhouse.reader import Reader, unknown_mode
from calve.clickhouse.source import Disk, Session
from calve.clickhouse.sql import filters
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import Mutation, TableInfo
from calve.destination.plan import PartPlan, Relation
from calve.model import reach
from calve.model.errors import RefusedError

NO_SETTINGS: Mapping[str, str] = {}


class EngineSession(ABC):
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
        return partitions.live_parts(self, table, partition_ids, names)

    def named_content(self, table: TableInfo, partition_id: str, names: Sequence[str]) -> str:
        parts = self.parts(table, [partition_id], names)
        return parts_content(file_hash(content_hash(Path(part.path))) for part in parts)

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
        return ""

    def buckets(self) -> Mapping[str, str]:
        return {}

    def link(self, table: TableInfo, partition_ids: Sequence[str], name: str) -> list[LinkedPart]:
        raise RefusedError(
            f"table {table} is in an embedded folder, whose parts are read as files", code="disk_not_linked"
        )

    def pin_names(self) -> tuple[str, ...]:
        return shadow.names([disk.path for disk in self.disks()])

    def remarks(self) -> tuple[str, ...]:
        return ()


class EngineSource(ABC):
    """Pins by FREEZE, taken and released in a visit; executors need its files and nothing else."""

    name: str
    immutable = False

    @property
    def need(self) -> str:
        return reach.source(self.name)

    @abstractmethod
    def visit(self) -> AbstractContextManager[Session]: ...

    def visits(self) -> Sequence[AbstractContextManager[Session]]:
        return [self.visit()]

    def establish(self) -> None:  # noqa: B027 - nothing to do where the folder is there
        """See `LiveSource`."""

    def pin(self, request: PinRequest, name: str) -> Pinned:
        with self.visit() as session:
            return pin.pin(session, request, name)

    def release(self, name: str, detail: str) -> None:
        # The visit waits for the folder: a FREEZE that a killed client left under way has ended by then.
        with self.visit() as session:
            pin.release(session, name, detail)

    def reader(self, relation: Relation) -> Reader:
        if relation.mode != pin.FROZEN:
            raise unknown_mode(relation.mode)
        return Reader(function=pin.FROZEN_READER)
