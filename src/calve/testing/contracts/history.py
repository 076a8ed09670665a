"""Forgetting the history of what ended long ago, and reaching only what is known."""

from typing import Any

from calve.control.ports import Store
from calve.model.change import Change, CleanUpIn, LeftoversTo, NewEvent, NewPin
from calve.model.process import Process
from calve.model.states import Leftovers, PinState, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import (
    ANNE,
    BERT,
    REACH,
    Contract,
    claimed,
    lease_of,
    move,
    running,
    submit,
)

DAY_SECONDS = 86_400.0


class HistoryContract(Contract):
    def test_history_of_a_long_ended_process_goes_and_the_process_stays(
        self, store: Store, clock: FakeClock
    ) -> None:
        old = ended(store, "old", lock="key")
        clock.advance(8 * DAY_SECONDS)
        young = ended(store, "young")
        clock.advance(3 * DAY_SECONDS)
        assert store.forget_history(days=10, after=0, limit=100) == 0
        assert store.events(old.id) == [] and store.pins(old.id) == []
        assert store.process(old.id).state is ProcessState.CANCELLED
        assert store.events(young.id) and store.pins(young.id)

    def test_what_lives_or_needs_a_step_keeps_its_history(self, store: Store, clock: FakeClock) -> None:
        live = running(store)
        kept = running(store)
        kept = move(
            store, kept, ProcessState.CANCELLED, LeftoversTo(Leftovers.KEPT), CleanUpIn(99 * DAY_SECONDS)
        )
        held = ended(store, "held", release=False)
        clock.advance(20 * DAY_SECONDS)
        store.forget_history(days=10, after=0, limit=100)
        assert store.events(live.id) and store.events(kept.id)
        assert [pin.state for pin in store.pins(held.id)] == [PinState.RELEASING], "a pin is still held"

    def test_one_call_looks_at_few_and_the_next_goes_on_behind_what_it_stepped_over(
        self, store: Store, clock: FakeClock
    ) -> None:
        live = claimed(store)
        for n in range(5):
            store.apply(lease_of(live), Change(NewEvent(name="said", message=str(n))))
        old = ended(store, "old")
        clock.advance(20 * DAY_SECONDS)
        kept = len(store.events(live.id))
        after, calls = store.forget_history(days=10, after=0, limit=3), 1
        assert after > 0 and store.events(old.id)
        while after:
            after, calls = store.forget_history(days=10, after=after, limit=3), calls + 1
        assert calls > 2
        assert store.events(old.id) == [] and len(store.events(live.id)) == kept

    def test_a_worker_leaves_kinds_alone_that_it_does_not_know(self, store: Store) -> None:
        newer = submit(store, kind="teleport")
        older = REACH | {"kind:export", "kind:optimize"}
        assert store.claim(ANNE, older, lease_seconds=30, limit=10) == []
        mine = submit(store, kind="export")
        assert [row.id for row in store.claim(ANNE, older, lease_seconds=30, limit=10)] == [mine.id]
        knows = REACH | {"kind:teleport"}
        assert [row.id for row in store.claim(BERT, knows, lease_seconds=30, limit=10)] == [newer.id]

    def test_pins_of_a_kind_that_is_not_known_wait_for_a_worker_that_knows_it(self, store: Store) -> None:
        ended(store, "pin", kind="teleport", release=False)
        assert store.claim_releases(ANNE, REACH | {"kind:export"}, limit=5, lease_seconds=30) == []
        assert len(store.claim_releases(ANNE, REACH | {"kind:teleport"}, limit=5, lease_seconds=30)) == 1


def ended(store: Store, pin: str, *, release: bool = True, **given: Any) -> Process:
    """Cancelled, with one pin, which is released unless told otherwise."""
    row = claimed(store, **given)
    store.apply(lease_of(row), Change(NewPin(name=pin, source="main", detail="{}")))
    row = move(store, store.process(row.id), ProcessState.CANCELLED)
    if release:
        store.claim_releases(ANNE, REACH, limit=5, lease_seconds=30)
        store.record_release(pin, None)
    return row
