"""The errors of a store that refuses a call: the same wording in every store."""

from collections.abc import Sequence

from calve.model.errors import (
    ConflictError,
    FenceLostError,
    LockedError,
    NotFoundError,
    PermanentError,
    RefusedError,
    UsageError,
)
from calve.model.process import Lease, NewProcess, Process, ProcessId, Start
from calve.model.states import PROCESS_TERMINAL

_SHOWN_IDS = 5


def already_started(start: Start) -> RefusedError:
    return RefusedError(
        f"policy {start.policy}: attempt {start.attempt} at partition {start.partition} was started by another"
        " worker; nothing was submitted",
        code="already_started",
        hint="nothing to do: that worker's process does it",
    )


def over_limit(policy: str, what: str) -> RefusedError:
    return RefusedError(
        f"policy {policy} would start more than its {what} allows; nothing was submitted",
        code="over_limit",
        hint=f"it continues by itself later; or raise {what}",
    )


def no_such_process(text: str) -> NotFoundError:
    return NotFoundError(
        f"no process or batch {text!r} in this store",
        code="process_not_found",
        hint="calve ps --all",
    )


def no_such_task(process_id: str, number: int) -> NotFoundError:
    return NotFoundError(
        f"process {process_id} has no task {number}", code="task_not_found", hint=f"calve show {process_id}"
    )


def no_such_pin(name: str) -> NotFoundError:
    return NotFoundError(f"no pin {name!r} in this store", code="pin_not_found", hint="calve doctor")


def ambiguous(text: str, fitting: Sequence[ProcessId]) -> UsageError:
    shown = ", ".join(fitting[:_SHOWN_IDS]) + (", …" if len(fitting) > _SHOWN_IDS else "")
    return UsageError(
        f"{text!r} matches several processes: {shown}",
        code="ambiguous_id",
        hint=f"calve show {fitting[0]}",
    )


def locked(holder: Process | NewProcess) -> LockedError:
    """`holder` is live, ended with an unknown outcome, or another of the same submission."""
    what = f"process {holder.id} ({holder.kind} of {holder.source} to {holder.destination})"
    if isinstance(holder, Process) and holder.state in PROCESS_TERMINAL:
        said, hint = "may have done this work: its outcome is unknown", f"calve why {holder.id}"
    elif isinstance(holder, Process) and holder.cancel_requested:
        return being_cancelled(holder)
    else:
        said = "is under way for another request that overlaps this one"
        hint = f"follow it with `calve wait {holder.id}`, or stop it with `calve cancel {holder.id}`"
    return _held_by(holder, LockedError(f"{what} {said}; nothing was submitted", code="locked", hint=hint))


def being_cancelled(holder: Process) -> LockedError:
    return _held_by(
        holder,
        LockedError(
            f"process {holder.id} does this work and is being cancelled; nothing was submitted",
            code="locked",
            hint=f"`calve cancel {holder.id}` waits until it has stopped; then repeat this command",
        ),
    )


def _held_by(holder: Process | NewProcess, error: LockedError) -> LockedError:
    error.holder = holder.id
    return error


def not_ended(process: Process) -> RefusedError:
    return RefusedError(
        f"process {process.id} is {process.state}; only a process that has ended can be retried",
        code="not_ended",
        hint=f"calve wait {process.id}",
    )


def key_reused(key: str) -> RefusedError:
    return RefusedError(
        f"the key {key!r} was used for another request; nothing was submitted",
        code="key_reused",
        hint="use a new key for a new request, and the same key only to repeat one",
    )


def token_exists(name: str) -> RefusedError:
    return RefusedError(
        f"there is, or was, a token named {name!r}; nothing was changed",
        code="token_exists",
        hint="choose another name: the audit tells callers apart by it",
    )


def no_such_token(text: str) -> NotFoundError:
    return NotFoundError(f"no token {text!r} in this store", code="token_not_found", hint="calve token list")


def no_such_action(text: str) -> NotFoundError:
    return NotFoundError(f"no action {text!r} in this store", code="action_not_found", hint="calve ps")


def fence_lost(process: Process, lease: Lease) -> FenceLostError:
    owner = f"worker {process.owner}" if process.owner else "no worker"
    return FenceLostError(
        f"process {process.id} belongs to {owner} (fence {process.fence});"
        f" worker {lease.worker} wrote with fence {lease.fence}, and nothing was changed",
        code="fence_lost",
        hint=f"calve why {process.id}",
    )


def conflict(process_id: ProcessId, what: str) -> ConflictError:
    return ConflictError(
        f"process {process_id} changed since it was read: {what}; nothing was changed",
        code="conflict",
        hint=f"calve show {process_id}",
    )


def illegal_transition(process_id: ProcessId, what: str) -> PermanentError:
    return PermanentError(
        f"process {process_id}: {what}; nothing was changed",
        code="illegal_transition",
        hint=f"calve show {process_id}",
    )


def illegal_change(process_id: ProcessId, what: str) -> PermanentError:
    """A change that contradicts itself."""
    return PermanentError(
        f"process {process_id}: {what}; nothing was changed",
        code="illegal_change",
        hint=f"calve show {process_id}",
    )
