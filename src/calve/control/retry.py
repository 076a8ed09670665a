"""Running an ended process again: a new process under the same locks that adopts what still stands.

Adopting the old files and deleting them are two transitions out of KEPT, made by the store in the
transaction that accepts the retry: one winner (D3).
"""

from calve.control.ports import Store
from calve.model.errors import Outcome, RefusedError
from calve.model.ids import BatchId, ProcessId, new_process_id
from calve.model.process import NewProcess, Process
from calve.model.states import PROCESS_TERMINAL, ProcessState


def retry(store: Store, process_id: ProcessId, *, batch: BatchId | None = None) -> Process:
    """Submit the same request again. RefusedError if it completed, has not ended, or may yet turn
    out to have been published."""
    old = store.process(process_id)
    _check(old)
    new = NewProcess(
        id=new_process_id(),
        kind=old.kind,
        source=old.source,
        destination=old.destination,
        lane=old.lane,
        needs=old.needs,
        request=old.request,
        partitions=old.partitions,
        locks=old.locks,
        batch=batch,
        priority=old.priority,
        deadline_seconds=(old.deadline_at - old.created_at).total_seconds(),
        retry_of=old.id,
    )
    # if we die here, the new process is accepted or not; a live one under the same lock refuses a second
    (accepted,) = store.submit([new])
    return accepted


def _check(old: Process) -> None:
    if old.state is ProcessState.COMPLETED:
        raise RefusedError(
            f"process {old.id} is COMPLETED; there is nothing to retry",
            code="completed",
            hint=f"calve show {old.id}",
        )
    if old.state not in PROCESS_TERMINAL:
        raise RefusedError(
            f"process {old.id} has not ended: it is {old.state}",
            code="not_ended",
            hint=f"calve wait {old.id}, or calve cancel {old.id}",
        )
    if old.error is not None and old.error.outcome is Outcome.UNKNOWN:
        raise RefusedError(
            f"it is not known yet whether process {old.id} was published: {old.error.message}",
            code="outcome_unknown",
            hint=f"calve why {old.id}; a worker looks for it as soon as {old.destination} answers",
        )
