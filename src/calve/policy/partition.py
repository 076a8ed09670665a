"""What is asked of one partition of a table and of the lake table that it was exported to."""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.clickhouse.sql.tokens import TableName
from calve.destination.names import DestinationAddress
from calve.model.process import Lock, NewProcess, new_process_id
from calve.model.record import Record
from calve.policy.proof.plan import ProofRequest


@dataclass(frozen=True, kw_only=True)
class PartitionRequest(Record):
    source: str  # in the configuration
    database: str
    table: str
    partition: str
    destination: str  # as processes name it
    catalog: str
    identifier: tuple[str, ...]

    @property
    def address(self) -> DestinationAddress:
        return DestinationAddress(catalog=self.catalog, identifier=self.identifier)

    @property
    def name(self) -> TableName:
        return TableName(source=self.source, database=self.database, table=self.table)

    @property
    def source_table(self) -> str:
        """As processes and holds name it: never in backquotes."""
        return f"{self.source}:{self.database}.{self.table}"

    def proof_of(self, export: str) -> ProofRequest:
        address = self.address
        return ProofRequest(
            export=export,
            source=self.source,
            database=self.database,
            table=self.table,
            catalog=address.catalog,
            identifier=address.identifier,
            storage=address.storage,
        )

    def process(
        self, kind: str, *, needs: Sequence[str], locks: Sequence[str], deadline_seconds: float
    ) -> NewProcess:
        """With the locks of an export of the partition: neither begins while the other is under way."""
        return NewProcess(
            id=new_process_id(),
            kind=kind,
            source=self.source_table,
            destination=self.destination,
            lane=self.address.lane,
            needs=(*self.address.needs, *needs),
            request=self.to_json(),
            partitions=(self.partition,),
            locks=tuple(Lock(name=name, partition=self.partition) for name in locks),
            deadline_seconds=deadline_seconds,
        )
