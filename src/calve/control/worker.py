"""The worker's loop: each tick looks at what this worker holds, decides one step each, performs it.

The same code at start-up and ever after; nothing that happened between two ticks needs to be
remembered (rule 1). An exception while handling one process loses no other's progress (L10). Slow
work runs beside the loop, so that renewals and cancels never wait for it.
"""

import logging
import os
import random as random_module
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from calve import __version__
from calve.control.background import History, Pool, ReleaseDrain, probe_due
from calve.control.budget import Breakers, Random, halting, holding_back, known_to
from calve.control.decide import decide
from calve.control.facts import Around, Gathered, gather
from calve.control.inflight import InFlight, Want, share
from calve.control.kind import GuardedRunner, Kind, guarded
from calve.control.leases import Company, Holding, Leases, to_begin
from calve.control.perform import performer
from calve.control.ports import Runner, Store
from calve.control.step import Resolve, SlowStep, Step, Undo, Wait
from calve.control.steps.context import Context, Plans, Spawn
from calve.control.steps.publish import stop_waves
from calve.control.steps.tasks import record_results, recover_tasks
from calve.model.access import Halt
from calve.model.errors import CalveError, ConflictError, ErrorInfo, FenceLostError
from calve.model.limits import Limits
from calve.model.process import Breaker, Granted, Lease, Process, Worker, WorkerId, new_worker_id
from calve.model.reach import reaches, with_kinds
from calve.model.states import PROCESS_TERMINAL

_log = logging.getLogger("calve.control")

SILENT = ErrorInfo(
    code="store_unreachable",
    message="the worker could not renew its lease, and stopped before another could take it",
    retryable=True,
)
STOPPED = ErrorInfo(
    code="worker_stopped", message="the worker was stopped while the attempt ran", retryable=True
)
# One step, and the lease is needed no more.
_MOST_WAVES = 64  # beside each other, where the number of slots is not yet known
_OF_THE_ENDED = frozenset({Resolve.__name__, Undo.__name__})
_ERROR_SHOWN_SECONDS = 600.0
_LOOK_SECONDS = 0.1  # one look at an index: of the newest event's number
LEASE_GONE = ErrorInfo(code="lease_lost", message="another worker owns the process now", retryable=True)


