"""The row that a submission becomes. Pure; every store uses it."""

from datetime import datetime, timedelta

from calve.model.process import NewProcess, Process
from calve.model.states import Leftovers, ProcessState

SUBMITTED = "submitted"
CANCEL_REQUESTED = "cancel_requested"
ADOPTED = "leftovers_adopted"
HANDED_BACK = "leftovers_handed_back"
LEASED = "leased"
TAKEN_OVER = "taken_over"
PIN_RELEASED = "pin_released"
PIN_NOT_RELEASED = "pin_not_released"


def accepted(new: NewProcess, *, adopted: bool, now: datetime) -> Process:
    return Process(
        id=new.id,
        kind=new.kind,
        state=ProcessState.PENDING,
        version=1,
        source=new.source,
        destination=new.destination,
        lane=new.lane,
        needs=new.needs,
        request=new.request,
        partitions=new.partitions,
        locks=new.locks,
        batch=new.batch,
        priority=new.priority,
        retry_of=new.retry_of,
        adopted=adopted,
        created_at=now,
        deadline_at=now + timedelta(seconds=new.deadline_seconds),
    )


def adoptable(old: Process) -> bool:
    """Whether a retry of `old` may still win its files (D3): undo takes them the same way."""
    return old.leftovers is Leftovers.KEPT


def submitted_message(new: NewProcess) -> str:
    retry = f", a retry of {new.retry_of}" if new.retry_of else ""
    return f"{new.kind} of {new.source} to {new.destination}{retry}"
