"""Following processes to their end, by the workers there are or by one in this program."""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from calve.app.wiring import App, Ports
from calve.control.client import LIVE_AT_MOST, Standing
from calve.control.client import follow as watched
from calve.control.ports import Runner, Store, TaskOrder, TaskResult
from calve.control.why import waiting_for
from calve.model.errors import CalveError
from calve.model.process import Lease, Pin, Process, ProcessId, WorkerId
from calve.model.reach import reaches, sources_in, with_kinds
from calve.model.record import fields_of
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState

if TYPE_CHECKING:
    from calve.metrics.meters import Meters

POLL_SECONDS = 0.1
LOOK_FOR_WORKERS_SECONDS = 1.0
CLEANUP_SECONDS = 30.0  # what takes longer is left to the next worker, and to `doctor`

_PLANNED_AT_ONCE = 200

Bring = Callable[[], AbstractContextManager[None]]


class _TimeIsUp(Exception):
    """Leaves the block of an own worker quickly: nobody waits for its cleanup."""


def follow(
    app: App,
    ids: Sequence[ProcessId],
    *,
    own_worker: bool = False,
    timeout_seconds: float | None = None,
) -> Generator[Standing, None, None]:
    """Where the processes stand, again and again, until all have ended or the time is up. With
    `own_worker` a worker in this program does the work where no other would. Close the iterator to
    stop early: that is quick and safe."""
    bring = (lambda: own_worker_for(app, ids)) if own_worker else None
    return _follow(app, ids, bring, timeout_seconds)


def standing(app: App, ids: Sequence[ProcessId]) -> Standing:
    """One look of `follow`."""
    processes = tuple(app.store.process(process_id) for process_id in ids)
    return Standing(
        processes=processes,
        own_worker=False,
        sizes=_Sizes(app).of(processes),
        outages=waiting_for(app.store, processes),
    )


def pinned(
    app: App, ids: Sequence[ProcessId], *, timeout_seconds: float | None = None
) -> Generator[Standing, None, None]:
    """Follow processes until what they read is held still. A worker in this program plans them where no
    other would, and leaves the rest of the work to the next one."""
    return _follow(app, ids, lambda: _own_planner(app, ids), timeout_seconds, lambda seen: seen.pinned)


def stopped(app: App, processes: Sequence[Process]) -> Generator[Standing, None, None]:
    """Follow processes that were asked to stop; a worker in this program carries the cancels out where
    no other would. Does not wait for processes that no reachable worker can end."""
    live = [process for process in processes if process.state not in PROCESS_TERMINAL]
    live = [process for process in live if _can_be_stopped(app, process)]
    if live:
        yield from _follow(app, [process.id for process in live], lambda: _own_canceller(app, live), None)


def _follow(
    app: App,
    ids: Sequence[ProcessId],
    bring: Bring | None,
    timeout_seconds: float | None,
    enough: Callable[[Standing], bool] = lambda seen: seen.ended,
) -> Generator[Standing, None, None]:
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    helper, sizes = _Helper(app, bring), _Sizes(app)
    with suppress(_TimeIsUp), helper:
        for progress in watched(app.store, ids, wait=time.sleep, poll_seconds=POLL_SECONDS):
            standing = Standing(processes=progress.processes, own_worker=False)
            if not enough(standing):
                helper.look(progress.processes)
            standing = replace(
                standing,
                own_worker=helper.is_here,
                sizes=sizes.of(progress.processes),
                outages=waiting_for(app.store, progress.processes),
            )
            yield standing
            if enough(standing):
                return
            if until is not None and time.monotonic() >= until:
                raise _TimeIsUp


class _Helper:
    """Brings a worker of our own from the moment no other is left. A worker that was killed counts as
    there until its lease is over, so one look at the start would wait for ever for a dead one."""

    def __init__(self, app: App, bring: Bring | None) -> None:
        self._app = app
        self._bring = bring
        self._brought = ExitStack()
        self._next_look = 0.0
        self.is_here = False

    def __enter__(self) -> None:
        """Nothing is brought before the first look."""

    def __exit__(self, *raised: Any) -> None:
        self._brought.__exit__(*raised)

    def look(self, processes: Sequence[Process]) -> None:
        if self._bring is None or self.is_here or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_FOR_WORKERS_SECONDS
        live = [process for process in processes if process.state not in PROCESS_TERMINAL]
        if not self._app.has_workers(live):
            self._brought.enter_context(self._bring())
            self.is_here = True


