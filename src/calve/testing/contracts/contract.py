"""The stage of a contract test: a store with a clock, and short ways to bring a process somewhere."""

from typing import Any

import pytest

from calve.control.ports import Store
from calve.model.change import Change, CleanUpIn, Item, MoveTo, TaskChange, WritePlan
from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import Lease, Lock, NewProcess, NewTask, Process, ProcessId, WorkerId, new_process_id
from calve.model.states import ProcessState, TaskState
from calve.testing.clock import FakeClock

REACH = frozenset({"source:main", "catalog:lake"})
ANNE, BERT = WorkerId("anne-1"), WorkerId("bert-2")
LEASE_SECONDS = 30.0
FAILURE = ErrorInfo(code="broken", message="it broke", hint="fix it")
UNKNOWN = ErrorInfo(code="lost", message="no answer", retryable=True, outcome=Outcome.UNKNOWN)


class Contract:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def store(self, clock: FakeClock) -> Store:
        raise NotImplementedError("the class that inherits the contract gives the store")


def new(**given: Any) -> NewProcess:
    defaults: dict[str, Any] = {
        "id": new_process_id(),
        "kind": "export",
        "source": "main:db.events",
        "destination": "lake.ns.events",
        "lane": "catalog:lake",
        "needs": ("catalog:lake", "source:main"),
        "request": "{}",
    }
    if "lock" in given:
        given["locks"] = (Lock(name=given.pop("lock")),)
    return NewProcess(**defaults | given)


def submit(store: Store, **given: Any) -> Process:
    return store.submit([new(**given)])[0]


def lease_of(process: Process) -> Lease:
    assert process.owner is not None
    return Lease(process_id=process.id, worker=process.owner, fence=process.fence)


def claim_one(store: Store, process_id: ProcessId, worker: WorkerId = ANNE) -> Process:
    claimed = store.claim(worker, REACH, lease_seconds=LEASE_SECONDS, limit=1000)
    return next(process for process in claimed if process.id == process_id)


def claimed(store: Store, worker: WorkerId = ANNE, **given: Any) -> Process:
    """A new process, held by a worker."""
    return claim_one(store, submit(store, **given).id, worker)


def running(store: Store, tasks: int = 1, worker: WorkerId = ANNE, **given: Any) -> Process:
    """Planned, with that many pending tasks."""
    process = claimed(store, worker, **given)
    change = Change(
        MoveTo(ProcessState.RUNNING),
        WritePlan('{"plan": 1}'),
        *tuple(NewTask(number=number, spec=f'{{"n": {number}}}') for number in range(1, tasks + 1)),
        expect_version=process.version,
    )
    return store.apply(lease_of(process), change)


def start_task(store: Store, process: Process, number: int = 1, attempt: int = 1) -> Process:
    change = TaskChange(number=number, before=TaskState.PENDING, after=TaskState.RUNNING, attempt=attempt)
    return store.apply(lease_of(process), Change(change))


def done(number: int = 1, attempt: int = 1, **given: Any) -> TaskChange:
    return TaskChange(
        number=number,
        before=TaskState.RUNNING,
        after=TaskState.DONE,
        attempt=attempt,
        **{"receipt": '{"receipt": 1}'} | given,
    )


def finish_task(store: Store, process: Process, number: int = 1, attempt: int = 1, **given: Any) -> Process:
    return store.apply(lease_of(process), Change(done(number, attempt, **given)))


def publishing(store: Store, **given: Any) -> Process:
    process = running(store, **given)
    process = start_task(store, process)
    process = finish_task(store, process)
    return move(store, process, ProcessState.PUBLISHING)


def move(
    store: Store, process: Process, state: ProcessState, *also: Item, error: ErrorInfo | None = FAILURE
) -> Process:
    """`error` goes with FAILED only."""
    moves = MoveTo(state, error if state is ProcessState.FAILED else None)
    return store.apply(lease_of(process), Change(moves, *also, expect_version=process.version))


def in_state(store: Store, state: ProcessState) -> Process:
    """A process in that state, held by a worker, also when it has ended."""
    match state:
        case ProcessState.PENDING:
            return claimed(store)
        case ProcessState.RUNNING:
            return running(store)
        case ProcessState.PUBLISHING:
            return publishing(store)
        case ProcessState.COMPLETED | ProcessState.FAILED | ProcessState.CANCELLED:
            before = publishing(store) if state is ProcessState.COMPLETED else running(store)
            ended = move(store, before, state, CleanUpIn(0))
            return claim_one(store, ended.id)
