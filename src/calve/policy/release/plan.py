"""A release: what was asked for, what is compared and moved, and what is journaled of the parts. Written once, never changed,
but for the journal."""

from dataclasses import dataclass, replace

from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.quarantine import QuarantineAttempt
from calve.destination.names import DestinationAddress
from calve.model.process import GuardedTable
from calve.model.record import Record
from calve.model.tier import Release
from calve.policy.partition import PartitionRequest
from calve.policy.proof.plan import ProofPlan, ProofRequest

NAME = "release"
BACK = "return"


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(PartitionRequest):
    """One partition of one table, whose export was proven. The hash is the policy's, as it was approved."""

    policy: str
    hash: str
    export: str  # the process
    identity: str
    storage: str = ""

    @property
    def address(self) -> DestinationAddress:
        return replace(super().address, storage=self.storage)

    @property
    def proof(self) -> ProofRequest:
        return self.proof_of(self.export)


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
        return GuardedTable(identity=self.request.identity, uuid=self.uuid, name=self.request.source_table)


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
