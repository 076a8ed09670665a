"""A partition that comes back from the lake: what was asked for, what is read and compared, and how far a try came."""

from dataclasses import dataclass
from typing import Protocol

from calve.destination.names import DestinationAddress
from calve.model.process import ProcessId
from calve.model.reach import Service
from calve.model.record import Record
from calve.policy.partition import PartitionRequest
from calve.policy.proof.plan import ProofPlan
from calve.policy.row_hash import RowSums

NAME = "untier"


class UntierRequest(PartitionRequest):
    """A partition that the table no longer has."""


@dataclass(frozen=True, kw_only=True)
class UntierPlan(Record):
    process_id: str
    request: UntierRequest
    uuid: str  # of the source's table
    identity: str
    create_query: str  # as it was when the columns were compared
    lake_uuid: str
    key_hash: str
    content: str  # that the lake remembers of the partition, before it is back
    rows: int
    value: str  # of the partition
    proof: ProofPlan  # what is read of the lake


@dataclass(frozen=True, kw_only=True)
class UntierJournal(Record):
    """Noted before each step that somebody else must know of."""

    scratch: str
    moving: bool = False  # its parts may be in the table
    hashes: tuple[str, ...] = ()  # of those parts


class UntierSides(Protocol):
    """The table and the lake table of one plan. Each call may be repeated after any crash, by any worker."""

    def refuse(self) -> None:
        """RefusedError where the table is another one, or has rows of the partition, or the lake has others."""

    def hold(self) -> None:
        """From now on no policy takes the partition out again."""

    def unhold(self) -> None: ...

    def scratches(self) -> list[str]: ...

    def fill(self, scratch: str) -> None:
        """From the lake, as it is now."""

    def sums(self, scratch: str) -> RowSums:
        """Of all of its rows."""

    def hashes(self, scratch: str) -> frozenset[str]: ...

    def move(self, scratch: str) -> None: ...

    def close(self, scratch: str) -> None: ...

    def has_arrived(self, scratch: str) -> bool:
        """Of one that was moving: whether its rows are in the table. One that is gone was dropped after that."""

    def settle(self, hashes: frozenset[str]) -> None:
        """The lake no longer has the only copy, and remembers what the table has now."""

    def turn(self) -> None:
        """A view reads the partition from the table."""

    def drop(self, scratch: str) -> None: ...


class UntierPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    def survey(self, request: UntierRequest, process_id: ProcessId) -> UntierPlan: ...

    def sides(self, plan: UntierPlan, process_id: ProcessId) -> UntierSides: ...

    def keys(self, address: DestinationAddress) -> dict[str, str]:
        """Of the lake's storage, for executors."""

    def probe(self, service: Service, address: DestinationAddress) -> None: ...
