"""Probing what is down: one worker at a time asks, and an answer closes the breaker (L5)."""

import logging
from collections.abc import Iterable
from functools import partial

from calve.control.lanes import concerns
from calve.control.ports import Kind
from calve.control.steps.context import Context
from calve.model.errors import CalveError, UnavailableError
from calve.model.process import Breaker, Process
from calve.model.reaching import reaches

_log = logging.getLogger("calve.control")


def probe_due(context: Context, breakers: Iterable[Breaker], reach: frozenset[str]) -> None:
    now = context.store.now()
    due = [breaker for breaker in breakers if breaker.probe_at <= now]
    if not due:
        return
    waiting = [process for process in context.store.live() if reaches(reach, process)]
    for breaker in due:
        kind = _kind_for(context, breaker, waiting)
        # if we die here, its probe has moved on and somebody probes it then
        if kind is not None and context.store.claim_probe(breaker.lane, context.limits.probe_seconds):
            context.spawn(partial(_probe, context, kind, breaker.lane))


def _kind_for(context: Context, breaker: Breaker, waiting: Iterable[Process]) -> Kind | None:
    """A kind that knows the service: that of a process that waits for it. If none does, nobody asks."""
    for process in waiting:
        if concerns(breaker, process) and process.kind in context.kinds:
            return context.kinds[process.kind]
    return None


def _probe(context: Context, kind: Kind, lane: str) -> None:
    try:
        kind.probe(lane)
    except UnavailableError as error:
        context.store.trip(lane, error.message, context.limits.probe_seconds)
        return
    except CalveError as error:
        # It answered, though not kindly, or it cannot be probed: the next try will tell, and has a
        # budget. Leaving the breaker open for that would not be bounded.
        _log.info("probing %s: %s", lane, error)
    context.lanes.close(lane)
    context.wake()
