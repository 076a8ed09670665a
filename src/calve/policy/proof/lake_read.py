"""What the tasks of a process read of the lake's rows of one partition, and whether the lake still has exactly that."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema

from calve.control.kind import Kind
from calve.control.ports import TaskOrder, TaskResult
from calve.destination.names import DestinationAddress
from calve.destination.proof import Scan
from calve.model.errors import PermanentError, RefusedError
from calve.model.process import Process, Task
from calve.policy.proof.plan import ProofPlan, ProofReceipt
from calve.policy.proof.task import lake_order, sums_of
from calve.policy.release.ports import ColdSide
from calve.policy.row_hash import RowSums


@dataclass(frozen=True, kw_only=True)
class LakeRead:
    """Files do not change, so equal lists of files have equal rows: what was read is what a reader of the newest snapshot sees."""

    proof: ProofPlan  # what was read
    where: str  # for people: the destination and the partition

    def sums(self, receipts: Sequence[str]) -> RowSums:
        """RefusedError where rows of others are among them."""
        own, others = sums_of([ProofReceipt.from_json(text) for text in receipts])
        if self.proof.scan.whole and others.rows:
            raise RefusedError(
                f"{self.where}: {others.rows} rows of others lie in the same time range, so its own cannot be told apart",
                code="rows_of_others",
                hint="export into a table of its own",
            )
        return own if self.proof.scan.whole else others

    def same(self, cold: ColdSide) -> Scan:
        """PermanentError where the newest snapshot has other files, or other columns."""
        scan = cold.scan()
        now = {field.field_id: field.field_type for field in scan.table.schema().fields}
        compared = Schema.model_validate_json(self.proof.schema).fields
        same = all(now.get(field.field_id) == field.field_type for field in compared)
        if not same or (set(scan.files), scan.whole) != (set(self.proof.scan.files), self.proof.scan.whole):
            raise PermanentError(
                f"{self.where}: its files are no longer those that were compared",
                code="lake_changed",
                hint="it was rewritten in the meantime; it will be retried, or run the command again",
            )
        return scan


class LakeReader(Kind):
    """A kind whose tasks read the lake and write nothing: an attempt whose answer was lost is made again."""

    @abstractmethod
    def lake(self, process: Process, plan: str) -> tuple[ProofPlan, DestinationAddress]:
        """What its tasks read, and where."""

    @abstractmethod
    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        """Of the lake's storage, for executors."""

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        proof, address = self.lake(process, plan)
        return lake_order(process, proof, task, attempt, place=address.catalog, storage=self.keys(address))

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        return None
