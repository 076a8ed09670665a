"""Ending the uploads that a process gave up: parts that nobody sees, and that somebody pays for.

Nothing has to be proven first, since nothing can refer to an object that is not there; so it is done
soon, while the files that are whole stay for a retry. A look that found something, or that failed, is
repeated, each time after twice the time; the last one comes when no attempt can be alive any more.
What even that misses goes with the files, when they are undone.
"""

from calve.control.ports import UploadsInParts
from calve.control.steps.context import Context
from calve.model.change import Change, NewEvent
from calve.model.errors import CalveError, StoreError
from calve.model.process import Lease, Process

_LOOK_MOST_SECONDS = 3600.0


def abort_uploads(context: Context, lease: Lease, process: Process) -> None:
    """One look, whatever became of the files: a retry that adopts them relies on whole ones only."""
    try:
        # if we die here, some are aborted; the look is still due, and finds the others
        found = _abort(context, process)
    except StoreError:
        raise
    except CalveError as error:
        context.lanes.met(process, [error.info])  # or the next look, of another process, would wait as long
        event = NewEvent(name="uploads_not_aborted", message=f"{error.code}: {error.message}")
        change = Change(uploads_in_seconds=_soon(context, process), events=(event,))
    else:
        change = _after(context, process, found)
    context.store.apply(lease, change)


def _abort(context: Context, process: Process) -> int:
    kind: object = context.kind(process)
    plan = context.plans.require(process.id)
    return kind.abort_uploads(process, plan) if isinstance(kind, UploadsInParts) else 0


def _after(context: Context, process: Process, found: int) -> Change:
    if not found:
        return Change(uploads_in_seconds=_last_look(context, process))
    event = NewEvent(name="uploads_aborted", message=f"{found} that were not whole")
    return Change(uploads_in_seconds=_soon(context, process), events=(event,))


def _soon(context: Context, process: Process) -> float:
    """As long again as it has been ended: doubled each time, with nothing to count."""
    wait = max(context.limits.cancel_seconds, _ended_seconds(context, process))
    return min(wait, _LOOK_MOST_SECONDS)


def _last_look(context: Context, process: Process) -> float:
    """An executor that lost its driver may go on until its attempt's time is over. Negative: that is past."""
    return context.limits.task_seconds - _ended_seconds(context, process)


def _ended_seconds(context: Context, process: Process) -> float:
    ended = process.finished_at
    return (context.store.now() - ended).total_seconds() if ended else 0.0
