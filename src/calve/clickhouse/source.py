"""What the rest of Calve asks of a ClickHouse source, embedded or a server.

A visit is a short, bounded time at the source. Every call is bounded by a timeout of its
own, raises only `CalveError`s, and touches nothing but what its statement says. What differs
between an engine of ours and a server of any age stands behind `Session` and `Source`: nobody
else asks which of them it has.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from calve.model.plan import PartPlan

if TYPE_CHECKING:  # they are made of statements, so their modules need this one
    from calve.clickhouse.parts.partitions import PartitionInfo
    from calve.clickhouse.pins.pin import Held, Wanted
    from calve.clickhouse.sql.table_name import TableName
    from calve.clickhouse.tables import Mutation, TableInfo


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk of the source that this machine sees as a folder."""

    name: str
    path: Path


class Statements(Protocol):
    """Statements to a source. From one thread at a time."""

    source: str  # the name in the configuration
    configured_id: str | None  # an identity given by the user, in place of the derived one
    embedded: bool  # while inside, nobody else changes anything there
    patience_seconds: float  # how long one thing at the source may take

    def rows(
        self, sql: str, settings: Mapping[str, str] = ..., what: str = ..., seconds: float | None = None
    ) -> list[dict[str, Any]]:
        """The rows of a query, exact. `what` names the object in an error's message."""

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] = ...,
        what: str = ...,
        seconds: float | None = None,
        query_id: str = ...,
    ) -> None:
        """A statement for its effect. When this returns or raises, it is no longer under way. One that
        outlives its client at a server is found by its `query_id`."""

    def disks(self) -> tuple[Disk, ...]:
        """The disks whose files can be read and removed from here."""


class Session(Statements, Protocol):
    """One visit: statements, and what the source says of its tables, whatever its age."""

    @property
    def unfreezes_tables(self) -> bool:
        """Whether it has ALTER TABLE … UNFREEZE."""

    @property
    def unfreezes_all(self) -> bool:
        """Whether it may have SYSTEM UNFREEZE, which needs no table."""

    def describe(self, database: str, table: str) -> "TableInfo":
        """All that planning needs. NotFoundError for no such table, RefusedError for one without parts."""

    def partitions(self, table: "TableInfo") -> "list[PartitionInfo]":
        """All partitions with active parts, by id, as they are now."""

    def parts(
        self, table: "TableInfo", partition_ids: Sequence[str] = ..., names: Sequence[str] = ...
    ) -> tuple[PartPlan, ...]:
        """Active parts by partition and block; of some partitions, or those named, where given. For
        looking, never for a plan (D6)."""

    def unfinished_mutations(self, table: "TableName") -> "tuple[Mutation, ...]":
        """Mutations that some part has not seen. Killed ones will never be applied and do not count."""

    def cannot_recompute(self) -> str:
        """Why the source cannot itself compute what executors compute of its rows; "" when it can."""

    def held_names(self) -> tuple[str, ...]:
        """The pins at the source that bear a name of ours, whoever took them."""

    def remarks(self) -> tuple[str, ...]:
        """What a person should know of this source before exporting from it."""


class Source(Protocol):
    """One entry of `[source.…]`."""

    name: str

    def visit(self) -> AbstractContextManager[Session]:
        """Go there. `SourceBusyError` when an embedded source stays open elsewhere."""

    def hold(self, wanted: "Wanted", name: str) -> "Held":
        """Take the pin `name`, once, and describe what it holds."""

    def let_go(self, name: str, detail: str) -> None:
        """Release a pin that may or may not have been taken, whose table may be gone. `detail` is what
        its journal entry keeps, "" where nothing. Twice is harmless."""

    def access(self) -> dict[str, str]:
        """What executors need to read from it over the network. Secret: shipped, never stored."""
