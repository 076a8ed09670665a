"""Facts as they are gathered from a store and from what this worker runs; its leases, and when it was silent too long."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from calve.control.facts import Around, Facts, Gathered, gather
from calve.control.inflight import InFlight, started
from calve.control.leases import Holding, Leases, to_begin
from calve.control.step import Fence, Publish
from calve.model.access import Halt
from calve.model.change import Change, NewPin, PinChange, TaskChange
from calve.model.errors import ConflictError
from calve.model.limits import Limits
from calve.model.process import Breaker, Lease, Process, ProcessId, TaskCounts
from calve.model.states import PinState, ProcessState, TaskState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    FAILURE,
    claimed,
    finish_task,
    lease_of,
    new,
    publishing,
    running,
    start_task,
)
from calve.testing.memory_store import MemoryStore

LIMITS = Limits()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def gathered(
    store: MemoryStore, process: Process, in_flight: InFlight | None = None, busy: str = "", **given: Any
) -> Gathered:
    known: dict[str, Any] = {
        "now": store.now(), "limits": LIMITS, "breakers": (), "halts": (), "free_slots": 2, "draining": False,
        "drain_over": False,
    }  # fmt: skip
    row = store.process(process.id)
    return gather(store, in_flight or InFlight(), lease_of(row), row, Around(**known | given), busy)


def test_nothing_is_known_of_a_process_that_just_began(store: MemoryStore) -> None:
    row = claimed(store)
    assert gathered(store, row) == Gathered(facts=Facts(process=row, now=store.now(), limits=LIMITS))
    nothing = gathered(store, publishing(store)).facts
    assert (nothing.in_flight, nothing.stopped, nothing.lost, nothing.ready, nothing.slots) == (0, 0, 0, 0, 0)
    assert not (nothing.stopping or nothing.draining or nothing.drain_over)


def test_facts_that_are_not_given_are_nothing() -> None:
    row = new().accepted(adopted=False, now=FakeClock().now())
    facts = Facts(process=row, now=FakeClock().now(), limits=LIMITS)
    assert (facts.in_flight, facts.stopped, facts.lost, facts.ready, facts.slots) == (0, 0, 0, 0, 0)
    assert not (facts.stopping or facts.draining or facts.drain_over)


def test_pins_of_an_attempt_that_left_no_plan_are_stale_unless_one_is_being_made(store: MemoryStore) -> None:
    row = claimed(store)
    for name in ("journaled", "taken", "releasing"):
        store.apply(lease_of(row), Change(NewPin(name=name, source="main", detail="{}")))
    store.apply(lease_of(row), Change(PinChange(name="taken", after=PinState.TAKEN)))
    store.apply(lease_of(row), Change(PinChange(name="releasing", after=PinState.RELEASING)))
    assert sorted(gathered(store, row).facts.stale_pins) == ["journaled", "taken"]
    assert gathered(store, row, busy="Plan").facts.stale_pins == ()


def test_tasks_are_counted_only_where_one_may_start(store: MemoryStore) -> None:
    row = running(store, 3)
    found = gathered(store, row)
    assert ([task.number for task in found.ready], found.facts.ready, found.facts.next_task_at) == (
        [1, 2],
        2,
        None,
    )
    down = Breaker(service="catalog:lake", reason="down", opened_at=store.now(), probe_at=store.now())
    held: tuple[dict[str, Any], ...] = (
        {"free_slots": 0}, {"draining": True}, {"breakers": [down]}, {"halts": [Halt(kind="export", source="", who="anne")]},
    )  # fmt: skip
    for around in held:
        assert gathered(store, row, **around).ready == (), around
    assert [task.number for task in gathered(store, row, free_slots=1).ready] == [1]


def test_L36_where_no_task_waits_none_is_looked_for(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = start_task(store, finish_task(store, start_task(store, running(store, 3))), 2)
    failed = TaskChange(number=3, before=TaskState.PENDING, after=TaskState.FAILED, attempt=0, error=FAILURE)
    row = store.apply(lease_of(row), Change(failed))
    monkeypatch.setattr(store, "ready_tasks", None)
    assert gathered(store, row).ready == ()


def test_when_the_next_task_may_start_is_asked_only_while_all_back_off(store: MemoryStore) -> None:
    row = start_task(store, running(store))
    again = TaskChange(
        number=1,
        before=TaskState.RUNNING,
        after=TaskState.PENDING,
        attempt=1,
        wait_seconds=60.0,
        error=FAILURE,
    )
    store.apply(lease_of(row), Change(again))
    found = gathered(store, row).facts
    assert (found.ready, found.next_task_at) == (0, store.now() + timedelta(seconds=60))
    assert gathered(store, row, free_slots=0).facts.next_task_at is None
    done = finish_task(store, start_task(store, running(store)))
    assert gathered(store, done).facts.next_task_at is None


def test_what_runs_in_the_store_and_not_here_is_lost(store: MemoryStore) -> None:
    row = running(store, 3)
    tasks = {task.number: task for task in store.tasks(row.id)}
    for number in tasks:
        row = start_task(store, row, number)
    in_flight = InFlight()
    assert gathered(store, row, in_flight).facts.lost == 3
    begun = started(tasks[1])
    wave = in_flight.begin(lease_of(row), [begun], 0.0)
    other = in_flight.begin(lease_of(row), [started(tasks[2])], 0.0)
    facts = gathered(store, row, in_flight).facts
    assert (facts.in_flight, facts.lost, facts.stopped, facts.stopping) == (2, 1, 0, False)
    in_flight.stop([wave], FAILURE, free=True, look=False)
    assert not gathered(store, row, in_flight).facts.stopping, "one of two"
    in_flight.stop([other], FAILURE, free=True, look=False)
    assert gathered(store, row, in_flight).facts.stopping
    in_flight.end(wave, FAILURE)
    facts = gathered(store, row, in_flight).facts
    assert (facts.in_flight, facts.lost, facts.stopped) == (1, 1, 1)


@pytest.mark.parametrize(("attempts", "words"), [(1, "at the first try"), (2, "after 2 tries")])
def test_the_task_that_failed_says_which_it_is_and_after_how_many_tries(
    store: MemoryStore, attempts: int, words: str
) -> None:
    row = running(store)
    for attempt in range(1, attempts + 1):
        row = start_task(store, row, attempt=attempt)
        after = TaskState.FAILED if attempt == attempts else TaskState.PENDING
        change = TaskChange(number=1, before=TaskState.RUNNING, after=after, attempt=attempt, error=FAILURE)
        row = store.apply(lease_of(row), Change(change))
    assert gathered(store, row).facts.failed_task == replace(
        FAILURE, message=f"task 1, {words}: {FAILURE.message}"
    )


def test_a_task_that_failed_without_an_error_says_nothing(store: MemoryStore) -> None:
    row = start_task(store, running(store))
    change = TaskChange(number=1, before=TaskState.RUNNING, after=TaskState.FAILED, attempt=1)
    row = store.apply(lease_of(row), Change(change))
    assert gathered(store, row).facts.failed_task is None


class Renewals(MemoryStore):
    """A store that counts them."""

    times = 0

    def renew(self, worker: Any, *, lease_seconds: float) -> None:
        self.times += 1
        super().renew(worker, lease_seconds=lease_seconds)


def test_what_a_worker_could_begin_if_it_had_the_slots() -> None:
    row = new().accepted(adopted=False, now=FakeClock().now())
    down = Breaker(service="s", reason="", opened_at=row.created_at, probe_at=row.created_at)

    def begins(state: ProcessState, counts: TaskCounts | None = None, **around: Any) -> int:
        of_state = replace(row, state=state, tasks=counts or TaskCounts())
        return to_begin(Facts(process=of_state, now=row.created_at, limits=LIMITS, **around))

    assert begins(ProcessState.PENDING) == 1
    some = TaskCounts(total=10, done=3, failed=1, running=2)
    assert [begins(ProcessState.RUNNING, some, in_flight=number) for number in (0, 2, 4, 9)] == [4, 4, 2, 0]
    assert begins(ProcessState.PUBLISHING, some) == 0
    held: tuple[dict[str, Any], ...] = (
        {"down": down},
        {"halted": Halt(kind="k", source="", who="a")},
        {"draining": True},
    )
    assert [begins(ProcessState.PENDING, **around) for around in held] == [0, 0, 0]


def test_a_lease_is_renewed_after_a_quarter_and_silent_after_three() -> None:
    store, now = Renewals(FakeClock()), [1000.0]
    leases = Leases(store, ANNE, replace(LIMITS, lease_seconds=40.0), lambda: now[0])
    for at, renewals in ((1009.9, 0), (1010.0, 1), (1019.9, 1), (1020.0, 2)):
        now[0] = at
        leases.renew_if_due()
        assert store.times == renewals, at
    now[0] = 1050.0
    assert not leases.silent()
    now[0] = 1050.1
    assert leases.silent()


def test_a_lease_that_is_given_up_is_not_held_and_a_newer_one_stays() -> None:
    holding = Holding(ANNE)
    store = MemoryStore(FakeClock())
    rows = [claimed(store), claimed(store)]
    mine = {row.id: lease_of(row) for row in rows}
    assert holding.update(rows) == []
    assert sorted(holding.leases(), key=str) == sorted(mine.values(), key=str)
    first, second = mine.values()
    holding.drop(Lease(process_id=first.process_id, worker=ANNE, fence=99))
    assert holding.lease(first.process_id) == first
    holding.drop(first)
    assert holding.keys() == {(second.process_id, second.fence)}
    with pytest.raises(ConflictError):
        holding.lease(first.process_id)
    assert holding.update([]) == [second]


def test_a_fence_beside_a_publish_is_what_a_process_is_busy_with() -> None:
    holding, lease = Holding(ANNE), Lease(process_id=ProcessId("p"), worker=ANNE, fence=1)
    assert (holding.busy(lease), holding.any_busy()) == ("", False)
    holding.begin(lease, Publish.__name__)
    assert (holding.busy(lease), holding.any_busy()) == ("Publish", True)
    holding.begin(lease, Fence.__name__)
    assert holding.busy(lease) == "Fence"
    holding.finish(lease, Fence.__name__)
    holding.finish(lease, Publish.__name__)
    assert (holding.busy(lease), holding.any_busy()) == ("", False)
