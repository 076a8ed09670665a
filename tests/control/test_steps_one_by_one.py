"""Each step by itself, over a store in memory: what it leaves, and what it does when something fails under it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from calve.control.budget import Breakers
from calve.control.inflight import InFlight, started
from calve.control.kind import AdoptedWork, Fenced, NothingToDo, Planned, Published
from calve.control.perform import performer
from calve.control.step import End, Fence, StopTasks
from calve.control.steps import plan as planning
from calve.control.steps import publish as steps
from calve.control.steps.context import Context, Plans
from calve.model.change import (
    Budget,
    Change,
    CleanUpIn,
    CountAttempt,
    LeftoversTo,
    PinChange,
    Result,
    TaskChange,
)
from calve.model.errors import (
    CalveError,
    ConflictError,
    ErrorInfo,
    FenceLostError,
    Outcome,
    PermanentError,
    StoreError,
    TemporaryError,
    UnavailableError,
)
from calve.model.limits import Limits
from calve.model.process import Lease, Pin, Process, ProcessId, ProcessQuery, Task
from calve.model.states import Leftovers, PinState, ProcessState, TaskState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    FAILURE,
    claim_one,
    claimed,
    finish_task,
    lease_of,
    move,
    new,
    publishing,
    running,
    start_task,
)
from calve.testing.fake_kind import FakeKind
from calve.testing.fake_runner import FakeRunner
from calve.testing.fake_world import World
from calve.testing.memory_store import MemoryStore

LIMITS = Limits(breaker_failures=5)
RESULT = Result(rows=1, files=1, bytes=1)
LANE = "catalog:lake"


@dataclass
class Told(FakeKind):
    """Answers what the test says, and remembers what it was given."""

    answer: Any = None
    given: list[Any] = field(default_factory=list)
    released: list[Pin] = field(default_factory=list)

    def _told(self, *given: Any) -> Any:
        self.given.append(given)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        if self.answer is None:
            return super().plan(process, pins, adopted)
        return self._told(pins)  # type: ignore[no-any-return]

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        return self._told(tuple(receipts))  # type: ignore[no-any-return]

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        return self._told()  # type: ignore[no-any-return]

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return self._told(tuple(receipts), tuple(used))  # type: ignore[no-any-return]

    def release(self, pin: Pin) -> None:
        self.released.append(pin)
        if len(self.released) == 1 and isinstance(self.answer, Exception):
            raise TemporaryError("not now", code="busy")


class Store(MemoryStore):
    """The next applies can be made to fail."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(self.clock)
        self.fails: list[CalveError | None] = []

    def apply(self, lease: Lease, change: Change) -> Process:
        failure = self.fails.pop(0) if self.fails else None
        if failure is not None:
            raise failure
        return super().apply(lease, change)


@pytest.fixture
def store() -> Store:
    return Store()


def context(store: MemoryStore, answer: Any = None) -> tuple[Context, Told]:
    world = World()
    kind = Told(world=world, answer=answer)
    made = Context(
        store=store, kinds={"export": kind}, runner=FakeRunner(world), limits=LIMITS, in_flight=InFlight(),
        breakers=Breakers(store, LIMITS), probes={}, plans=Plans(store), random=lambda: 0.5, monotonic=lambda: 0.0,
        spawn=lambda work: work(), draining=lambda: False, wake=lambda: None,
    )  # fmt: skip
    return made, kind


def events(store: MemoryStore, row: Process) -> list[str]:
    return [f"{event.name}: {event.message}" for event in store.events(row.id)]


def ended(store: MemoryStore, state: ProcessState = ProcessState.FAILED, **error: Any) -> Process:
    """Held again by a worker, with its files kept and due."""
    row = (
        publishing(store)
        if state is ProcessState.COMPLETED
        else finish_task(store, start_task(store, running(store, 2)))  # the second task ends with it
    )
    row = move(
        store, row, state, LeftoversTo(Leftovers.KEPT), CleanUpIn(0.0), error=replace(FAILURE, **error)
    )
    return claim_one(store, row.id)


# ---- publishing


def test_a_publish_is_given_the_receipts_of_all_tasks_and_ends_the_process(store: Store) -> None:
    made, kind = context(store, Published(result=RESULT, message="there"))
    row = publishing(store)
    made.breakers.failed(LANE, "it was down")
    steps.publish(made, lease_of(row), row)
    assert kind.given == [(('{"receipt": 1}',),)]
    after = store.process(row.id)
    assert (after.state, after.publish_attempts, after.leftovers) == (
        ProcessState.COMPLETED,
        1,
        Leftovers.NONE,
    )
    assert made.breakers.failed(LANE, "again") == 1, "what answered has failed no more"


