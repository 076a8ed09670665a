"""The Source port: what the rest of Calve asks of whatever holds MergeTree tables.

Embedded folders, servers of any age and backups implement it. A visit is a short, bounded time at the
source. Every call has a timeout of its own, raises only `CalveError`s and does what it says and no
more. What differs between sources is behind these protocols: no caller asks which one it has.
`calve.testing.contracts.source` tests the obligations stated here.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from calve.clickhouse.reader import Reader
from calve.destination.plan import PartPlan, Relation

if TYPE_CHECKING:  # they are made of statements, so their modules need this one
    from calve.clickhouse.parts.links import LinkedPart
    from calve.clickhouse.parts.partitions import PartitionInfo
    from calve.clickhouse.pins.pin import Pinned, PinRequest
    from calve.clickhouse.sql.tokens import TableName
    from calve.clickhouse.tables import Mutation, TableInfo


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk of the source that this machine sees as a folder."""

    name: str
    path: Path


class View(Protocol):
    """What a source says of its tables, in one visit. For looking; a plan is made from a pin (D6)."""

    embedded: bool  # no server: executors compute everything, and nobody changes anything meanwhile

    def describe(self, database: str, table: str) -> "TableInfo":
        """All that planning needs. NotFoundError for no such table, RefusedError for one without parts."""

    def partitions(self, table: "TableInfo") -> "list[PartitionInfo]":
        """All partitions with active parts, by id, as they are now."""

    def parts(
        self, table: "TableInfo", partition_ids: Sequence[str] = ..., names: Sequence[str] = ...
    ) -> tuple[PartPlan, ...]:
        """Active parts by partition and block; of some partitions, or those named, where given."""

    def named_content(self, table: "TableInfo", partition_id: str, names: Sequence[str]) -> str:
        """The content id of those of the named parts that are in a partition; "" where it is unknown."""

    def refuse_unfinished(
        self, table: "TableInfo", partition_ids: Sequence[str] = ..., *, ignore: bool
    ) -> tuple[str, ...]:
        """RefusedError over changes that some part, of these partitions where given, does not show yet (W6,
        W7, P12). With `ignore`, those that change rows alone are allowed, and the notes say so."""

    def check_where(self, table: "TableInfo", where: str) -> None:
        """UsageError where the source cannot compute the condition."""

    def now(self) -> datetime:
        """By the clock that the ages of its partitions are measured with."""

    def remarks(self) -> tuple[str, ...]:
        """What a person should know of this source before exporting from it."""

    def command_for(self, table: "TableInfo") -> str:
        """The command that shows the table's partitions and parts, for hints."""


class Statements(Protocol):
    """Statements to a source. From one thread at a time."""

    source: str  # the name in the configuration
    configured_id: str | None  # an identity given by the user, in place of the derived one
    embedded: bool  # see `View`
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


class Session(View, Statements, Protocol):
    """A visit to a running ClickHouse, embedded or a server, whatever its age."""

    @property
    def unfreezes_tables(self) -> bool:
        """Whether it has ALTER TABLE … UNFREEZE."""

    @property
    def unfreezes_all(self) -> bool:
        """Whether it may have SYSTEM UNFREEZE, which needs no table."""

    def unfinished_mutations(self, table: "TableName") -> "tuple[Mutation, ...]":
        """Mutations that some part has not seen. Killed ones will never be applied and do not count."""

    def cannot_recompute(self) -> str:
        """Why the source cannot itself compute what executors compute of its rows; "" when it can."""

    def buckets(self) -> Mapping[str, str]:
        """Where the objects of its disks in object storage are, by disk, as far as the configuration says."""

    def link(self, table: "TableInfo", partition_ids: Sequence[str], name: str) -> "list[LinkedPart]":
        """Take the pin `name` over whole partitions by links of the source's own, once, and say where the files
        of its parts are: for disks whose files cannot be seen. RefusedError where there are no such links."""

    def pin_names(self) -> tuple[str, ...]:
        """The pins at the source that bear a name of ours, of any worker."""


class Source(Protocol):
    """Something to export from."""

    name: str  # in errors and plans
    immutable: bool  # nothing in it ever changes: it is pinned without a journal entry, when planning

    @property
    def need(self) -> str:
        """What a worker's configuration must reach, as processes name it: "source:main"."""

    def visit(self) -> AbstractContextManager[View]:
        """Go there. `SourceBusyError` when an embedded source stays open elsewhere."""

    def pin(self, request: "PinRequest", name: str) -> "Pinned":
        """Take the pin `name`, once, and describe what it holds. Rows of the described parts stay as they
        are until the release; nothing later asks the source what it has. If this raises, a part of the
        pin may be there: it is released like any other."""

    def release(self, name: str, detail: str) -> None:
        """Release a pin that may or may not have been taken, whose table may be gone. `detail` is what
        its journal entry keeps, "" where nothing. Twice is harmless."""

    def reader(self, relation: Relation) -> Reader:
        """What reads a relation of this source's pins on an executor. PermanentError (`relation_mode`)
        for a mode of reading that this source does not have."""


class LiveSource(Source, Protocol):
    """One entry of `[source.…]`: a source that takes statements too."""

    def establish(self) -> None:
        """Before a restore, which fills it: a data folder that is missing or empty is made."""
        ...

    def visit(self) -> AbstractContextManager[Session]: ...

    def visits(self) -> Sequence[AbstractContextManager[Session]]:
        """One visit to each of its servers, to be entered one after another: for what each must have."""
        ...
