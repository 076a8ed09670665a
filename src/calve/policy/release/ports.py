"""What a release asks of both sides, of the view over them, and of the store. Docstrings are obligations: every call may be
repeated after any crash, by any worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.obstacles import Obstacle
from calve.clickhouse.tier.quarantine import QuarantineAttempt, QuarantinePlace
from calve.destination.names import DestinationAddress
from calve.destination.proof import Scan
from calve.iceberg.released import ReleaseMark
from calve.model.change import Item
from calve.model.process import GuardedTable, Process, ProcessId
from calve.model.reach import Service
from calve.model.tier import Intent, Release
from calve.policy.release.plan import ReleasePlan, ReleaseRequest
from calve.policy.row_hash import RowSums


@dataclass(frozen=True, kw_only=True)
class SeenPartition:
    """The partition at its source, now."""

    table: TableInfo
    content: str  # "" where it is not there
    top: int = 0
    hashes: frozenset[str] = frozenset()
    twins: frozenset[str] = (
        frozenset()
    )  # hashes that several of its parts have: the same rows were inserted twice
    mutations: tuple[str, ...] = ()  # of the table, finished ones too
    number: int = 0  # the highest of all quarantines of the table
    obstacles: tuple[Obstacle, ...] = ()


class HotSide(Protocol):
    """The table, and the quarantine of an attempt, at every server of the source."""

    def look(self) -> SeenPartition: ...

    def prepare(self, attempt: QuarantineAttempt) -> None: ...  # these four: see `clickhouse.tier.quarantine`

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None: ...

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None: ...

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None: ...

    def thin(self, attempt: QuarantineAttempt, query_id: str) -> None:
        """Remove what the closed quarantine has and the table has too, file for file."""

    def remove(self, attempt: QuarantineAttempt, process_id: str, query_id: str) -> None:
        """Delete the quarantine, under a name that is the process's own."""

    def spare(self, attempt: QuarantineAttempt, process_id: str, query_ids: Sequence[str]) -> None:
        """From now on no `remove` of this process can delete it; those under way have ended."""

    def is_gone(self, attempt: QuarantineAttempt, process_id: str) -> bool:
        """Whether it is deleted at every server."""

    def misfits(self, attempt: QuarantineAttempt) -> tuple[str, ...]:
        """Columns without which the rows cannot come back."""

    def placements(self, attempt: QuarantineAttempt) -> list[QuarantinePlace]: ...  # one a server

    def held(self, attempt: QuarantineAttempt) -> RowSums:
        """Of the rows in quarantine."""

    def live(self, attempt: QuarantineAttempt) -> RowSums:
        """Of those that are back in the table; rows that came late do not count."""

    def content(self, attempt: QuarantineAttempt) -> str:
        """Their content id."""


class ColdSide(Protocol):
    """The lake's table."""

    def scan(self) -> Scan:
        """What reads the partition at main's head, now."""

    def is_marked(self, process_id: str) -> bool: ...

    def mark(self, process_id: str, mark: ReleaseMark, head: str) -> None: ...

    def unmark(self, process_id: str, content: str) -> None: ...


class ShownSide(Protocol):
    """The view over both sides, which reads the partition from one of them."""

    def turn(self, *, cold: bool) -> None: ...

    def older(self) -> str:
        """A query that may still read it from the other side; "" for none."""

    def differs(self, attempt: QuarantineAttempt) -> str:
        """Where the view's own cold relation has other rows than the quarantine; "" for nowhere."""


class ReleasePorts(Protocol):
    def survey(self, request: ReleaseRequest, process_id: ProcessId) -> ReleasePlan:
        """RefusedError, with every obstacle, for what may not leave its table."""

    def hot(self, plan: ReleasePlan) -> HotSide: ...

    def cold(self, plan: ReleasePlan) -> ColdSide: ...

    def shown(self, plan: ReleasePlan) -> ShownSide | None: ...  # None: the plan has no view

    def check_view(self, plan: ReleasePlan) -> None:
        """RefusedError where a view reads the partition from the table that the plan does not know."""

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        """Of the storage, for executors."""

    def now(self) -> datetime: ...  # the store's clock

    def check_backup(self, plan: ReleasePlan, release: Release, backup: str, *, read: bool) -> None:
        """RefusedError unless that backup has the quarantine, whole; with `read`, bit for bit. "" needs none."""

    def announce(self) -> None:
        """Say what this program's configuration says of policies."""

    def guard(self, table: GuardedTable) -> int: ...

    def releases(self, identity: str, destination: str) -> list[Release]: ...

    def intents(self, process_id: ProcessId) -> list[Intent]: ...

    def store_id(self) -> str: ...

    def journal(self, process: Process, *items: Item) -> None:
        """A fenced write: a worker that lost the process is refused."""

    def plan_of(self, process_id: ProcessId) -> ReleasePlan: ...

    def probe(self, service: Service, address: DestinationAddress) -> None: ...