def test_receipts_that_the_store_does_not_have_are_an_error_that_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kind = context(store, Published(result=RESULT, message="there"))
    row = publishing(store)
    monkeypatch.setattr(store, "tasks", lambda *_, **__: [])
    steps.publish(made, lease_of(row), row)
    error = store.process(row.id).error
    assert kind.given == [] and error is not None and error.code == "receipts_missing"


def test_a_row_that_moves_under_a_completion_is_read_again_a_few_times(store: Store) -> None:
    moved = ConflictError("it moved", code="conflict")
    for conflicts, state in (
        (1, ProcessState.COMPLETED),
        (2, ProcessState.COMPLETED),
        (3, ProcessState.PUBLISHING),
    ):
        row = publishing(store)
        store.fails = [moved] * conflicts
        steps.complete(context(store)[0], lease_of(row), Published(result=RESULT, message="there"))
        assert store.process(row.id).state is state


@pytest.mark.parametrize(
    ("attempts", "unused", "seconds"), [(1, False, None), (2, False, LIMITS.task_seconds), (1, True, 0.0)]
)
def test_what_lost_attempts_and_unused_files_left_is_looked_for_in_time(
    store: Store, attempts: int, unused: bool, seconds: float | None
) -> None:
    row = running(store, 2)
    for attempt in range(1, attempts):
        row = start_task(store, row, 1, attempt)
        row = store.apply(lease_of(row), Change(_again(1, attempt)))
    row = finish_task(store, start_task(store, row, 1, attempts), 1, attempts)
    row = finish_task(store, start_task(store, row, 2), 2)
    row = move(store, row, ProcessState.PUBLISHING)
    steps.complete(context(store)[0], lease_of(row), Published(result=RESULT, message="there", unused=unused))
    after = store.process(row.id)
    due = None if seconds is None else store.now() + timedelta(seconds=seconds)
    assert (after.leftovers is Leftovers.KEPT, after.cleanup_at) == (seconds is not None, due)


def _again(number: int, attempt: int) -> Any:
    return TaskChange(
        number=number, before=TaskState.RUNNING, after=TaskState.PENDING, attempt=attempt, error=FAILURE
    )


# ---- a store that fails is never taken for a service that failed


STORE_AWAY = StoreError("the store is away", code="store_failed")


@pytest.mark.parametrize("step", ["publish", "fence", "resolve", "undo"])
def test_an_error_of_the_store_is_no_answer_of_a_kind(store: Store, step: str) -> None:
    made, _ = context(store, STORE_AWAY)
    if step == "publish":
        row = publishing(store)
        work = lambda: steps.publish(made, lease_of(row), row)  # noqa: E731
    elif step == "fence":
        row = publishing(store)
        end = Fence(then=End(state=ProcessState.CANCELLED))
        work = lambda: steps.fence(made, lease_of(row), row, end)  # noqa: E731
    else:
        row = ended(store, outcome=Outcome.UNKNOWN if step == "resolve" else Outcome.NOT_APPLIED)
        work = lambda: getattr(steps, step)(made, lease_of(row), row)  # noqa: E731
    with pytest.raises(StoreError):
        work()
    after = store.process(row.id)
    assert after.error == row.error and after.cleanup_attempts == 0


# ---- ends


def test_what_runs_is_stopped_at_no_cost_and_nobody_looks_for_its_receipt(store: Store) -> None:
    made, _ = context(store)
    row = start_task(store, running(store))
    lease = lease_of(row)
    wave = made.in_flight.begin(lease, [started(replace(store.tasks(row.id)[0], attempt=0))], 0.0)
    steps.stop_waves(made, lease, steps.ENDED)
    made.in_flight.end(wave, FAILURE)
    [lost] = made.in_flight.lost(lease).values()
    assert (lost.error, lost.free, lost.stopped) == (steps.ENDED, True, True)
    assert steps.ENDED.retryable


def test_tasks_that_are_stopped_are_told_why(store: Store) -> None:
    made, _ = context(store)
    row = start_task(store, running(store))
    wave = made.in_flight.begin(lease_of(row), [started(replace(store.tasks(row.id)[0], attempt=0))], 0.0)
    performer(made, lease_of(row), row, StopTasks(code="down", reason="it is down"), ())()
    assert wave.stop == ErrorInfo(code="down", message="it is down", retryable=True)


