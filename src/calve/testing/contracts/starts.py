"""What policies start: nothing twice, and never more than a limit allows, even if many submit at the same moment."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from calve.control.ports import Store
from calve.model.errors import CalveError, RefusedError
from calve.model.process import NewProcess, Process, Start, Starts
from calve.model.states import ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import Contract, claim_one, move, new
from calve.testing.contracts.races import race, winners

DAY = "2026-11-16"


def start(process: NewProcess, **given: Any) -> Start:
    first = Start(
        policy="events",
        hash="h1",
        action="export",
        identity="server/table",
        partition="202401",
        destination="lake.ns.events",
        content="c1",
        attempt=1,
        bytes=100,
        day=DAY,
        process_id=process.id,
    )
    return replace(first, **given)


def begin(store: Store, *, at_once: int = 20, bytes_a_day: int = 0, **given: Any) -> Process:
    process = new()
    starts = Starts(items=(start(process, **given),), at_once=at_once, bytes_a_day=bytes_a_day)
    (row,) = store.submit([process], starts=starts)
    return row


def end(store: Store, process: Process) -> None:
    move(store, claim_one(store, process.id), ProcessState.CANCELLED)


class StartsContract(Contract):
    def test_a_start_is_kept_with_its_process(self, store: Store) -> None:
        row = begin(store)
        (kept,) = store.starts("server/table", "lake.ns.events", ["202401", "202402"])
        assert kept.made_at is not None
        assert replace(kept, made_at=None) == replace(start(new()), process_id=row.id)
        assert store.started("events", DAY) == (1, 100)
        for other in (("other", "lake.ns.events", ["202401"]), ("server/table", "lake.x", ["202401"])):
            assert store.starts(*other) == []
        assert store.starts("server/table", "lake.ns.events", []) == []

    def test_the_newest_start_comes_first(self, store: Store) -> None:
        for attempt in (1, 2, 3):
            end(store, begin(store, attempt=attempt))
        found = store.starts("server/table", "lake.ns.events", ["202401"])
        assert [one.attempt for one in found] == [3, 2, 1]

    def test_the_same_attempt_starts_once_and_nothing_of_a_refused_submission_is_kept(
        self, store: Store
    ) -> None:
        first = begin(store)
        with pytest.raises(RefusedError) as refused:
            begin(store)
        assert refused.value.code == "already_started"
        assert [one.id for one in store.live()] == [first.id]
        assert store.started("events", DAY) == (1, 100)

    @pytest.mark.parametrize(
        "other",
        [
            {"attempt": 2}, {"content": "c2"}, {"action": "replace"}, {"partition": "202402"},
            {"destination": "lake.ns.other"}, {"identity": "server/other"},
        ],
        ids=lambda other: next(iter(other)),
    )  # fmt: skip
    def test_another_attempt_content_action_or_place_is_another_start(
        self, store: Store, other: dict[str, Any]
    ) -> None:
        begin(store)
        begin(store, **other)
        assert store.started("events", DAY) == (2, 200)

    def test_a_submission_sent_twice_starts_once(self, store: Store) -> None:
        process = new()
        starts = Starts(items=(start(process),), at_once=1)
        first = store.submit([process], starts=starts)
        assert [one.id for one in store.submit([process], starts=starts)] == [first[0].id]
        assert store.started("events", DAY) == (1, 100)

    def test_no_more_partitions_are_under_way_than_allowed(self, store: Store) -> None:
        first = begin(store, at_once=2, partition="1")
        begin(store, at_once=2, partition="2")
        with pytest.raises(RefusedError) as refused:
            begin(store, at_once=2, partition="3")
        assert refused.value.code == "over_limit"
        end(store, first)
        begin(store, at_once=2, partition="3")
        begin(store, at_once=2, partition="4", policy="another")

    def test_no_more_bytes_start_on_a_day_than_allowed_however_they_ended(self, store: Store) -> None:
        end(store, begin(store, bytes_a_day=250, partition="1"))
        begin(store, bytes_a_day=250, partition="2")
        with pytest.raises(RefusedError) as refused:
            begin(store, bytes_a_day=250, partition="3")
        assert refused.value.code == "over_limit"
        begin(store, bytes_a_day=250, partition="3", day="2026-11-17")
        begin(store, bytes_a_day=250, partition="4", policy="another")
        begin(store, partition="5")

    def test_of_many_who_start_the_same_at_once_one_does(self, store: Store) -> None:
        outcomes = race([partial(begin, store) for _ in range(8)])
        assert len(winners(outcomes)) == 1
        assert {one.code for one in outcomes if isinstance(one, CalveError)} == {"already_started"}
        assert store.started("events", DAY) == (1, 100)

    def test_of_many_who_start_at_once_no_more_do_than_allowed(self, store: Store) -> None:
        outcomes = race([partial(begin, store, at_once=3, partition=str(number)) for number in range(8)])
        assert len(winners(outcomes)) == 3
        assert {one.code for one in outcomes if isinstance(one, CalveError)} == {"over_limit"}
        assert store.started("events", DAY) == (3, 300)

    def test_old_starts_are_forgotten(self, store: Store, clock: FakeClock) -> None:
        begin(store)
        assert store.starts("server/table", "lake.ns.events", ["202401"])
        clock.advance(3 * 86_400)
        assert store.forget_requests(hours=24, audit_days=2, limit=100) == 1
        assert store.starts("server/table", "lake.ns.events", ["202401"]) == []
