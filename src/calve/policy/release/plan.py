"""A release: what was asked for, what is compared and moved, and what is journaled of the parts. Written once, never changed,
but for the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.quarantine import QuarantineAttempt
from calve.destination.names import DestinationAddress
from calve.model.process import GuardedTable, Lock, NewProcess, new_process_id
from calve.model.record import Record
from calve.model.tier import Release
from calve.policy.proof.plan import ProofPlan, ProofRequest

NAME = "release"
BACK = "return"


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(Record):
    """One partition of one table, whose export was proven. The hash is the policy's, as it was approved."""

    policy: str
    hash: str
    export: str  # the process
    source: str  # in the configuration
    database: str
    table: str
    identity: str
    partition: str
    destination: str  # as processes name it
    catalog: str
    identifier: tuple[str, ...]
    storage: str = ""

    @property
    def address(self) -> DestinationAddress:
        return DestinationAddress(catalog=self.catalog, identifier=self.identifier, storage=self.storage)

    @property
    def name(self) -> TableName:
        return TableName(source=self.source, database=self.database, table=self.table)

    @property
    def proof(self) -> ProofRequest:
        return ProofRequest(
            export=self.export,
            source=self.source,
            database=self.database,
            table=self.table,
            catalog=self.catalog,
            identifier=self.identifier,
            storage=self.storage,
        )

    def process(
        self, *, needs: Sequence[str], locks: Sequence[str], deadline_seconds: float, kind: str = NAME
    ) -> NewProcess:
        """With the locks of an export of the partition: neither begins while the other is under way."""
        return NewProcess(
            id=new_process_id(),
            kind=kind,
            source=str(self.name),
            destination=self.destination,
            lane=self.address.lane,
            needs=(*self.address.needs, *needs),
            request=self.to_json(),
            partitions=(self.partition,),
            locks=tuple(Lock(name=name, partition=self.partition) for name in locks),
            deadline_seconds=deadline_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class ReleasePlan(Record):
    process_id: str
    request: ReleaseRequest
    uuid: str  # of the source's table
    lake_uuid: str
    key_hash: str
    input: tuple[str, str, str]  # source identity, partition, selection
    content: str  # of the partition, when it was exported
    view: str  # over both, to be turned; "": there is none, or it reads the lake already
    proof: ProofPlan  # what is read of the lake

    @property
    def guarded(self) -> GuardedTable:
        return GuardedTable(identity=self.request.identity, uuid=self.uuid, name=str(self.request.name))


@dataclass(frozen=True, kw_only=True)
class ReleaseJournal(Record):
    """What tells the parts of an attempt from all others, from before it was announced."""

    top: int
    hashes: tuple[str, ...]
    mutations: tuple[str, ...]  # of the table: later ones came after the move
    twins: tuple[str, ...] = ()  # hashes that several parts had
    back_top: int = -1  # the highest block of the partition when its move back was announced; -1: it was not

    def attempt(self, table: TableInfo, release: Release) -> QuarantineAttempt:
        return QuarantineAttempt(
            table=table,
            partition=release.partition,
            number=release.attempt,
            process=release.process_id,
            top=self.top,
            hashes=frozenset(self.hashes),
        )