@pytest.mark.parametrize(
    ("outcome", "leftovers", "seconds"),
    [
        (Outcome.NOT_APPLIED, Leftovers.KEPT, LIMITS.keep_failed_hours * 3600),
        (Outcome.UNKNOWN, Leftovers.NONE, LIMITS.backoff_most_seconds),
    ],
)
def test_files_of_what_failed_are_kept_and_an_unknown_outcome_is_looked_for(
    store: Store, outcome: Outcome, leftovers: Leftovers, seconds: float
) -> None:
    row = running(store)
    step = End(state=ProcessState.FAILED, error=replace(FAILURE, outcome=outcome))
    steps.apply_end(context(store)[0], lease_of(row), row, step)
    after = store.process(row.id)
    assert (after.leftovers, after.cleanup_at) == (leftovers, store.now() + timedelta(seconds=seconds))


def test_an_outcome_that_is_resolved_keeps_the_files_for_a_retry(store: Store) -> None:
    made, _ = context(store, Fenced())
    row = running(store)
    unknown = End(state=ProcessState.FAILED, error=replace(FAILURE, outcome=Outcome.UNKNOWN))
    steps.apply_end(made, lease_of(row), row, unknown)
    due = store.process(row.id).cleanup_at
    assert due is not None
    store.clock.advance((due - store.now()).total_seconds())
    row = claim_one(store, row.id)
    steps.resolve(made, lease_of(row), row)
    after = store.process(row.id)
    assert after.error is not None and after.error.outcome is Outcome.NOT_APPLIED
    assert after.cleanup_at == store.now() + timedelta(hours=LIMITS.keep_failed_hours)


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 60.0), (1, 120.0), (5, 1920.0), (6, 3600.0), (20, 3600.0)]
)
def test_a_clean_up_that_fails_is_tried_again_less_and_less_often(
    store: Store, attempts: int, seconds: float
) -> None:
    made, _ = context(store, PermanentError("denied", code="denied"))
    row = ended(store, outcome=Outcome.UNKNOWN)
    for _ in range(attempts):
        row = store.apply(lease_of(row), Change(CountAttempt(Budget.CLEANUP)))
    steps.resolve(made, lease_of(row), row)
    after = store.process(row.id)
    assert (after.cleanup_attempts, after.cleanup_at) == (
        attempts + 1,
        store.now() + timedelta(seconds=seconds),
    )
    assert events(store, row)[-1] == "still_unknown: denied: denied"


@pytest.mark.parametrize(
    ("state", "left", "said"),
    [
        (ProcessState.FAILED, "", ["undoing: its files are no longer kept for a retry", "undone: nothing of it is left to delete"]),
        (ProcessState.COMPLETED, "a file", ["undoing: files that it did not publish are looked for", "undone: left in place: a file"]),
    ],
)  # fmt: skip
def test_an_undo_is_given_the_receipts_and_says_what_it_left(
    store: Store, state: ProcessState, left: str, said: list[str]
) -> None:
    made, kind = context(store, left)
    row = ended(store, state)
    steps.undo(made, lease_of(row), row)
    assert kind.given == [(('{"receipt": 1}',), ())]
    assert events(store, row)[-2:] == said
    assert store.process(row.id).leftovers is Leftovers.GONE


@dataclass
class Family:
    """Processes by what they retry, each with one receipt of its own name."""

    retries: dict[str, list[Process]]

    def processes(self, query: ProcessQuery) -> list[Process]:
        return self.retries.get(str(query.retry_of), [])

    def tasks(self, process_id: ProcessId, states: frozenset[TaskState]) -> list[Task]:
        if states != {TaskState.DONE}:
            return []
        return [
            Task(
                process_id=process_id,
                number=0,
                state=TaskState.DONE,
                attempt=1,
                spec="",
                receipt=str(process_id),
            )
        ]


def _retry(name: str, state: ProcessState, **given: Any) -> Process:
    made = new(id=ProcessId(name)).accepted(adopted=True, now=FakeClock().now())
    return replace(made, state=state, **given)


FATES: dict[str, tuple[Process, bool]] = {
    "running": (_retry("r", ProcessState.RUNNING), True),
    "completed, and sent": (_retry("r", ProcessState.COMPLETED, publish_sent=True), True),
    "completed, with files": (_retry("r", ProcessState.COMPLETED, files=1), True),
    "completed by others": (_retry("r", ProcessState.COMPLETED), False),
    "failed for certain": (_retry("r", ProcessState.FAILED, error=FAILURE), False),
    "failed, unknown": (
        _retry("r", ProcessState.FAILED, error=replace(FAILURE, outcome=Outcome.UNKNOWN)),
        True,
    ),
    "failed, and published": (
        _retry("r", ProcessState.FAILED, error=replace(FAILURE, outcome=Outcome.APPLIED)),
        True,
    ),
    "cancelled": (_retry("r", ProcessState.CANCELLED), False),
}