class WorkerLoop:
    """Moves processes forward. `tick()` is one pass; `run()` ticks until asked to stop. `probes` are the
    services that its runner needs, whatever the process, each with what asks it. `granted` asks what a cluster
    gives that runner now."""

    def __init__(
        self,
        *,
        store: Store,
        kinds: Mapping[str, Kind],
        runner: Runner,
        limits: Limits,
        reach: frozenset[str],
        probes: Mapping[str, Callable[[], None]] | None = None,
        granted: Callable[[], Granted | None] = lambda: None,
        worker_id: WorkerId | None = None,
        spawn: Spawn | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        random: Random = random_module.random,
    ) -> None:
        self.id = worker_id or new_worker_id(socket.gethostname(), os.getpid())
        self._store = store
        self._limits = limits
        probes = probes or {}
        self._reach = reach = with_kinds(reach | probes.keys(), kinds)
        self._runner = GuardedRunner(runner)
        self._ask_granted = granted
        self._granted: Granted | None = None  # at the last heartbeat
        self._pool: Pool | None = None
        if spawn is None:
            # Each wave has at least one slot, each held process at most two slow steps.
            threads = (
                max(self.slots, _MOST_WAVES) + 2 * limits.processes_per_worker + limits.releases_at_once + 8
            )
            spawn = self._pool = Pool(threads)
        self._wake = threading.Event()
        self._monotonic = monotonic
        self.in_flight = InFlight()
        self.holding = Holding(self.id)
        self._leases = Leases(store, self.id, limits, monotonic)
        self._context = Context(
            store=store,
            kinds=guarded(kinds),
            runner=self._runner,
            limits=limits,
            in_flight=self.in_flight,
            breakers=Breakers(store, limits),
            probes=probes,
            plans=Plans(store),
            random=random,
            monotonic=monotonic,
            spawn=spawn,
            draining=lambda: self._stops > 0,
            wake=self._wake.set,
        )
        self._drain = ReleaseDrain(self._context, self.id, reach)
        self._history = History(store, limits, monotonic)
        self._stops = 0  # how often a stop was asked for
        self._drain_began_at: float | None = None
        self._beat_at: float | None = None
        self._company = Company(store, self.id, limits, monotonic)
        self._waiting = 0  # tasks that would have begun at the last tick, had there been slots
        self._down: frozenset[str] = frozenset()  # services, at the last tick
        self._error: ErrorInfo | None = None
        self._error_at = 0.0

    @property
    def slots(self) -> int:
        """Asked for anew at each tick: a cluster is known once Spark has started, and it grows and shrinks."""
        return self._limits.slots or self._runner.slots

    # -- one pass ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """One pass. Never raises: what failed is tried again at the next one."""
        self.stop_if_silent()
        with self._guarded("keeping leases"):
            self._leases.renew_if_due()
        with self._guarded("saying that it lives"):
            self._beat()
        with self._guarded("moving processes"):
            breakers, halts = known_to(self._reach, self._store.breakers()), self._store.halts()
            self._log_breakers(breakers)
            rows = self._claim(breakers)
            self._stop_overdue()
            self._advance(rows, breakers, halts)
            probe_due(self._context, breakers, self._reach)
        with self._guarded("releasing pins"):
            self._drain.tick()
        if not self._stops:
            with self._guarded("forgetting history"):
                self._history.tick()

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        """An error here is shown, and the loop goes on (L10)."""
        try:
            yield
        except ConflictError as error:
            _log.debug("%s: %s", doing, error)  # the row moved after it was read: the next tick reads it
        except CalveError as error:
            self._met(error.info)
            _log.warning("%s: %s", doing, error)
        except Exception as error:  # noqa: BLE001 - a defect in the loop itself must not end the loop
            self._met(ErrorInfo(code="internal", message=f"{doing}: {type(error).__name__}: {error}"))
            _log.exception("%s failed", doing)

    def _met(self, error: ErrorInfo) -> None:
        self._error, self._error_at = error, self._monotonic()

    def _last_error(self) -> ErrorInfo | None:
        """What went wrong lately: an error of last week says nothing of a worker that works."""
        return self._error if self._monotonic() - self._error_at < _ERROR_SHOWN_SECONDS else None

    def _claim(self, breakers: Sequence[Breaker]) -> list[Process]:
        """What we hold and, unless we are stopping, what we can take besides."""
        held = len(self.holding.leases())
        rows = self._store.claim(
            self.id,
            self._reach,
            lease_seconds=self._limits.lease_seconds,
            limit=0 if self._stops else self._room(held),
            closed_lanes=frozenset(breaker.service for breaker in breakers),
        )
        if len(rows) > held:
            self._company.took()
        for lease in self.holding.update(rows):
            stop_waves(self._context, lease, LEASE_GONE)
            self._log_lost(lease)
        self.in_flight.forget_others(self.holding.keys())
        self._context.plans.keep_only(frozenset(row.id for row in rows))
        return rows

    def _room(self, held: int) -> int:
        return self._company.room(held, self.slots, self.in_flight.slots_used(), self._waiting)

    def _log_breakers(self, breakers: Sequence[Breaker]) -> None:
        """Whichever worker opened or closed one."""
        now = {breaker.service: breaker.reason for breaker in breakers}
        for service in now.keys() - self._down:
            _log.warning("%s is down: %s", service, now[service])
        for service in self._down - now.keys():
            _log.info("%s answers again", service)
        self._down = frozenset(now)

    def _log_lost(self, lease: Lease) -> None:
        """Not of one that ended, or that we gave up."""
        with self._guarded(f"reading process {lease.process_id}"):
            row = self._store.process(lease.process_id)
            if row.damaged:
                _log.warning("process %s is set aside, its row is damaged: %s", row.id, row.damaged)
            elif row.state in PROCESS_TERMINAL or row.owner in (None, self.id):
                return
            else:
                _log.warning("process %s: lease lost to %s; its tasks here are stopped", row.id, row.owner)

    def _advance(self, rows: Sequence[Process], breakers: Sequence[Breaker], halts: Sequence[Halt]) -> None:
        """Facts of all, then the slots shared among them, then one step each."""
        around = Around(
            now=self._store.now(),
            limits=self._limits,
            breakers=breakers,
            halts=halts,
            free_slots=max(self.slots - self.in_flight.slots_used(), 0),
            draining=self._stops > 0,
            drain_over=self._drain_over(),
        )
        gathered: list[Gathered] = []
        for row in rows:
            with self._guarded(f"reading process {row.id}"):
                gathered.append(self._gather(row, around))
        slots = share(around.free_slots, [_want(item) for item in gathered])
        self._waiting = sum(
            max(to_begin(item.facts) - slots.get(item.facts.process.id, 0), 0) for item in gathered
        )
        idle: list[Process] = []
        waiting: list[Process] = []
        for item in gathered:
            process = item.facts.process
            with self._guarded(f"process {process.id}"):
                facts = replace(item.facts, slots=slots.get(process.id, 0))
                step = decide(facts)
                self._take(self.holding.lease(process.id), process, step, item)
                if isinstance(step, Wait) and not facts.in_flight and not facts.busy:
                    idle.append(process)
                    if to_begin(facts) and not step.yields:
                        waiting.append(process)
        self._hand_over(waiting)
        if len(rows) >= self._limits.processes_per_worker:
            self._make_room(rows, idle, breakers, halts)

    def _hand_over(self, waiting: Sequence[Process]) -> None:
        """What waits for a slot here while another worker has one."""
        if self.in_flight.slots_used() < self.slots or self._stops:
            return
        for row in self._company.to_hand_over(row for row in waiting if not row.tasks.running):
            _log.info("process %s is handed over: another worker has free slots", row.id)
            self._give_up(self.holding.lease(row.id))

    def _gather(self, row: Process, around: Around) -> Gathered:
        lease = self.holding.lease(row.id)
        row = record_results(self._context, lease, row)
        return gather(self._store, self.in_flight, lease, row, around, self.holding.busy(lease))

    def _take(self, lease: Lease, process: Process, step: Step | Wait, item: Gathered) -> None:
        if isinstance(step, Wait):
            if step.yields and not item.facts.busy:
                self._give_up(lease)
            return
        work = performer(self._context, lease, process, step, item.ready)
        if isinstance(step, SlowStep):
            name = type(step).__name__
            self.holding.begin(lease, name)
            self._context.spawn(partial(self._slow, lease, name, work))
        else:
            self._performed(lease, work)

    def _slow(self, lease: Lease, name: str, work: Callable[[], None]) -> None:
        try:
            with self._guarded(f"{name} of {lease.process_id}"):
                self._performed(lease, work)
                if name in _OF_THE_ENDED:
                    self._give_up(lease)
        finally:
            self.holding.finish(lease, name)
            self._wake.set()

    def _performed(self, lease: Lease, work: Callable[[], None]) -> None:
        try:
            work()
        except FenceLostError:
            # Another worker owns it, or it has ended: what we run for it is stopped, nothing else.
            self.holding.drop(lease)
            stop_waves(self._context, lease, LEASE_GONE)
            self.in_flight.forget(lease)
            self._log_lost(lease)
        self._wake.set()

    def _give_up(self, lease: Lease) -> None:
        # if we die here, the lease expires
        self._store.yield_(lease)
        self.holding.drop(lease)
        self.in_flight.forget(lease)

    def _make_room(
        self,
        rows: Sequence[Process],
        idle: Sequence[Process],
        breakers: Sequence[Breaker],
        halts: Sequence[Halt],
    ) -> None:
        """A full worker whose processes all wait must not keep another lane from being looked at (L6):
        the lane that has most gives up one that waits."""
        held = Counter(row.lane for row in rows)
        now = self._store.now()
        elsewhere = [
            row
            for row in self._store.live()
            if row.lane not in held
            and (row.lease_until is None or row.lease_until <= now)
            and (row.not_before is None or row.not_before <= now)
            and reaches(self._reach, row)
            and holding_back(row, breakers) is None
            and halting(row, halts) is None
        ]
        if elsewhere and idle:
            still = {lease.process_id for lease in self.holding.leases()}
            waiting = [row for row in idle if row.id in still]
            if waiting:
                last = max(waiting, key=lambda row: (held[row.lane], -row.priority, row.created_at))
                self._give_up(self.holding.lease(last.id))

    def _stop_overdue(self) -> None:
        """Attempts that run longer than an attempt may: stopped, and counted. Where there is no executor none runs,
        and none is late."""
        if self._granted is not None and not self._granted.executors:
            self.in_flight.restart_clocks(self._monotonic())
            return
        late = self._monotonic() - self._limits.task_seconds
        error = ErrorInfo(
            code="task_timeout",
            message=f"the attempt ran longer than {self._limits.task_seconds:g} s and was stopped",
            hint="`limits.task_seconds` sets how long an attempt may run",
            retryable=True,
        )
        overdue = [wave for wave in self.in_flight.waves() if wave.moved_at < late]
        for group in self.in_flight.stop(overdue, error, free=False, look=True):
            self._context.spawn(partial(self._runner.cancel, group))

    # -- leases and life --------------------------------------------------------------------------

    def stop_if_silent(self) -> None:
        """The store could not be reached for most of a lease: stop before another may start the same.
        Calls nothing, so it works when everything hangs."""
        if self._leases.silent():
            groups = self.in_flight.stop(self.in_flight.waves(), SILENT, free=True, look=True)
            if groups:
                _log.warning("%s", SILENT.message)
            for group in groups:
                self._context.spawn(partial(self._runner.cancel, group))

    def _beat(self) -> None:
        now = self._monotonic()
        if self._beat_at is not None and now - self._beat_at < self._limits.lease_seconds / 4:
            return
        long_ago = datetime.fromtimestamp(0, UTC)  # the store puts its own times
        self._granted = self._ask_granted()
        self._store.heartbeat(
            Worker(
                id=self.id,
                host=socket.gethostname(),
                reach=tuple(sorted(self._reach)),
                slots=self.slots,
                started_at=long_ago,
                heartbeat_at=long_ago,
                draining=self._stops > 0,
                error=self._last_error(),
                version=__version__,
                granted=self._granted,
            )
        )
        self._beat_at = now
        self._company.look()

    # -- running and stopping ---------------------------------------------------------------------

    def request_stop(self) -> None:
        """Once: drain. No new tasks; running ones finish or are handed back; leases are given up; pins
        are kept for the next worker. Twice: quick, and still safe. Callable from a signal handler: it takes no
        lock, because it may run in a thread that holds it. The loop looks within a tenth of a second."""
        self._stops += 1
        if self._drain_began_at is None:
            self._drain_began_at = self._monotonic()
        self._beat_at = None  # say at once that it is draining

    @property
    def is_stopping(self) -> bool:
        return self._stops > 0

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Tick until `until()` or `request_stop()`, then drain."""
        over = threading.Event()
        keepers = [
            threading.Thread(target=self._every, args=(over, call), daemon=True, name=name)
            for call, name in (
                (self._leases.renew_if_due, "calve-renew"),
                (self.stop_if_silent, "calve-guard"),
            )
        ]
        for keeper in keepers:
            keeper.start()
        try:
            self._tick_until(lambda: self._stops > 0 or until())
            self.drain()
        finally:
            over.set()
            for keeper in keepers:
                keeper.join(timeout=self._limits.call_seconds)
            if self._pool is not None:
                self._pool.close(wait=self._stops <= 1)

    def _every(self, over: threading.Event, call: Callable[[], None]) -> None:
        while not over.wait(self._limits.lease_seconds / 20):
            with self._guarded("keeping leases"):
                call()

    def _tick_until(self, over: Callable[[], bool]) -> None:
        while not over():
            self._wake.clear()  # before the tick: what happens during it is looked at after it
            seen = self._last_event()
            self.tick()
            due = time.monotonic() + self._limits.tick_seconds
            while not over() and (left := due - time.monotonic()) > 0:
                # What another program submits or asks for is seen long before the next tick is due.
                if self._wake.wait(min(left, _LOOK_SECONDS)) or self._last_event() != seen:
                    break

    def _last_event(self) -> int | None:
        try:
            return self._store.last_event()
        except CalveError:
            return None  # the tick meets it too, and shows it

    def drain(self) -> None:
        """Finish or hand back what runs, give up the leases, and be forgotten."""
        if not self._stops:
            self.request_stop()
        held = len(self.holding.leases())
        _log.info("draining: %d running tasks, %d processes are held", self.in_flight.slots_used(), held)
        self._tick_until(self._drained)
        for wave in self.in_flight.waves():
            self._runner.cancel(wave.group)
        self.in_flight.abandon(STOPPED)
        for lease in self.holding.leases():
            with self._guarded("handing back tasks"):
                if self.in_flight.lost(lease):
                    # if we die here, they are RUNNING, and the next worker counts a try
                    recover_tasks(self._context, lease, self._store.process(lease.process_id))
        with self._guarded("giving up leases"):
            for lease in self.holding.leases():
                self._give_up(lease)
            self._store.forget_worker(self.id)
            _log.info("drained in %.1f s: every lease is given up", self._drain_seconds())

    def _drained(self) -> bool:
        if self._stops > 1 or self._drain_seconds() > 2 * self._limits.lease_seconds:
            return True  # the next worker finds what runs by its receipts
        return (
            not self.in_flight.waves()
            and not self.holding.any_busy()
            and not self.holding.leases()
            and self._drain.idle
        )

    def _drain_over(self) -> bool:
        return self._drain_seconds() > self._limits.lease_seconds

    def _drain_seconds(self) -> float:
        return 0.0 if self._drain_began_at is None else self._monotonic() - self._drain_began_at


def _want(item: Gathered) -> Want:
    process = item.facts.process
    return Want(
        process_id=process.id,
        lane=process.lane,
        priority=process.priority,
        created_at=process.created_at,
        in_flight=item.facts.in_flight,
        ready=len(item.ready),
    )
