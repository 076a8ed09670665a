"""A return from the lake in which every call dies, before or after its effect, in which another worker takes over at every
call, and which is cancelled at every call: each row is shown once at every moment, and none is in the table twice."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

from calve.control.kind import Fenced, Published
from calve.destination.proof import Scan, ScanFile
from calve.model.errors import CalveError, ConflictError, PermanentError, RefusedError
from calve.model.process import NewProcess, Process, ProcessId
from calve.model.states import ProcessState
from calve.policy.proof.plan import Depth, ProofPlan, ProofReceipt
from calve.policy.row_hash import RowSums
from calve.policy.untier.kind import UntierKind
from calve.policy.untier.plan import UntierJournal, UntierPlan, UntierRequest

T = TypeVar("T")
ROWS = (1, 2, 3)
REQUEST = UntierRequest(
    source="main", database="db", table="events", partition="202401", destination="lake.ns.events", catalog="lake",
    identifier=("ns", "events"),
)  # fmt: skip
SCAN = Scan(
    metadata="",
    location="",
    snapshot_id="1",
    current=True,
    files=(ScanFile(path="f", bytes=1, rows=3, spec_id=0),),
)
PLAN = UntierPlan(
    process_id="p", request=REQUEST, uuid="u", identity="i", create_query="", lake_uuid="l", key_hash="k", content="c",
    rows=len(ROWS), value="202401",
    proof=ProofPlan(process_id="p", export="e", depth=Depth.ROWS, scan=SCAN, tasks=((0,),), schema=""),
)  # fmt: skip


def sums(rows: tuple[int, ...]) -> RowSums:
    return RowSums(rows=len(rows), first=sum(rows), second=sum(one * one for one in rows))


RECEIPTS = [ProofReceipt(rows=3, bytes=1, sums=str(sums(ROWS)), others=str(RowSums())).to_json()]


class Died(BaseException):
    """The program is gone; nothing it would have done happens."""


@dataclass
class World:
    """The table, the lake, the view and the store's note. `at` is asked before and after each effect."""

    table: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    scratches: dict[str, tuple[int, ...] | None] = field(default_factory=dict)  # None: made, and not filled
    closed: set[str] = field(default_factory=set)
    lake: tuple[int, ...] = ROWS
    content: str = "c"
    only_copy: bool = True
    cold: bool = True
    holds: int = 0
    note: str = ""
    attempts: int = 0
    fence: int = 1
    calls: int = 0
    at: Callable[[int, str], None] = lambda number, when: None

    def effect(self, act: Callable[[], T]) -> T:
        self.calls += 1
        number = self.calls
        self.at(number, "before")
        done = act()
        self.check()
        self.at(number, "after")
        return done

    def check(self) -> None:
        shown = sorted(self.lake if self.cold else self.table + self.late)
        assert shown[: len(ROWS)] == list(ROWS) and (self.cold or len(self.table) == len(ROWS)), "shown once"
        assert self.table in ((), ROWS), "in the table once"
        assert not self.table or self.holds or not self.cold, "held before it arrives"
        assert self.only_copy or self.table == ROWS, "the lake guards what is nowhere else"

    def process(self) -> Process:
        new = NewProcess(
            id=ProcessId("p"),
            kind="untier",
            source="",
            destination="lake.ns.events",
            lane="",
            needs=(),
            request="",
        )
        made = new.accepted(adopted=False, now=datetime(2026, 1, 1, tzinfo=UTC))
        return replace(
            made,
            state=ProcessState.PUBLISHING,
            publish_note=self.note,
            publish_sent=bool(self.note),
            publish_attempts=self.attempts,
        )


@dataclass
class Sides:
    """See `untier_plan.UntierSides`."""

    world: World

    def refuse(self) -> None:
        if self.world.table or self.world.late:
            raise RefusedError("rows by now", code="not_empty")

    def hold(self) -> None:
        self.world.effect(lambda: setattr(self.world, "holds", 1))

    def unhold(self) -> None:
        self.world.effect(lambda: setattr(self.world, "holds", 0))

    def scratches(self) -> list[str]:
        return sorted(self.world.scratches)

    def fill(self, scratch: str) -> None:
        self.world.effect(lambda: self.world.scratches.__setitem__(scratch, None))
        self.world.effect(lambda: self._insert(scratch))

    def _insert(self, scratch: str) -> None:
        if scratch not in self.world.scratches or scratch in self.world.closed:
            raise PermanentError("no such table", code="clickhouse_60")
        self.world.scratches[scratch] = (self.world.scratches[scratch] or ()) + self.world.lake

    def sums(self, scratch: str) -> RowSums:
        return sums(self.world.scratches.get(scratch) or ())

    def hashes(self, scratch: str) -> frozenset[str]:
        return frozenset({f"h{self.world.scratches.get(scratch)}"})

    def move(self, scratch: str) -> None:
        self.world.effect(lambda: self._move(scratch))

    def _move(self, scratch: str) -> None:
        if scratch not in self.world.scratches or scratch in self.world.closed:
            raise PermanentError("no such table", code="clickhouse_60")
        self.world.table += self.world.scratches[scratch] or ()
        self.world.scratches[scratch] = ()

    def close(self, scratch: str) -> None:
        self.world.effect(lambda: self.world.closed.add(scratch))

    def has_arrived(self, scratch: str) -> bool:
        return not self.world.scratches.get(scratch)

    def settle(self, hashes: frozenset[str]) -> None:
        def act() -> None:
            self.world.content, self.world.only_copy = ",".join(hashes), False

        self.world.effect(act)

    def turn(self) -> None:
        self.world.effect(lambda: setattr(self.world, "cold", False))

    def drop(self, scratch: str) -> None:
        self.world.effect(lambda: self.world.scratches.pop(scratch, None))


