"""Random lives of workers against a model, as a Hypothesis state machine over any store.

The model knows three things: which locks are held, what ended and how, and that nothing else may
change. Everything else is an invariant of the `Scene`. At the end all faults stop, everything gets
its time, and nothing may be left.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from calve.control.client import cancel, retry
from calve.control.registry import ServedStore
from calve.control.worker import WorkerLoop
from calve.model.access import Asked, Halt
from calve.model.errors import (
    CalveError,
    ErrorInfo,
    Outcome,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnknownOutcomeError,
)
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, new_process_id
from calve.model.states import PROCESS_TERMINAL, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.fake_runner import Ending, Ends
from calve.testing.faults import Break, Crash, Faults
from calve.testing.scene import Scene

LIMITS = Limits(
    slots=3, processes_per_worker=4, task_attempts=3, plan_attempts=3, publish_attempts=4, fence_attempts=2
)
LANES = ("catalog:lake", "catalog:pond")
SERVICES = (*LANES, "source:main")
KEYS = ("a", "b", "c")
FLAKY = ErrorInfo(code="flaky", message="it broke", retryable=True)
DENIED = ErrorInfo(code="denied", message="wrong credentials")
NO_ANSWER = ErrorInfo(code="no_answer", message="no answer", retryable=True, outcome=Outcome.UNKNOWN)
ENDINGS: tuple[Ending, ...] = (*Ends, FLAKY, DENIED, NO_ANSWER)
COMMITS = ("ok", "lost", "dropped", "late", "conflict")
ERRORS: tuple[Callable[[], CalveError], ...] = (
    lambda: TemporaryError("it broke", code="flaky"),
    lambda: PermanentError("wrong credentials", code="denied"),
    lambda: UnknownOutcomeError("no answer", code="no_answer"),
)
OPERATOR = Asked(who="anne", verb="halt")
CALLS = ("take", "plan", "find_receipt", "publish", "send", "fence", "undo", "release")


class Simulation(RuleBasedStateMachine):
    """Subclass it and say how to make a store."""

    @abstractmethod
    def make_store(self, clock: FakeClock) -> ServedStore: ...

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        clock = FakeClock()
        self.store = self.make_store(clock)
        self.scene = Scene(store=self.store, clock=clock, limits=LIMITS, seed=seed)
        self.prefix = new_process_id()  # stores may be shared by many lives
        self.ended: dict[ProcessId, ProcessState] = {}
        self.key_of: dict[ProcessId, str] = {}
        self.workers: list[tuple[WorkerLoop, Faults]] = []
        self.start_worker()

    # -- what people do ---------------------------------------------------------------------------

    @rule(
        tasks=st.integers(0, 4),
        pins=st.integers(0, 2),
        lane=st.sampled_from(LANES),
        key=st.sampled_from(KEYS),
    )
    def submit(self, tasks: int, pins: int, lane: str, key: str) -> None:
        name = f"{self.prefix}-{key}"
        held = self._holds(name)
        try:
            process_id = self.scene.submit(lane=lane, key=name, tasks=tasks, pins=pins)
        except RefusedError:
            assert held, "refused, and nobody holds the lock"
        else:
            assert not held, "accepted under a lock that is held"
            self.key_of[process_id] = name

    @rule(which=st.integers(0, 9))
    def ask_to_cancel(self, which: int) -> None:
        if self.scene.ids:
            process_id = self.scene.ids[which % len(self.scene.ids)]
            before = self.scene.state(process_id)
            answer = cancel(self.scene.store, process_id)
            too_late = before in PROCESS_TERMINAL and before is not ProcessState.CANCELLED
            assert answer.accepted is not too_late

    @rule(which=st.integers(0, 9))
    def run_again(self, which: int) -> None:
        if not self.scene.ids:
            return
        old = self.scene.row(self.scene.ids[which % len(self.scene.ids)])
        name = self.key_of[old.id]
        try:
            made = retry(self.scene.store, old.id)
        except RefusedError:
            assert old.state not in (ProcessState.FAILED, ProcessState.CANCELLED) or self._holds(name)
            return
        if made.joined:
            assert self.scene.row(made.process.id).retry_of == old.id
            return
        self.scene.ids.append(made.process.id)
        self.key_of[made.process.id] = name

    @rule(source=st.sampled_from(("", "main:db.events")))
    def halt_or_lift(self, source: str) -> None:
        if not self.store.lift_halt("fake", source, OPERATOR):
            self.store.put_halt(Halt(kind="fake", source=source, who=OPERATOR.who), OPERATOR)

    def _holds(self, name: str) -> bool:
        rows = [self.scene.row(key) for key, lock in self.key_of.items() if lock == name]
        return any(row.state not in PROCESS_TERMINAL or _unknown(row) for row in rows)

    # -- what workers do --------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def start_worker(self) -> None:
        faults = Faults()
        self.workers.append((self.scene.worker(faults=faults), faults))

    @rule(which=st.integers(0, 2), ticks=st.integers(1, 5))
    def tick(self, which: int, ticks: int) -> None:
        if self.workers:
            worker, _ = self.workers[which % len(self.workers)]
            for _ in range(ticks):
                worker.tick()

    @rule(
        which=st.integers(0, 2), after=st.integers(1, 12), how=st.sampled_from(Break), ticks=st.integers(1, 4)
    )
    def tick_and_break(self, which: int, after: int, how: Break, ticks: int) -> None:
        """The worker dies, or one of its calls fails, before or after it took place."""
        if not self.workers:
            return
        worker, faults = self.workers[which % len(self.workers)]
        faults.at, faults.how = len(faults.calls) + after, how
        try:
            for _ in range(ticks):
                worker.tick()
        except Crash:
            self.workers = [pair for pair in self.workers if pair[0] is not worker]
        faults.at = 0

    @rule(which=st.integers(0, 2))
    def drain(self, which: int) -> None:
        if self.workers:
            worker, _ = self.workers.pop(which % len(self.workers))
            worker.request_stop()
            worker.tick()
            worker.request_stop()
            worker.drain()

    # -- what the world does ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.5, 3.0, 20.0, 40.0, 3600.0, 30_000.0)))
    def time_passes(self, seconds: float) -> None:
        self.scene.clock.advance(seconds)

    @rule(which=st.integers(0, 9), number=st.integers(0, 3), ending=st.sampled_from(ENDINGS))
    def an_attempt_will_end(self, which: int, number: int, ending: Ending) -> None:
        if self.scene.ids:
            process_id = self.scene.ids[which % len(self.scene.ids)]
            self.scene.runner.script[process_id, number].append(ending)

    @rule(how=st.sampled_from(COMMITS))
    def a_commit_will_go(self, how: str) -> None:
        self.scene.world.commits.append(how)

    @rule(call=st.sampled_from(CALLS), error=st.sampled_from(ERRORS))
    def a_call_will_fail(self, call: str, error: Callable[[], CalveError]) -> None:
        self.scene.world.fail(call, error())

    @rule(service=st.sampled_from(SERVICES))
    def goes_down_or_comes_back(self, service: str) -> None:
        self.scene.world.down ^= {service}

    @rule()
    def late_requests_arrive(self) -> None:
        self.scene.world.land_late()

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def nothing_forbidden_happened(self) -> None:
        if not hasattr(self, "scene"):
            return
        self.scene.check()
        for process_id in self.scene.ids:
            state = self.scene.state(process_id)
            assert self.ended.get(process_id, state) is state, "a terminal state changed"
            if state in PROCESS_TERMINAL:
                self.ended[process_id] = state

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        for halt in self.store.halts():
            self.store.lift_halt(halt.kind, halt.source, OPERATOR)
        scene.world.down.clear()
        scene.world.faults.clear()
        scene.world.commits.clear()
        scene.runner.script.clear()
        scene.clock.advance(2 * LIMITS.lease_seconds)  # workers that died are known to be dead
        worker = scene.worker()
        scene.run(worker, ticks=60, seconds=20.0)
        for _ in range(14):  # unknown outcomes are resolved, then leftovers undone, chains of them too
            scene.clock.advance(LIMITS.keep_failed_hours * 3600)
            for _ in range(2):
                worker.tick()
        scene.world.land_late()
        self.nothing_forbidden_happened()
        scene.check_settled()
        for process_id in scene.ids:
            assert not _unknown(scene.row(process_id)), "an outcome is still unknown"
        self.close(scene.store)

    def close(self, store: Any) -> None:
        store.close()


def _unknown(row: Process) -> bool:
    return row.error is not None and row.error.outcome is Outcome.UNKNOWN and row.state in PROCESS_TERMINAL
