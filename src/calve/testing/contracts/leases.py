"""Leases and fences: one owner at a time, by the database's clock, fair over lanes."""

import pytest

from calve.control.ports import Store
from calve.control.registry import ServedStore
from calve.model.access import Asked, Halt
from calve.model.change import Budget, Change, CleanUpIn, CountAttempt, NoCleanUp, WaitFor
from calve.model.errors import FenceLostError
from calve.model.process import Process, ProcessId, WorkerId
from calve.model.states import ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    BERT,
    LEASE_SECONDS,
    REACH,
    Contract,
    claim_one,
    claimed,
    lease_of,
    move,
    new,
    publishing,
    running,
    submit,
)

ASKED = Asked(who="anne", verb="halt")


def take(
    store: Store, worker: WorkerId = ANNE, limit: int = 100, closed: frozenset[str] = frozenset()
) -> list[Process]:
    return store.claim(worker, REACH, lease_seconds=LEASE_SECONDS, limit=limit, closed_lanes=closed)


class LeasesContract(Contract):
    def test_what_is_halted_is_not_claimed_until_the_halt_is_lifted(self, store: ServedStore) -> None:
        row, other = submit(store), submit(store, source="main:db.t")
        backup = submit(store, kind="backup")
        store.put_halt(Halt(kind="export", source="main:db.events", who="anne"), ASKED)
        assert {one.id for one in take(store)} == {other.id, backup.id}
        store.put_halt(Halt(kind="export", source="", who="anne"), ASKED)
        assert store.lift_halt("export", "main:db.events", ASKED)
        assert take(store, BERT) == []
        store.lift_halt("export", "", ASKED)
        assert [one.id for one in take(store, BERT)] == [row.id]

    def test_a_halt_keeps_nobody_from_ending_publishing_or_cleaning_up(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        cancelled, late = submit(store), submit(store, deadline_seconds=60)
        publishes, runs = publishing(store), running(store)
        ended = move(store, running(store), ProcessState.FAILED, CleanUpIn(1))
        waiting = submit(store)
        store.put_halt(Halt(kind="export", source="", who="anne"), ASKED)
        store.request_cancel(cancelled.id)
        clock.advance(LEASE_SECONDS * 3)
        taken = {one.id for one in take(store, BERT)}
        assert taken == {cancelled.id, late.id, publishes.id, ended.id}
        assert not taken & {runs.id, waiting.id}

    def test_a_claim_takes_the_lease_and_raises_the_fence(self, store: Store) -> None:
        row = submit(store)
        (held,) = take(store)
        assert (held.id, held.owner, held.fence) == (row.id, ANNE, 1)
        assert held.lease_until is not None
        assert (held.lease_until - store.now()).total_seconds() <= LEASE_SECONDS
        assert held == store.process(row.id)
        assert [event.name for event in store.events(row.id)] == ["submitted", "leased"]

    def test_what_one_holds_another_does_not_get(self, store: Store) -> None:
        submit(store)
        assert len(take(store, ANNE)) == 1
        assert take(store, BERT) == []

    def test_L22_a_claim_whose_answer_was_lost_is_recognised_as_ones_own(self, store: Store) -> None:
        submit(store)
        lost = take(store, ANNE)
        found = take(store, ANNE)
        assert [(row.id, row.fence) for row in found] == [(row.id, row.fence) for row in lost]
        assert store.apply(lease_of(found[0]), Change(CountAttempt(Budget.PLAN))).plan_attempts == 1

    def test_the_limit_bounds_what_is_newly_taken(self, store: Store) -> None:
        store.submit([new() for _ in range(5)])
        assert len(take(store, ANNE, limit=2)) == 2
        assert len(take(store, ANNE, limit=1)) == 3
        assert len(take(store, ANNE, limit=0)) == 3

    def test_an_expired_lease_is_taken_over_and_the_older_fence_is_refused(
        self, store: Store, clock: FakeClock
    ) -> None:
        old = claimed(store, ANNE)
        clock.advance(LEASE_SECONDS + 1)
        (new_row,) = take(store, BERT)
        assert (new_row.owner, new_row.fence) == (BERT, old.fence + 1)
        with pytest.raises(FenceLostError, match="bert"):
            store.apply(lease_of(old), Change(CountAttempt(Budget.PLAN)))
        assert store.process(old.id).plan_attempts == 0
        assert store.renew(ANNE, lease_seconds=LEASE_SECONDS) == frozenset()
        assert [event.name for event in store.events(old.id)][-1] == "taken_over"

    def test_a_worker_that_was_stopped_for_three_leases_wakes_up_to_a_refusal(
        self, store: Store, clock: FakeClock
    ) -> None:
        stopped = claimed(store, ANNE)
        for _ in range(3):
            clock.advance(LEASE_SECONDS + 1)
            store.renew(BERT, lease_seconds=LEASE_SECONDS)
            take(store, BERT)
        with pytest.raises(FenceLostError):
            move(store, stopped, ProcessState.CANCELLED)
        store.yield_(lease_of(stopped))
        assert store.process(stopped.id).owner == BERT

    def test_an_expired_lease_that_nobody_took_is_still_ones_own(
        self, store: Store, clock: FakeClock
    ) -> None:
        held = claimed(store, ANNE)
        clock.advance(10 * LEASE_SECONDS)
        assert store.apply(lease_of(held), Change(CountAttempt(Budget.PLAN))).plan_attempts == 1
        assert store.renew(ANNE, lease_seconds=LEASE_SECONDS) == {held.id}
        assert take(store, BERT) == []
        assert [row.fence for row in take(store, ANNE)] == [held.fence]

    def test_D11_only_the_stores_own_clock_makes_a_lease_expire(self, store: Store, clock: FakeClock) -> None:
        held = claimed(store, ANNE)
        clock.advance(LEASE_SECONDS - 5)
        assert take(store, BERT) == []
        clock.advance(-1000)  # set back: nothing is stolen
        assert take(store, BERT) == []
        clock.advance(1000 + 6)
        assert [row.id for row in take(store, BERT)] == [held.id]

    def test_a_yielded_process_is_free_at_once_and_its_lease_is_dead(self, store: Store) -> None:
        held = claimed(store, ANNE)
        store.yield_(lease_of(held))
        store.yield_(lease_of(held))
        row = store.process(held.id)
        assert (row.owner, row.lease_until, row.fence) == (None, None, 1)
        with pytest.raises(FenceLostError):
            store.apply(lease_of(held), Change(CountAttempt(Budget.PLAN)))
        assert [row.fence for row in take(store, BERT)] == [2]

    def test_leases_do_not_move_the_version_so_that_renewing_never_conflicts(self, store: Store) -> None:
        held = claimed(store, ANNE)
        store.renew(ANNE, lease_seconds=LEASE_SECONDS)
        take(store, ANNE)
        assert store.process(held.id).version == held.version == 1

    def test_a_worker_claims_only_what_its_configuration_reaches(self, store: Store) -> None:
        submit(store, needs=("source:main", "catalog:other"))
        near = submit(store, needs=("source:main",))
        nothing_needed = submit(store, needs=())
        assert {row.id for row in take(store)} == {near.id, nothing_needed.id}

    def test_priority_comes_first_then_age(self, store: Store) -> None:
        ids = [submit(store, priority=priority).id for priority in (0, 5, 0, 9)]
        assert [row.id for row in take(store)] == [ids[3], ids[1], ids[0], ids[2]]

    def test_lanes_are_taken_in_turn(self, store: Store) -> None:
        first = [submit(store, lane="a").id for _ in range(3)]
        other = [submit(store, lane="b").id for _ in range(2)]
        expected = [first[0], other[0], first[1], other[1], first[2]]
        assert [row.id for row in take(store)] == expected

    def test_lanes_are_taken_in_turn_also_one_claim_at_a_time(self, store: Store) -> None:
        first = [submit(store, lane="a").id for _ in range(3)]
        other = [submit(store, lane="b").id for _ in range(2)]
        order = []
        for worker in range(5):
            order += [row.id for row in take(store, WorkerId(f"w{worker}"), limit=1)]
        assert set(order[:2]) == {first[0], other[0]}
        assert set(order[:4]) == {first[0], other[0], first[1], other[1]}

    def test_what_ended_long_ago_costs_its_lane_no_turn(self, store: Store) -> None:
        for _ in range(3):
            move(store, claimed(store, lane="a"), ProcessState.CANCELLED)
        first, second = submit(store, lane="a").id, submit(store, lane="b").id
        assert [row.id for row in take(store)] == [first, second]

    def test_closed_lanes_are_passed_over_except_for_a_cancel_or_a_deadline(
        self, store: Store, clock: FakeClock
    ) -> None:
        waits = submit(store, lane="down")
        cancelled = submit(store, lane="down")
        late = submit(store, lane="down", deadline_seconds=10)
        fine = submit(store, lane="up")
        store.request_cancel(cancelled.id)
        clock.advance(11)
        closed = frozenset({"down"})
        assert {row.id for row in take(store, closed=closed)} == {cancelled.id, late.id, fine.id}
        assert waits.id in {row.id for row in take(store)}

    def test_of_some_processes_only_those_are_taken_and_what_is_held_comes_on_top(self, store: Store) -> None:
        held = claimed(store)
        first, second, third = (submit(store) for _ in range(3))

        def only(*ids: ProcessId) -> list[ProcessId]:
            rows = store.claim(ANNE, REACH, lease_seconds=LEASE_SECONDS, limit=100, only=frozenset(ids))
            return [row.id for row in rows]

        assert only() == [held.id]
        assert only(third.id, first.id) == [held.id, first.id, third.id]
        assert store.process(second.id).fence == 0

    def test_what_backs_off_is_passed_over_until_its_time_or_a_cancel(
        self, store: Store, clock: FakeClock
    ) -> None:
        rows = [claimed(store) for _ in range(2)]
        for row in rows:
            store.apply(lease_of(row), Change(WaitFor(20)))
            store.yield_(lease_of(row))
        assert take(store) == []
        store.request_cancel(rows[0].id)
        assert [row.id for row in take(store)] == [rows[0].id]
        clock.advance(21)
        assert [row.id for row in take(store, BERT)] == [rows[1].id]

    def test_an_ended_process_is_claimed_only_when_its_cleanup_is_due(
        self, store: Store, clock: FakeClock
    ) -> None:
        ended = move(store, claimed(store), ProcessState.CANCELLED, CleanUpIn(100))
        over = move(store, claimed(store), ProcessState.CANCELLED)
        assert take(store) == []
        clock.advance(101)
        assert take(store, closed=frozenset({ended.lane})) == []
        (held,) = take(store)
        assert (held.id, held.fence) == (ended.id, ended.fence + 1)
        row = store.apply(lease_of(held), Change(NoCleanUp(), CountAttempt(Budget.CLEANUP)))
        assert (row.cleanup_at, row.cleanup_attempts) == (None, 1)
        store.yield_(lease_of(held))
        assert take(store) == []
        assert store.process(over.id).owner is None

    def test_a_lease_survives_the_retelling_of_its_row(self, store: Store) -> None:
        held = claimed(store)
        assert claim_one(store, held.id) == store.process(held.id)
