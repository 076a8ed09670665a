"""Whatever is done to them, in whatever order: the store in memory and the one in SQLite answer alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calve.control.registry import ServedStore
from calve.model.access import Asked, Halt
from calve.model.change import (
    Budget,
    Change,
    CleanUpIn,
    ClearWait,
    CountAttempt,
    LeftoversTo,
    Met,
    MoveTo,
    NewPin,
    NoCleanUp,
    PinChange,
    RefundAttempt,
    TaskChange,
    Unlock,
    WaitFor,
    WritePlan,
)
from calve.model.errors import CalveError
from calve.model.process import Lease, NewTask, ProcessId, ProcessQuery
from calve.model.states import Leftovers, PinState, ProcessState, TaskState
from calve.store import open_store
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import ANNE, BERT, FAILURE, REACH, UNKNOWN, new
from calve.testing.memory_store import MemoryStore

IDS = [ProcessId(name) for name in ("pa", "pb", "pc")]
some_id, worker = st.sampled_from(IDS), st.sampled_from([ANNE, BERT])
ASKED = Asked(who="bert", verb="halt")
maybe_error = st.sampled_from([None, FAILURE, UNKNOWN])

task_changes = st.builds(
    TaskChange,
    number=st.integers(1, 2),
    before=st.sampled_from(TaskState),
    after=st.sampled_from(TaskState),
    attempt=st.integers(0, 2),
    receipt=st.sampled_from(["", "r"]),
    rows=st.integers(0, 2**40),
    wait_seconds=st.sampled_from([0.0, 20.0]),
    error=maybe_error,
)
pending = (NewTask(number=1, spec="{}"), NewTask(number=2, spec="{}"))


def maybe(*items: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """None of these items, or one of them."""
    return st.sampled_from([(), *((item,) for item in items)])


changes = st.tuples(
    st.builds(MoveTo, st.sampled_from(ProcessState), maybe_error).map(lambda item: (item,)) | st.just(()),
    maybe(WritePlan("{}")),
    st.sampled_from([(), pending]),
    st.lists(task_changes, max_size=2).map(tuple),
    maybe(NewPin(name="pin", source="main", detail="{}")),
    maybe(*(PinChange(name="pin", after=state) for state in PinState)),
    maybe(ClearWait(), WaitFor(20.0)),
    maybe(Met(FAILURE), Met(UNKNOWN)),
    maybe(*map(LeftoversTo, Leftovers)),
    maybe(NoCleanUp(), CleanUpIn(0.0), CleanUpIn(40.0)),
    maybe(Unlock()),
    maybe(CountAttempt(Budget.PLAN), RefundAttempt(Budget.PLAN)),
).map(lambda parts: Change(*(item for part in parts for item in part)))
calls = st.one_of(
    st.tuples(st.just("submit"), some_id, st.sampled_from([None, *IDS]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("claim"), worker, st.integers(0, 2), st.sampled_from([frozenset(), frozenset({"a"})])),
    st.tuples(st.just("apply"), some_id, worker, changes),
    st.tuples(st.just("apply"), some_id, worker, changes),
    st.tuples(st.just("cancel"), some_id),
    st.tuples(st.just("keyed"), some_id, st.sampled_from(["k1", "k2"]), st.sampled_from(["h1", "h2"])),
    st.tuples(st.just("halt"), st.sampled_from(["", "main:db.events"])),
    st.tuples(st.just("lift"), st.sampled_from(["", "main:db.events"])),
    st.tuples(st.just("number"), st.integers(1, 3)),
    st.tuples(st.just("forget"), st.integers(1, 9)),
    st.tuples(st.just("renew"), worker),
    st.tuples(st.just("yield"), some_id, worker),
    st.tuples(st.just("drain"), worker),
    st.tuples(st.just("released"), maybe_error),
    st.tuples(st.just("advance"), st.sampled_from([7.0, 33.0])),
)


def perform(store: ServedStore, clock: FakeClock, call: tuple[Any, ...]) -> Any:
    match call:
        case ("submit", process_id, retry_of, lane):
            return store.submit([new(id=process_id, retry_of=retry_of, lane=lane, lock=f"lock {lane}")])
        case ("claim", name, limit, closed):
            return store.claim(name, REACH, lease_seconds=30, limit=limit, closed_lanes=closed)
        case ("apply", process_id, name, change):
            row = store.process(process_id)
            lease = Lease(process_id=process_id, worker=row.owner or name, fence=row.fence)
            return store.apply(lease, Change(*change.items, expect_version=row.version))
        case ("cancel", process_id):
            return store.request_cancel(process_id)
        case ("keyed", process_id, key, hash):
            asked = Asked(who="anne", verb="export", key=key, hash=hash)
            return store.submit([new(id=process_id, lock=f"lock {key}")], asked=asked)
        case ("halt", source):
            return store.put_halt(Halt(kind="export", source=source, who="anne"), ASKED)
        case ("lift", source):
            return store.lift_halt("export", source, ASKED)
        case ("number", limit):
            return store.number_events(limit)
        case ("forget", limit):
            return store.forget_history(days=0.0001, after=0, limit=limit) > 0
        case ("renew", name):
            return sorted(store.renew(name, lease_seconds=30))
        case ("yield", process_id, name):
            return store.yield_(
                Lease(process_id=process_id, worker=name, fence=store.process(process_id).fence)
            )
        case ("drain", name):
            return store.claim_releases(name, REACH, limit=5, lease_seconds=30)
        case ("released", error):
            return store.record_release("pin", error, retry_seconds=20)
        case ("advance", seconds):
            return clock.advance(seconds)
        case other:
            raise AssertionError(other)


def answer(store: ServedStore, clock: FakeClock, call: tuple[Any, ...]) -> Any:
    try:
        return timeless(perform(store, clock, call))
    except CalveError as error:
        return type(error), error.code


def timeless(value: Any) -> Any:
    """Times differ between the clocks; whether there is one does not. Events are numbered apart."""
    if isinstance(value, list | tuple):
        return [timeless(item) for item in value]
    if isinstance(value, datetime):
        return "a time"
    if hasattr(value, "__dataclass_fields__"):
        return {item.name: timeless(getattr(value, item.name)) for item in fields(value)}
    return value


def everything(store: ServedStore) -> dict[str, Any]:
    rows = store.processes(ProcessQuery())
    return {
        "processes": timeless(rows),
        "live": timeless(store.live()),
        "tasks": [timeless(store.tasks(row.id)) for row in rows],
        "ready": [timeless(store.ready_tasks(row.id, 5)) for row in rows],
        "next": [timeless(store.next_task_at(row.id)) for row in rows],
        "pins": timeless(store.pins()),
        "holders": [timeless(store.holder(f"lock {lane}")) for lane in "ab"],
        "halts": timeless(store.halts()),
        "audit": timeless(store.audited(None, 100)),
        "requests": [timeless(store.request("anne", key)) for key in ("k1", "k2")],
        "feed": [(event.process_id, event.name, event.position) for event in store.feed(0, 1000)],
        "forgotten": replace(store.feed_state(), store_id=""),
        "totals": timeless(store.totals().tallies),
        "plans": [store.plan(row.id) for row in rows],
        "events": [[(event.name, event.message) for event in store.events(row.id)] for row in rows],
    }


@contextmanager
def both() -> Iterator[tuple[tuple[ServedStore, FakeClock], tuple[ServedStore, FakeClock]]]:
    first, second = FakeClock(), FakeClock()
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'calve.db'}"
        with open_store(url, clock_offset_seconds=second.offset_seconds) as store:
            yield (MemoryStore(first), first), (store, second)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(calls, max_size=25))
def test_the_stores_agree_after_every_sequence_of_calls(sequence: list[tuple[Any, ...]]) -> None:
    start = [("submit", IDS[0], None, "a"), ("submit", IDS[1], None, "b"), ("claim", ANNE, 2, frozenset())]
    with both() as (memory, sqlite):
        for call in [*start, *sequence]:
            assert answer(*memory, call) == answer(*sqlite, call), call
        assert everything(memory[0]) == everything(sqlite[0])