@pytest.mark.parametrize(("retry", "may_use"), FATES.values(), ids=FATES)
def test_T2_files_that_a_retry_may_have_published_are_named_by_the_store(
    retry: Process, may_use: bool
) -> None:
    first = _retry("p", ProcessState.FAILED, error=FAILURE)
    second = _retry("rr", ProcessState.RUNNING)
    family = Family({"p": [retry], "r": [second]})
    found = steps.used_by_retries(family, first)  # type: ignore[arg-type]
    assert found == (["r", "rr"] if may_use else ["rr"])


# ---- planning


def test_each_try_at_planning_takes_pins_of_its_own_and_keeps_what_they_say(store: Store) -> None:
    made, kind = context(store)
    row = claimed(store)
    kind.answer = TemporaryError("not now", code="busy")
    planning.plan(made, lease_of(row), row)
    row = store.process(row.id)
    kind.answer = None
    made.breakers.failed(LANE, "it was down")
    planning.plan(made, lease_of(row), row)
    assert sorted(pin.name for pin in store.pins(row.id)) == [
        f"calve-{row.id}-{number}-0" for number in (1, 2)
    ]
    [held] = [pin for pin in store.pins(row.id) if pin.state is PinState.TAKEN]
    assert held.detail == '{"taken": true}'
    assert made.breakers.failed(LANE, "x") == 1


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 0.75), (2, 3.0)])
def test_planning_backs_off_by_the_tries_there_were(store: Store, attempts: int, seconds: float) -> None:
    made, _ = context(store, TemporaryError("not now", code="busy"))
    row = claimed(store)
    for _ in range(attempts):
        row = store.apply(lease_of(row), Change(CountAttempt(Budget.PLAN)))
    planning.plan(made, lease_of(row), row)
    after = store.process(row.id)
    assert after.plan_attempts == attempts + 1
    assert after.not_before == store.now() + timedelta(seconds=seconds * LIMITS.backoff_first_seconds)


def test_pins_of_a_plan_that_came_too_late_are_let_go_each_of_them(store: Store) -> None:
    made, kind = context(store, FenceLostError("it is another's", code="fence_lost"))
    row = claimed(store, request='{"pins": 2}')
    with pytest.raises(FenceLostError):
        planning.plan(made, lease_of(row), row)
    assert [(pin.state, pin.detail) for pin in kind.released] == [(PinState.TAKEN, '{"taken": true}')] * 2


def test_a_kind_that_says_nothing_of_a_pin_is_a_defect_and_no_plan(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kind = context(store)
    row = claimed(store)
    monkeypatch.setattr(kind, "take", lambda *_: [])
    with pytest.raises(ValueError, match="zip"):
        planning.plan(made, lease_of(row), row)
    monkeypatch.setattr(kind, "take", lambda _, pins: [PinChange(name=pins[0].name, after=PinState.TAKEN)])
    kind.answer = NothingToDo(result=RESULT, message="done")
    row = store.process(row.id)
    planning.plan(made, lease_of(row), row)
    [[pins]] = kind.given
    assert [pin.detail for pin in pins] == ["{}"]


# ---- what every step needs


def test_a_plan_is_read_once_while_it_is_held(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    row, other = running(store), running(store)
    plans = Plans(store)
    assert plans.require(row.id) == plans.require(other.id) == '{"plan": 1}'
    plans.keep_only(frozenset({row.id}))
    monkeypatch.setattr(store, "plan", lambda _: None)
    assert plans.require(row.id) == '{"plan": 1}'
    with pytest.raises(PermanentError, match="not in the store"):
        plans.require(other.id)


def test_a_kind_that_a_worker_does_not_know_is_said(store: Store) -> None:
    with pytest.raises(PermanentError) as refused:
        context(store)[0].kind(claimed(store, kind="new"))
    assert refused.value.code == "unknown_kind"


def test_an_outage_backs_off_as_after_a_first_try(store: Store) -> None:
    made, _ = context(store)
    row = claimed(store)
    away = ErrorInfo(code="away", message="away", retryable=True, service=LANE)
    assert UnavailableError("away", code="away", service=LANE).info.retryable
    made.met(lease_of(row), row, away, tries=5)
    assert store.process(row.id).not_before == store.now() + timedelta(
        seconds=0.75 * LIMITS.backoff_first_seconds
    )
