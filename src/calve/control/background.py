"""What no process waits for: releasing pins, deleting old history, probing services that are down. It runs
beside the loop in bounded pieces; in tests at once, single-threaded and deterministic.

Pins are released after success, failure, cancel and crash alike. No slot and no lease is held for it
(L29). A release that fails is tried again later and fails nothing else (L31). What is to be released is
in the journal: any worker goes on with it (L30).

One worker at a time probes a service, and an answer closes its breaker (L5).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from calve.control.budget import backoff_seconds, concerns
from calve.control.ports import StoreWriter
from calve.control.steps.context import Context
from calve.model.errors import CalveError, ErrorInfo, StoreError, UnavailableError
from calve.model.limits import Limits
from calve.model.process import Breaker, Pin, Process, ProcessQuery, WorkerId
from calve.model.reach import Service, reaches
from calve.model.states import PROCESS_TERMINAL

_RETRY_MOST_SECONDS = 600.0
HISTORY_PIECE = 500  # events looked at in one tick: a few milliseconds of the store's time
HISTORY_REST_SECONDS = 3600.0


class ReleaseDrain:
    def __init__(self, context: Context, worker: WorkerId, reach: frozenset[str]) -> None:
        self._context = context
        self._worker = worker
        self._reach = reach
        self._lock = threading.Lock()
        self._active: dict[str, float] = {}  # pins that are being released, and when that was last said
        self._found_none = False

    @property
    def idle(self) -> bool:
        """Nothing is being released, and at the last look nothing was due."""
        return not self._active and self._found_none

    def tick(self) -> None:
        limits = self._context.limits
        self._renew()
        room = limits.releases_at_once - len(self._active)
        if room <= 0:
            return
        # if we die here, the pins are hidden for a while, and then any worker releases them
        pins = self._context.store.claim_releases(
            self._worker, self._reach, limit=room, lease_seconds=limits.lease_seconds
        )
        self._found_none = not pins
        for pin in pins:
            with self._lock:
                self._active[pin.name] = self._context.monotonic()
            self._context.spawn(partial(self._release, pin))

    def _renew(self) -> None:
        """A release takes as long as its source does, a claim only as long as a lease: the pins of a worker that
        was killed are soon another's."""
        lease_seconds, now = self._context.limits.lease_seconds, self._context.monotonic()
        with self._lock:
            due = [name for name, at in self._active.items() if now - at >= lease_seconds / 4]
        if not due:
            return
        self._context.store.renew_releases(due, lease_seconds)
        with self._lock:
            self._active |= {name: now for name in due if name in self._active}

    def _release(self, pin: Pin) -> None:
        try:
            error = self._try(pin)
            # if we die here, the pin is gone and still RELEASING: releasing it again finds nothing
            self._context.store.record_release(pin.name, error, self._wait(pin) if error else 0.0)
        except StoreError:
            return  # not recorded: it comes back when its hiding ends, and is released again
        finally:
            with self._lock:
                self._active.pop(pin.name, None)
            self._context.wake()

    def _try(self, pin: Pin) -> ErrorInfo | None:
        try:
            process = self._context.store.process(pin.process_id)
            self._context.kind(process).release(pin)
        except StoreError:
            raise
        except CalveError as error:
            return error.info
        return None

    def _wait(self, pin: Pin) -> float:
        limits = self._context.limits
        wait = backoff_seconds(pin.release_attempts + 1, limits, self._context.random)
        if pin.release_attempts >= limits.release_attempts:
            return _RETRY_MOST_SECONDS  # `calve doctor` lists it by now; it is still tried
        return wait


class History:
    """Deletes old events, then old requests and their like, while there are any; then rests. Where it goes
    on is this worker's own and may be forgotten: it then starts from the oldest."""

    def __init__(self, store: StoreWriter, limits: Limits, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._limits = limits
        self._monotonic = monotonic
        self._after = 0
        self._rests_until = monotonic()

    def tick(self) -> None:
        if self._monotonic() < self._rests_until:
            return
        # if we die here, some history is gone and the rest goes later
        self._after = self._store.forget_history(
            days=self._limits.keep_history_days, after=self._after, limit=HISTORY_PIECE
        )
        if self._after:
            return
        deleted = self._store.forget_requests(
            hours=self._limits.keep_requests_hours,
            audit_days=self._limits.keep_audit_days,
            limit=HISTORY_PIECE,
        )
        if deleted < HISTORY_PIECE:
            self._rests_until = self._monotonic() + HISTORY_REST_SECONDS


_log = logging.getLogger("calve.control")


def inline(work: Callable[[], None]) -> None:
    work()


class Pool:
    """Threads for waves, slow steps, releases and probes: enough that none waits for another."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="calve")

    def __call__(self, work: Callable[[], None]) -> None:
        self._threads.submit(_logged, work)

    def close(self, *, wait: bool) -> None:
        self._threads.shutdown(wait=wait, cancel_futures=True)


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except StoreError as error:
        _log.info("work beside the loop ended: %s", error)
    except Exception:  # noqa: BLE001 - nobody reads the future; what happened is found in the store at the next tick
        _log.exception("work beside the loop failed")


_ENDED_LOOKED_AT = 1000  # the newest; only looked at while a breaker is due and nothing live waits for it


def probe_due(context: Context, breakers: Sequence[Breaker], reach: frozenset[str]) -> None:
    opened = frozenset(breaker.service for breaker in breakers)
    for service, suspecting in context.breakers.take_suspected().items():
        if service not in opened and (service in context.probes or suspecting.kind in context.kinds):
            context.spawn(partial(_confirm, context, suspecting, service))
    now = context.store.now()
    due = [breaker for breaker in breakers if breaker.probe_at <= now]
    if not due:
        return
    for service in {breaker.service for breaker in due} & context.probes.keys():
        if context.store.claim_probe(service, context.limits.probe_seconds):
            context.spawn(partial(_probe, context, context.probes[service], service))
    due = [breaker for breaker in due if not Service(breaker.service).is_spark]
    if not due:
        return
    waiting = [process for process in context.store.live() if reaches(reach, process)]
    for breaker in due:
        process = _waiting_for(context, breaker, waiting) or _waiting_for(
            context, breaker, _ended_and_owed(context, reach)
        )
        # if we die here, its probe has moved on, and a worker probes it then
        if process is not None and context.store.claim_probe(breaker.service, context.limits.probe_seconds):
            context.spawn(
                partial(_probe, context, _asking(context, process, breaker.service), breaker.service)
            )


def _asking(context: Context, process: Process, service: str) -> Callable[[], None]:
    """What asks a service: the worker itself where its runner needs it, else the kind of a process."""
    own = context.probes.get(service)
    return own or partial(context.kinds[process.kind].probe, Service(service), process)


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
        _asking(context, process, service)()
    except UnavailableError as error:
        context.breakers.failed(service, error.message)
        context.wake()
    except CalveError as error:
        _log.info("asking %s after a failure: %s", service, error)


def _probe(context: Context, ask: Callable[[], None], service: str) -> None:
    try:
        ask()
    except UnavailableError as error:
        context.store.trip(service, error.message, context.limits.probe_seconds)
        return
    except CalveError as error:
        # It answered with an error, or it cannot be probed. Close the breaker: the next try has a budget,
        # while an open breaker has no bound.
        _log.info("probing %s: %s", service, error)
    context.breakers.close(service)
    context.wake()
