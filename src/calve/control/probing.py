"""Probing what is down: one worker at a time asks, and an answer closes the breaker (L5)."""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from calve.control.lanes import concerns
from calve.control.ports import ProbesForAProcess
from calve.control.steps.context import Context
from calve.model.errors import CalveError, UnavailableError
from calve.model.process import Breaker, Process, ProcessQuery
from calve.model.reaching import reaches
from calve.model.states import PROCESS_TERMINAL

_log = logging.getLogger("calve.control")
_ENDED_LOOKED_AT = 1000  # the newest; only looked at while a breaker is due and nothing live waits for it


def probe_due(context: Context, breakers: Sequence[Breaker], reach: frozenset[str]) -> None:
    opened = frozenset(breaker.lane for breaker in breakers)
    for lane, suspecting in context.lanes.take_suspected().items():
        if lane not in opened and suspecting.kind in context.kinds:
            context.spawn(partial(_confirm, context, suspecting, lane))
    now = context.store.now()
    due = [breaker for breaker in breakers if breaker.probe_at <= now]
    if not due:
        return
    waiting = [process for process in context.store.live() if reaches(reach, process)]
    for breaker in due:
        process = _waiting_for(context, breaker, waiting) or _waiting_for(
            context, breaker, _ended_and_owed(context, reach)
        )
        # if we die here, its probe has moved on and somebody probes it then
        if process is not None and context.store.claim_probe(breaker.lane, context.limits.probe_seconds):
            context.spawn(partial(_probe, context, process, breaker.lane))


def _ended_and_owed(context: Context, reach: frozenset[str]) -> list[Process]:
    """Ended processes that still wait for the service: to find out whether they were published, or to
    delete what they left. Without them the breaker of a lane that has no live process would stay open
    for ever, and with it the lock of an unknown outcome."""
    ended = context.store.processes(ProcessQuery(states=PROCESS_TERMINAL, limit=_ENDED_LOOKED_AT))
    return [process for process in ended if process.cleanup_at is not None and reaches(reach, process)]


def _waiting_for(context: Context, breaker: Breaker, waiting: Iterable[Process]) -> Process | None:
    """A process that waits for the service: its kind knows how to ask. If none does, nobody asks."""
    for process in waiting:
        if concerns(breaker, process) and process.kind in context.kinds:
            return process
    return None


def _ask(context: Context, process: Process, lane: str) -> None:
    kind = context.kinds[process.kind]
    if isinstance(kind, ProbesForAProcess):
        kind.probe_for(lane, process)
    else:
        kind.probe(lane)


def _confirm(context: Context, process: Process, lane: str) -> None:
    """One try failed. If a probe does as well, that is twice. An answer proves nothing of what failed,
    and so it takes nothing back."""
    try:
        _ask(context, process, lane)
    except UnavailableError as error:
        context.lanes.failed(lane, error.message)
        context.wake()
    except CalveError as error:
        _log.info("asking %s after a failure: %s", lane, error)


def _probe(context: Context, process: Process, lane: str) -> None:
    try:
        _ask(context, process, lane)
    except UnavailableError as error:
        context.store.trip(lane, error.message, context.limits.probe_seconds)
        return
    except CalveError as error:
        # It answered, though not kindly, or it cannot be probed: the next try will tell, and has a
        # budget. Leaving the breaker open for that would not be bounded.
        _log.info("probing %s: %s", lane, error)
    context.lanes.close(lane)
    context.wake()
