"""Races, with real threads that start together, each with a handle of its own: exactly one
wins, and the others are told."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from calve.control.ports import Store
from calve.model.change import Budget, Change, CleanUpIn, CountAttempt, LeftoversTo, MoveTo
from calve.model.errors import CalveError, ConflictError, RefusedError
from calve.model.process import Lock, NewProcess, Process, WorkerId
from calve.model.reach import piece_of
from calve.model.states import Leftovers, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    LEASE_SECONDS,
    REACH,
    Contract,
    claim_one,
    claimed,
    finish_task,
    lease_of,
    move,
    new,
    running,
    start_task,
)
from calve.testing.contracts.releases import drain, ended_with_pins

T = TypeVar("T")
ROUNDS = 5
RACERS = 4


def race(runners: Sequence[Callable[[], T]]) -> list[T | CalveError]:
    """Run all at once; what each returned or raised, in their order."""
    together = threading.Barrier(len(runners))
    outcomes: dict[int, T | CalveError] = {}

    def run(number: int, runner: Callable[[], T]) -> None:
        together.wait(timeout=60)
        try:
            outcomes[number] = runner()
        except CalveError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [outcomes[number] for number in range(len(runners))]


def winners(outcomes: Sequence[T | CalveError]) -> list[T]:
    return [outcome for outcome in outcomes if not isinstance(outcome, CalveError)]


def losers(outcomes: Sequence[object]) -> list[CalveError]:
    return [outcome for outcome in outcomes if isinstance(outcome, CalveError)]


def submit_one(store: Store, item: NewProcess) -> Process:
    return store.submit([item])[0]


class RacesContract(Contract):
    @pytest.fixture
    def rivals(self, store: Store) -> Sequence[Store]:
        """RACERS handles on the same rows, as different programs would have them."""
        return [store] * RACERS

    def test_claimers_at_once_never_hold_the_same_process(
        self, store: Store, rivals: Sequence[Store]
    ) -> None:
        for _ in range(ROUNDS):
            store.submit([new() for _ in range(6)])
            claims = [
                partial(rival.claim, WorkerId(f"w{number}"), REACH, lease_seconds=LEASE_SECONDS, limit=3)
                for number, rival in enumerate(rivals)
            ]
            outcomes = race(claims)
            assert losers(outcomes) == []
            taken = [row for rows in winners(outcomes) for row in rows]
            assert len({row.id for row in taken}) == len(taken)
            assert {row.fence for row in taken} == {1}
            assert all(store.process(row.id).owner == row.owner for row in taken)

    def test_of_submitters_of_one_lock_one_is_accepted_and_the_rest_hear_who(
        self, rivals: Sequence[Store]
    ) -> None:
        for number in range(ROUNDS):
            outcomes = race([partial(rival.submit, [new(lock=f"k{number}")]) for rival in rivals])
            ((accepted,),) = winners(outcomes)
            for error in losers(outcomes):
                assert isinstance(error, RefusedError)
                assert accepted.id in error.message

    def test_D8_of_submitters_of_a_whole_and_of_pieces_that_overlap_one_is_accepted(
        self, rivals: Sequence[Store]
    ) -> None:
        """No unique index says so: a reader that looked before the other's commit would not see it."""
        for number in range(ROUNDS):
            whole = f"{number:032x}"
            names = [whole, piece_of(whole, 1, 4), piece_of(whole, 4, 6), piece_of(whole, 2, 9)]
            outcomes = race(
                [partial(rival.submit, [new(lock=name)]) for rival, name in zip(rivals, names, strict=False)]
            )
            assert len(winners(outcomes)) == 1
            assert all(isinstance(error, RefusedError) for error in losers(outcomes))

    def test_submitters_of_pieces_that_do_not_overlap_are_all_accepted(self, rivals: Sequence[Store]) -> None:
        for number in range(ROUNDS):
            names = [piece_of(f"{number:032x}", block, block) for block in range(RACERS)]
            outcomes = race(
                [partial(rival.submit, [new(lock=name)]) for rival, name in zip(rivals, names, strict=True)]
            )
            assert losers(outcomes) == []

    def test_the_same_submission_sent_twice_at_once_is_one_process(self, rivals: Sequence[Store]) -> None:
        for number in range(ROUNDS):
            item = new(lock=f"k{number}")
            outcomes = race([partial(rival.submit, [item]) for rival in rivals])
            assert [row.id for rows in winners(outcomes) for row in rows] == [item.id] * RACERS

    def test_submitters_of_the_same_locks_in_other_orders_do_not_deadlock(
        self, rivals: Sequence[Store]
    ) -> None:
        for number in range(ROUNDS):
            locks = tuple(Lock(name=f"{number}-{letter}") for letter in "abcdef")
            orders = [locks, locks[::-1]]
            outcomes = race(
                [
                    partial(rival.submit, [new(locks=order)])
                    for rival, order in zip(rivals, orders, strict=False)
                ]
            )
            assert len(winners(outcomes)) == 1
            assert isinstance(losers(outcomes)[0], RefusedError)

    def test_of_appliers_of_one_version_one_wins(self, store: Store, rivals: Sequence[Store]) -> None:
        for _ in range(ROUNDS):
            row = claimed(store)
            end = Change(MoveTo(ProcessState.CANCELLED), expect_version=row.version)
            count = Change(CountAttempt(Budget.PLAN), expect_version=row.version)
            changes = [count, end, count, count]
            outcomes = race(
                [
                    partial(rival.apply, lease_of(row), change)
                    for rival, change in zip(rivals, changes, strict=True)
                ]
            )
            (winner,) = winners(outcomes)
            assert store.process(row.id) == winner
            assert winner.version == row.version + 1

    def test_completions_at_once_are_all_counted(self, store: Store, rivals: Sequence[Store]) -> None:
        row = running(store, tasks=RACERS)
        for number in range(1, RACERS + 1):
            row = start_task(store, row, number)
        outcomes = race(
            [partial(finish_task, rival, row, number, rows=3) for number, rival in enumerate(rivals, 1)]
        )
        assert losers(outcomes) == []
        after = store.process(row.id)
        assert (after.tasks.done, after.tasks.running, after.rows) == (RACERS, 0, 3 * RACERS)
        assert after.version == row.version + RACERS

    def test_one_completion_reported_by_all_at_once_counts_once(
        self, store: Store, rivals: Sequence[Store]
    ) -> None:
        for _ in range(ROUNDS):
            row = start_task(store, running(store))
            outcomes = race([partial(finish_task, rival, row, rows=3) for rival in rivals])
            assert len(winners(outcomes)) == 1
            assert all(isinstance(error, ConflictError) for error in losers(outcomes))
            assert store.process(row.id).rows == 3

    def test_D3_adopting_and_undoing_at_once_have_one_winner(
        self, store: Store, rivals: Sequence[Store]
    ) -> None:
        for _ in range(ROUNDS):
            row = running(store)
            row = move(store, row, ProcessState.FAILED, LeftoversTo(Leftovers.KEPT), CleanUpIn(0))
            row = claim_one(store, row.id)
            undo = Change(LeftoversTo(Leftovers.UNDOING), expect_version=row.version)
            retry = new(retry_of=row.id)
            undone, accepted = race(
                [partial(rivals[0].apply, lease_of(row), undo), partial(submit_one, rivals[1], retry)]
            )
            assert not isinstance(accepted, CalveError)
            assert accepted.adopted is isinstance(undone, ConflictError)
            expected = Leftovers.ADOPTED if accepted.adopted else Leftovers.UNDOING
            assert store.process(row.id).leftovers is expected

    def test_a_cancel_asked_while_a_publish_is_decided_is_never_lost(
        self, store: Store, rivals: Sequence[Store]
    ) -> None:
        for _ in range(ROUNDS):
            row = finish_task(store, start_task(store, running(store)))
            moved, asked = race(
                [
                    partial(move, rivals[0], row, ProcessState.PUBLISHING),
                    partial(rivals[1].request_cancel, row.id),
                ]
            )
            assert not isinstance(asked, CalveError)
            after = store.process(row.id)
            assert after.cancel_requested
            assert isinstance(moved, ConflictError) or after.state is ProcessState.PUBLISHING

    def test_probers_at_once_probe_once(
        self, store: Store, rivals: Sequence[Store], clock: FakeClock
    ) -> None:
        store.trip("lane", "down", 1)
        clock.advance(2)
        outcomes = race([partial(rival.claim_probe, "lane", 60) for rival in rivals])
        assert sorted(winners(outcomes)) == [False] * (RACERS - 1) + [True]

    def test_releasers_at_once_never_get_the_same_pin(self, store: Store, rivals: Sequence[Store]) -> None:
        ended_with_pins(store, *(f"p{number}" for number in range(8)))
        outcomes = race([partial(drain, rival, limit=3) for rival in rivals])
        names = [pin.name for pins in winners(outcomes) for pin in pins]
        assert names
        assert len(names) == len(set(names))

    def test_heartbeats_and_trips_at_once_make_one_row(self, store: Store, rivals: Sequence[Store]) -> None:
        outcomes = race([partial(rival.trip, "lane", f"reason {id(rival)}", 5) for rival in rivals])
        assert losers(outcomes) == []
        assert [breaker.service for breaker in store.breakers()] == ["lane"]
