"""One task of a proof, on an executor: some files of the destination, read by PyIceberg, and their sums. It writes
nothing, so an attempt that is lost is made again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema

from calve.control.ports import TaskOrder
from calve.destination import checksums, file_io
from calve.destination.proof import Scan, batches, in_boxes, read_back
from calve.iceberg.errors import catalog_call
from calve.model.process import Process, Task
from calve.model.record import Record
from calve.policy.proof.plan import ProofPlan, ProofReceipt
from calve.policy.row_hash import HashedColumn, RowHash, RowSums
from calve.tasks import attempts

FUNCTION = "calve.policy.proof.task:run"


@dataclass(frozen=True, kw_only=True)
class ProofPayload(Record):
    """Holds the keys of the storage: shipped, never stored or printed (P22)."""

    place: str  # the catalog or folder, for errors
    scan: Scan  # its files are the task's
    schema: str
    columns: tuple[HashedColumn, ...] = ()
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


def lake_order(
    process: Process, plan: ProofPlan, task: Task, attempt: int, *, place: str, storage: Mapping[str, str]
) -> TaskOrder:
    """The files of one task."""
    payload = ProofPayload(
        place=place,
        scan=replace(plan.scan, files=plan.files(task.number)),
        schema=plan.schema,
        columns=plan.columns,
        storage=storage,
    )
    return attempts.order_for(process, task, attempt, function=FUNCTION, payload=payload.to_json())


def sums_of(receipts: Sequence[ProofReceipt]) -> tuple[RowSums, RowSums]:
    """Of all tasks: of rows in files of the export, and in other files."""
    own = sum((RowSums.parse(receipt.sums) for receipt in receipts), RowSums())
    return own, sum((RowSums.parse(receipt.others) for receipt in receipts), RowSums())


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    asked = ProofPayload.from_json(payload)
    return attempts.answer(read(asked), files=len(asked.scan.files))


def read(asked: ProofPayload) -> ProofReceipt:
    schema = Schema.model_validate_json(asked.schema)
    io = load_file_io(file_io.bounded(asked.storage), asked.scan.location)
    size = sum(file.bytes for file in asked.scan.files)
    watch = attempts.Stopwatch()
    with watch("read"), catalog_call(asked.place, f"reading files of {asked.scan.location}"):
        if not asked.columns:
            work = [file.task for file in asked.scan.files]
            rows, by_name = read_back(asked.scan.table, io, schema, work)
            found = {name: checksums.text(one) for name, one in by_name.items()}
            return ProofReceipt(rows=rows, bytes=size, checksums=found, spent=watch.spent)
        row_hash, table = RowHash(asked.columns, schema), asked.scan.table
        sums = {True: RowSums(), False: RowSums()}
        for file in asked.scan.files:
            fits = AlwaysTrue() if file.own else in_boxes(asked.scan.boxes, table.schema())
            for batch in batches(table, io, schema, [file.task], fits):
                sums[file.own] += row_hash.of_batch(batch)
    own, others = sums[True], sums[False]
    return ProofReceipt(
        rows=own.rows + others.rows, bytes=size, sums=str(own), others=str(others), spent=watch.spent
    )
