"""Probing what is down: one worker at a time asks, and an answer closes the breaker (L5)."""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from calve.control.breakers import concerns
from calve.control.steps.context import Context
from calve.model.errors import CalveError, UnavailableError
from calve.model.process import Breaker, Process, ProcessQuery
from calve.model.reach import Service, reaches
from calve.model.states import PROCESS_TERMINAL

_log = logging.getLogger("calve.control")
_ENDED_LOOKED_AT = 1000  # the newest; only looked at while a breaker is due and nothing live waits for it


def probe_due(context: Context, breakers: Sequence[Breaker], reach: frozenset[str]) -> None:
    opened = frozenset(breaker.service for breaker in breakers)
    for service, suspecting in context.breakers.take_suspected().items():
        if service not in opened and suspecting.kind in context.kinds:
            context.spawn(partial(_confirm, context, suspecting, service))
    now = context.store.now()
    due = [breaker for breaker in breakers if breaker.probe_at <= now]
    if not due:
        return
    waiting = [process for process in context.store.live() if reaches(reach, process)]
    for breaker in due:
        process = _waiting_for(context, breaker, waiting) or _waiting_for(
            context, breaker, _ended_and_owed(context, reach)
        )
        # if we die here, its probe has moved on, and a worker probes it then
        if process is not None and context.store.claim_probe(breaker.service, context.limits.probe_seconds):
            context.spawn(partial(_probe, context, process, breaker.service))


def _ended_and_owed(context: Context, reach: frozenset[str]) -> list[Process]:
    """Ended processes that still wait for the service: to find out whether they were published, or to
    delete what they left. Without them the breaker of a lane that has no live process would stay open
    for ever, and with it the lock of an unknown outcome."""
    ended = context.store.processes(ProcessQuery(states=PROCESS_TERMINAL, limit=_ENDED_LOOKED_AT))
    return [process for process in ended if process.cleanup_at is not None and reaches(reach, process)]


def _waiting_for(context: Context, breaker: Breaker, waiting: Iterable[Process]) -> Process | None:
    """A process that waits for the service: its kind knows how to probe it."""
    for process in waiting:
        if concerns(breaker, process) and process.kind in context.kinds:
            return process
    return None


def _confirm(context: Context, process: Process, service: str) -> None:
    """One try failed. If a probe does as well, that is twice. An answer proves nothing of what failed,
    and so it takes nothing back."""
    try:
        context.kinds[process.kind].probe(Service(service), process)
    except UnavailableError as error:
        context.breakers.failed(service, error.message)
        context.wake()
    except CalveError as error:
        _log.info("asking %s after a failure: %s", service, error)


def _probe(context: Context, process: Process, service: str) -> None:
    try:
        context.kinds[process.kind].probe(Service(service), process)
    except UnavailableError as error:
        context.store.trip(service, error.message, context.limits.probe_seconds)
        return
    except CalveError as error:
        # It answered with an error, or it cannot be probed. Close the breaker: the next try has a budget,
        # while an open breaker has no bound.
        _log.info("probing %s: %s", service, error)
    context.breakers.close(service)
    context.wake()
