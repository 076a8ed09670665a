"""The destination port: all that an export asks of the place it goes to.

Obligations that hold for every call:
- It may be repeated at any time, by any worker, after any crash: what is done already is found.
- Outages raise UnavailableError, a lost race TemporaryError. When the answer to a publish or a fence
  was lost, UnknownOutcomeError: it may have been applied, so nothing may be deleted or repeated
  until a later call has looked.
- What the process's plan says is what counts. The source is never asked.

`calve.testing.contracts.destination` is this page as tests; every implementation passes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, NestedField

from calve.destination.names import DestinationAddress
from calve.destination.outcome import (
    AlreadyExported,
    EarlierExport,
    PublishedSnapshot,
    PublishFenced,
    Undone,
    Verification,
)
from calve.destination.plan import DestinationPlan, ExportPlan
from calve.destination.receipt import Receipt
from calve.model.errors import RefusedError
from calve.objects.storage import Storage

if TYPE_CHECKING:
    from calve.destination.proof import Box, Scan


class FoundTable(ABC):
    """A destination as one look found it. Iceberg's schema, spec and sort order are the words for all
    forms."""

    @property
    @abstractmethod
    def uuid(self) -> str:
        """Another table of the same name has another one."""

    @property
    @abstractmethod
    def schema(self) -> Schema: ...

    @property
    @abstractmethod
    def spec(self) -> PartitionSpec: ...

    @property
    @abstractmethod
    def sort_order(self) -> SortOrder: ...

    @abstractmethod
    def find_export(self, key_hash: str) -> EarlierExport | None:
        """The last export of a key. RefusedError if it is there and cannot be read."""

    @abstractmethod
    def exports(self) -> Iterable[EarlierExport]:
        """The last export of every key, unreadable ones left out."""

    def released_exports(self) -> Iterable[EarlierExport]:
        """Those whose rows may be nowhere else, and those of which that is not known."""
        return [one for one in self.exports() if one.released]


@dataclass(frozen=True, kw_only=True)
class ExecutorAccess:
    """What an executor needs to reach the storage. Shipped, never stored or printed (P22)."""

    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    lending: Mapping[str, Any] = field(default_factory=dict, repr=False)  # to ask for new keys of `storage`


class Destination(ABC):
    """One table or folder. Opening it is cheap and connects to nothing."""

    address: DestinationAddress
    shares_commits: bool  # several partitions may be published by one process
    evolves: bool  # columns can be added to a table that exists
    tells_sort_order: bool  # sorted files may say so

    # -- before the plan ----------------------------------------------------------------------------

    @abstractmethod
    def find(self) -> FoundTable | None:
        """The destination as it is now; None where there is none yet."""

    @abstractmethod
    def create(self, schema: Schema, spec: PartitionSpec, sort_order: SortOrder) -> FoundTable:
        """Make it. If it exists by now, the one that exists: the caller compares, as with any it found."""

    def add_columns(self, table: FoundTable, columns: Sequence[tuple[str, IcebergType]]) -> FoundTable:
        """Add optional columns. To be written where `evolves` is true."""
        raise RefusedError(
            f"cannot add columns to {self.address}: it keeps the schema of its first export",
            code="evolve",
            hint="export into another place, or leave out the columns with --exclude",
        )

    def widen_columns(self, table: FoundTable, columns: Sequence[NestedField]) -> FoundTable:
        """Make columns wider, or optional, as given. To be written where `evolves` is true."""
        raise RefusedError(
            f"cannot widen columns of {self.address}: it keeps the schema of its first export",
            code="evolve",
            hint="export into another place, or leave out the columns with --exclude",
        )

    def rename_columns(self, table: FoundTable, renames: Mapping[str, str]) -> FoundTable:
        """Give columns other names, old to new; what was written stays theirs. To be written where `evolves`
        is true."""
        raise RefusedError(
            f"cannot rename columns of {self.address}: it keeps the schema of its first export",
            code="evolve",
            hint="export into another place",
        )

    @abstractmethod
    def describe(self, table: FoundTable) -> DestinationPlan:
        """The destination as a plan keeps it, without the SQL of its partition values. RefusedError for
        one that cannot be written."""

    @abstractmethod
    def check_writable(self, plan: ExportPlan) -> None:
        """PermanentError, before anything is read, where tasks could not leave their receipts."""

    # -- the publish --------------------------------------------------------------------------------

    @abstractmethod
    def publish(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        note: Callable[[str], None],
    ) -> PublishedSnapshot | AlreadyExported:
        """One attempt to make the receipts' files visible, all at once, or to find that it is done.

        `noted` is what earlier attempts noted, "" for nothing. `note` must have written before it
        returns and before anything is sent; if it raises, nothing is sent.
        """

    @abstractmethod
    def find_publish(self, process_id: str, plan: ExportPlan) -> PublishedSnapshot | None:
        """What the process has published, as far as a look shows it. Decides nothing: a catalog may lag behind."""

    @abstractmethod
    def fence(self, process_id: str, plan: ExportPlan, noted: str) -> PublishFenced | PublishedSnapshot:
        """After `PublishFenced`, no publish of this process can land, however late it arrives. A publish that
        had landed is found instead. Twice gives the same answer."""

    @abstractmethod
    def undo(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        noted: str,
        used: Sequence[Receipt] = (),
    ) -> Undone:
        """Fence if anything was noted, then delete the process's files that are proven unused. On any
        doubt they stay, and so does what `used` names, whatever a look shows."""

    @abstractmethod
    def remove_lost(self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Of a process that is published: delete its files that neither its receipts nor what is
        published name, and say which. TemporaryError where the publish is not seen."""

    @abstractmethod
    def files_of(self, process_id: str, plan: ExportPlan) -> tuple[str, ...]:
        """The process's data files that are there now, used or not."""

    @abstractmethod
    def verify(
        self, process_id: str, plan: ExportPlan, receipts: Sequence[Receipt], snapshot_id: str
    ) -> Verification:
        """Read what the process published and compare it with what its tasks read, by value.
        RefusedError where it can no longer be read."""

    @abstractmethod
    def scan(
        self,
        process_id: str,
        plan: ExportPlan,
        receipts: Sequence[Receipt],
        snapshot_id: str,
        boxes: "Sequence[Box]" = (),
    ) -> "Scan":
        """What reads the files of the receipts as they are shown now, and, where the destination can tell,
        everything else that is shown in the boxes. Without boxes, and where the files are no longer shown: what
        reads them as the process published them. RefusedError where none of it can be read."""

    # -- access -------------------------------------------------------------------------------------

    @abstractmethod
    def probe(self, process_id: str = "") -> None:
        """Return if it answers; with a process, only if the storage takes that process's writes too."""

    @abstractmethod
    def storage(self) -> Storage:
        """Where data files and receipts are."""

    @abstractmethod
    def executor_access(self) -> ExecutorAccess: ...


class Placement(Protocol):
    """Where a data file goes; needs nothing but the plan, so executors can ask it. A partition's value
    never chooses a path by itself (D10)."""

    def file(self, partition: Record | None, name: str) -> str:
        """The full URI; `partition` is None for an unpartitioned table."""


def write_probe(storage: Storage, uri: str) -> None:
    """Put an object and delete it. If the name is taken, a probe that died left it."""
    # If we die here, an empty object is left under the process's own name; its next probe deletes it.
    storage.put_if_absent(uri, b"")
    storage.delete([uri])