class Ports:
    def __init__(self, world: World) -> None:
        self._world = world

    def sides(self, plan: UntierPlan, process_id: ProcessId) -> Sides:
        return Sides(self._world)


def worker(world: World) -> Callable[[], Published | Fenced]:
    """One try by a worker that takes the process over: what an earlier one notes from then on is refused."""
    world.fence += 1
    world.attempts += 1
    fence = world.fence

    def note(text: str) -> None:
        def act() -> None:
            if world.fence != fence:
                raise ConflictError("another worker has it", code="conflict")
            world.note = text

        world.effect(act)

    kind = UntierKind(cast(Any, Ports(world)))
    return lambda: kind.publish(world.process(), PLAN.to_json(), RECEIPTS, note)


def finish(world: World, tries: int = 5) -> Published | Fenced:
    for _ in range(tries):
        try:
            return worker(world)()
        except CalveError as error:
            last = error
    raise last


def assert_back(world: World) -> None:
    assert (world.table, world.cold, world.only_copy, world.holds) == (ROWS, False, False, 1)
    assert world.scratches == {}


def calls_of_one_try() -> int:
    world = World()
    finish(world)
    assert_back(world)
    return world.calls


CALLS = calls_of_one_try()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_worker_that_dies_at_any_call_leaves_what_the_next_one_finishes(number: int, when: str) -> None:
    world = World()

    def die(call: int, then: str) -> None:
        if (call, then) == (number, when):
            raise Died

    world.at = die
    with pytest.raises(Died):
        worker(world)()
    world.check()
    finish(world)
    assert_back(world)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_worker_that_wakes_up_after_another_took_over_changes_nothing(number: int, when: str) -> None:
    world = World()

    def overtaken(call: int, then: str) -> None:
        if (call, then) == (number, when):
            world.at = lambda *_: None
            finish(world)

    world.at = overtaken
    with contextlib.suppress(CalveError):
        worker(world)()
    assert (world.table, world.cold, world.only_copy, world.holds) == (ROWS, False, False, 1)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_cancel_at_any_call_ends_with_all_of_the_rows_or_with_none(number: int, when: str) -> None:
    """And the worker that was stopped there, and wakes up after the end, moves nothing any more."""
    world = World()
    ended: list[Published | Fenced] = []

    def cancelled(call: int, then: str) -> None:
        if (call, then) == (number, when):
            world.at = lambda *_: None
            world.fence += 1
            kind = UntierKind(cast(Any, Ports(world)))
            ended.append(kind.fence(world.process(), PLAN.to_json()) if world.note else Fenced())

    world.at = cancelled
    with contextlib.suppress(CalveError):
        worker(world)()
    if isinstance(ended[0], Published):
        assert (world.table, world.cold) == (ROWS, False)
        return
    assert (world.table, world.cold, world.only_copy) == ((), True, True)
    UntierKind(cast(Any, Ports(world))).undo(
        replace(world.process(), state=ProcessState.CANCELLED), PLAN.to_json(), (), ()
    )
    assert (world.scratches, world.holds) == ({}, 0)


def test_rows_that_come_in_before_the_move_stop_it() -> None:
    world = World()

    def late(call: int, then: str) -> None:
        if world.note and UntierJournal.from_json(world.note).moving:
            world.late = (99,)

    world.at = late
    with pytest.raises(RefusedError) as refused:
        worker(world)()
    assert (refused.value.code, world.table, world.cold) == ("not_empty", (), True)


def test_other_rows_than_the_tasks_read_are_dropped() -> None:
    world = World(lake=(1, 2, 3))
    kind = UntierKind(cast(Any, Ports(world)))
    other = [ProofReceipt(rows=3, bytes=1, sums=str(sums((1, 2, 4))), others=str(RowSums())).to_json()]
    with pytest.raises(PermanentError) as refused:
        kind.publish(world.process(), PLAN.to_json(), other, lambda text: setattr(world, "note", text))
    assert (refused.value.code, world.table, world.scratches) == ("untier_differs", (), {})
