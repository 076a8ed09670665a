"""Running processes to their end, by the workers there are or by one in this program."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self

from calve.app.wiring import App
from calve.control.follow import follow as watched
from calve.control.ports import Store
from calve.model.errors import CalveError
from calve.model.ids import ProcessId
from calve.model.process import Pin, Process
from calve.model.reach import reaches, sources_in, with_kinds
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState

POLL_SECONDS = 0.2
LOOK_FOR_WORKERS_SECONDS = 1.0
CLEANUP_SECONDS = 30.0  # what takes longer is left to the next worker, and to `doctor`


def has_workers(app: App, processes: Sequence[Process]) -> bool:
    """Whether every one of them has a worker that will take it."""
    workers = app.live_workers()
    return all(any(reaches(worker.reach, process) for worker in workers) for process in processes)


def follow(app: App, ids: Sequence[ProcessId]) -> Iterator[Sequence[Process]]:
    """The processes as they stand, again and again, until all have ended."""
    for progress in watched(app.store, ids, wait=time.sleep, poll_seconds=POLL_SECONDS):
        yield progress.processes


class Company:
    """Sees processes to their end: by the workers there are and, from the moment there are none, by
    one of our own. A worker that was killed counts as there until its lease is over, so one look at
    the start would wait for ever for a dead one."""

    def __init__(
        self,
        app: App,
        processes: Sequence[Process],
        bring: Callable[[], AbstractContextManager[None]] | None,
    ) -> None:
        self._app = app
        self._processes = processes
        self._bring = bring
        self._brought = ExitStack()
        self._next_look = 0.0
        self.is_own = False

    def __enter__(self) -> Self:
        self._look(self._processes)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._brought.__exit__(*raised)

    def follow(self) -> Iterator[Sequence[Process]]:
        for processes in follow(self._app, [process.id for process in self._processes]):
            self._look(processes)
            yield processes

    def _look(self, processes: Sequence[Process]) -> None:
        if self._bring is None or self.is_own or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_FOR_WORKERS_SECONDS
        live = [process for process in processes if process.state not in PROCESS_TERMINAL]
        if not has_workers(self._app, live):
            self._brought.enter_context(self._bring())
            self.is_own = True


@contextmanager
def own_worker(app: App, ids: Sequence[ProcessId]) -> Iterator[None]:
    """A worker in this program for as long as the block lasts, and then until the pins of these
    processes are released and what they began to upload is aborted. Left by an exception (Ctrl-C) it
    stops quickly, and still safely: whatever was under way is found by the next worker."""
    # Spark takes seconds to start; planning can begin meanwhile.
    threading.Thread(target=_warm, args=(app,), name="calve-spark", daemon=True).start()
    with _running(app, app.store):
        yield
        _await_cleanup(app, ids)


@contextmanager
def own_canceller(app: App, processes: Sequence[Process]) -> Iterator[None]:
    """A worker in this program that carries out cancels and takes nothing else. What nobody ever held
    it ends wherever that leads: there is no pin, no file and no commit to look for."""
    also = frozenset(need for process in processes if _untouched(process) for need in process.needs)
    with _running(app, _CancelsOnly(app.store), also):
        yield


def can_be_stopped(app: App, process: Process) -> bool:
    """Whether somebody would carry out its cancel: a worker that runs, or one of ours."""
    own = with_kinds(app.config.reach, app.kinds)
    return _untouched(process) or reaches(own, process) or has_workers(app, [process])


def _untouched(process: Process) -> bool:
    return process.state is ProcessState.PENDING and process.fence == 0


@contextmanager
def _running(app: App, store: Store, also: frozenset[str] = frozenset()) -> Iterator[None]:
    loop = app.worker(store, also)
    thread = threading.Thread(target=loop.run, name="calve-worker", daemon=True)
    thread.start()
    try:
        yield
        loop.request_stop()
    except BaseException:
        loop.request_stop()
        loop.request_stop()  # twice is quick
        raise
    finally:
        thread.join(timeout=2 * app.config.limits.lease_seconds)


class _CancelsOnly:
    """The store, for a worker that must not begin other work: `claim` passes over closed lanes,
    except for processes that were asked to stop, so every lane is called closed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, *given: Any, **named: Any) -> list[Process]:
        lanes = frozenset(process.lane for process in self._store.live())
        return self._store.claim(*given, **named | {"closed_lanes": lanes | named.get("closed_lanes", lanes)})


def _warm(app: App) -> None:
    try:
        app.runner.warm()
    except CalveError:
        return  # the first wave meets the same error, and there it is counted and shown


def _await_cleanup(app: App, ids: Sequence[ProcessId]) -> None:
    give_up = time.monotonic() + CLEANUP_SECONDS
    while time.monotonic() < give_up:
        if not any(_releases(app, process_id) for process_id in ids):
            return
        time.sleep(POLL_SECONDS)


def _releases(app: App, process_id: ProcessId) -> bool:
    """Whether a pin of it will soon be released. Not one that was refused for good (a right is missing):
    workers still try it now and then, and nobody need wait for that."""
    pins = app.store.pins(process_id, PIN_HELD)
    return any(pin.error is None or pin.error.retryable for pin in pins)


def is_idle(app: App) -> bool:
    """Nothing under way, and nothing held, that this configuration reaches."""
    reach = with_kinds(app.config.reach, app.kinds)
    if any(reaches(reach, process) for process in app.store.live()):
        return False
    return not any(_will_release(app, reach, pin) for pin in app.store.pins(states=PIN_HELD))


def _will_release(app: App, reach: frozenset[str], pin: Pin) -> bool:
    """One that was tried often enough is `doctor`'s: waiting for it could be for ever."""
    if pin.release_attempts >= app.config.limits.release_attempts:
        return False
    return pin.source in sources_in(reach) and reaches(reach, app.store.process(pin.process_id))