class _Sizes:
    """How many bytes a backup or a restore will move: its plan says so, and is read once."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[ProcessId, int] = {}

    def of(self, processes: Sequence[Process]) -> Mapping[ProcessId, int]:
        for process in processes:
            if process.kind in ("backup", "restore") and process.planned and process.id not in self._known:
                plan = self._app.store.plan(process.id)
                self._known[process.id] = int(fields_of(plan).get("bytes", 0))
        return dict(self._known)


@contextmanager
def own_worker_for(app: App, ids: Sequence[ProcessId]) -> Iterator[None]:
    """A worker in this program for as long as the block lasts, and then until the pins of these
    processes are released. Left by an exception (Ctrl-C) it
    stops quickly, and still safely: the next worker finds whatever was under way."""
    app.brief = all(app.store.process(process_id).kind != "optimize" for process_id in ids)
    _warm(app)
    with _visits_expected(app, 2 * len(ids)), _running(app, app.store):  # each is pinned and released
        yield
        _await_cleanup(app, ids)


@contextmanager
def _own_canceller(app: App, processes: Sequence[Process]) -> Iterator[None]:
    """A worker in this program that carries out cancels and takes nothing else. A process that no
    worker ever held it ends wherever that leads: there is no pin, no file and no commit to look for."""
    also = frozenset(need for process in processes if _untouched(process) for need in process.needs)
    with _running(app, _CancelsOnly(app.store), also):
        yield


@contextmanager
def _own_planner(app: App, ids: Sequence[ProcessId]) -> Iterator[None]:
    """A worker in this program that plans these processes and runs no task."""
    with _running(app, _PlansOnly(app.store, ids), runner=_NoRunner()):
        yield


def _can_be_stopped(app: App, process: Process) -> bool:
    """Whether somebody would carry out its cancel: a worker that runs, or one of ours."""
    own = with_kinds(app.config.reach, app.kinds)
    return _untouched(process) or reaches(own, process) or app.has_workers([process])


def _untouched(process: Process) -> bool:
    return process.state is ProcessState.PENDING and process.fence == 0


@contextmanager
def _running(
    app: App, store: Store, also: frozenset[str] = frozenset(), runner: Runner | None = None
) -> Iterator[None]:
    loop = app.worker(store, also, runner=runner)
    thread = threading.Thread(target=loop.run, name="calve-worker", daemon=True)
    with _notifying(app, at_end=True):
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


class _PlansOnly:
    """The store, for a worker that plans some processes: it takes those alone, and gives each up once it
    has a plan. If we die in between, the lease expires and the next worker goes on."""

    def __init__(self, store: Store, ids: Sequence[ProcessId]) -> None:
        self._store = store
        self._ids = frozenset(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, worker: WorkerId, *given: Any, **named: Any) -> list[Process]:
        live = self._store.live(LIVE_AT_MOST)
        waiting = [process.id for process in live if process.id in self._ids and not process.planned]
        only = frozenset(waiting[:_PLANNED_AT_ONCE])
        rows = self._store.claim(worker, *given, **named | {"only": only})
        for row in rows:
            if row.planned:
                self._store.yield_(Lease(process_id=row.id, worker=worker, fence=row.fence))
        return [row for row in rows if not row.planned]


class _NoRunner:
    """A runner without a slot: no task is ever started."""

    slots = 0

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        raise AssertionError(f"{group}: a worker without slots was given tasks")

    def cancel(self, group: str) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def _visits_expected(app: App, visits: int) -> Iterator[None]:
    """Embedded sources are opened faster by a program that says so."""
    if not any(source.embedded for source in app.config.sources.values()):
        yield
        return
    from calve.clickhouse.embedded.host import spare

    spare.expect(visits)
    try:
        yield
    finally:
        spare.expect(-visits)


def _notifying(app: App, *, at_end: bool) -> AbstractContextManager[None]:
    """Tell the targets of the configuration what happens; `at_end`: wait a little for what is left to tell.
    For a worker that drains nobody waits: the next program sends it."""
    if not app.config.notify and not app.config.pings:
        return nullcontext()
    from calve.app.notices import LAST_SECONDS, notifying, wants

    seconds = LAST_SECONDS if at_end else 0.0
    return notifying(app.config, app.registry, wants=partial(wants, app), last_seconds=seconds)


def _warm(app: App) -> None:
    """Spark takes seconds to start; planning can begin meanwhile."""

    def start() -> None:
        with suppress(CalveError):  # the first wave meets the same error, and there it is counted and shown
            app.runner.warm()

    threading.Thread(target=start, name="calve-spark", daemon=True).start()


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


class WorkerProgram:
    """`calve worker`: does the work of every process that the configuration reaches."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._meters: Meters | None = None
        if app.config.metrics.port:
            from calve.metrics import meters, names

            self._meters = meters.Meters(names.Told.WORKER)
        self._loop = app.worker(around=self._seen)

    def _seen(self, ports: Ports) -> Ports:
        """Its ports, metered where somebody scrapes them; what they log says what it is about."""
        from calve.metrics import wrappers

        store, kinds, runner = ports
        if (meters := self._meters) is not None:
            known = wrappers.KindsOf()
            store = wrappers.WorkersStore(store, meters)
            kinds = wrappers.metered(kinds, meters, known)
            runner = wrappers.MeteredRunner(runner, meters, known, slots=self._app.known_slots())
        return store, wrappers.logged(kinds), wrappers.LoggedRunner(runner)

    @property
    def id(self) -> WorkerId:
        return self._loop.id

    def request_stop(self) -> None:
        """Drain; a second time, stop quickly. Safe in a signal handler."""
        self._loop.request_stop()

    def run(self, *, until_idle: bool = False) -> None:
        from calve.app.optimizer import optimizing

        told = _notifying(self._app, at_end=until_idle)
        with (
            self._scraped(),
            told,
            _visits_expected(self._app, sys.maxsize),
            optimizing(self._app),
            _rules(self._app),
            nullcontext() if until_idle else _guarding(self._app),
            nullcontext() if until_idle else _finding_strays(self._app),
        ):
            if not self._loop.is_stopping:
                _warm(self._app)
            self._loop.run(until=(lambda: is_idle(self._app)) if until_idle else lambda: False)

    def _scraped(self) -> AbstractContextManager[object]:
        if self._meters is None:
            return nullcontext()
        from calve.metrics.port import told

        section = self._app.config.metrics
        return told(self._meters, section.host, section.port)


def _rules(app: App) -> AbstractContextManager[None]:
    if not app.config.policies and not app.config.schedules:
        return nullcontext()
    from calve.app.rules import following_rules

    return following_rules(app)


def _finding_strays(app: App) -> AbstractContextManager[None]:
    from calve.app.rules import Rule, following
    from calve.app.strays import Strays

    return following(app, [Rule(name="pins that were taken late", tick=Strays(app).tick)])


def _guarding(app: App) -> AbstractContextManager[None]:
    from calve.app.policies.guard import guarding

    return guarding(app)


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
