"""The drain of pins."""

import pytest

from calve.control.ports import Store
from calve.model.change import Change, NewPin
from calve.model.errors import NotFoundError, PermanentError
from calve.model.process import Pin
from calve.model.states import PinState, ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import ANNE, BERT, FAILURE, REACH, Contract, claimed, lease_of, move


class ReleasesContract(Contract):
    def test_pins_of_an_ended_process_are_claimed_once_and_released(
        self, store: Store, clock: FakeClock
    ) -> None:
        process_id = ended_with_pins(store, "p1", "p2").process_id
        assert [pin.name for pin in drain(store, limit=1)] == ["p1"]
        assert [pin.name for pin in drain(store)] == ["p2"]
        assert drain(store) == []
        store.record_release("p1", None)
        store.record_release("p1", None)
        clock.advance(31)  # p2's claimer died
        assert [pin.name for pin in drain(store)] == ["p2"]
        assert {pin.name: pin.state for pin in store.pins(process_id)} == {
            "p1": PinState.RELEASED,
            "p2": PinState.RELEASING,
        }
        assert [pin.name for pin in store.pins(states=frozenset({PinState.RELEASED}))] == ["p1"]
        assert "pin_released" in [event.name for event in store.events(process_id)]

    def test_a_claim_that_is_renewed_lasts(self, store: Store, clock: FakeClock) -> None:
        ended_with_pins(store, "p1", "p2")
        assert len(drain(store)) == 2
        clock.advance(20)
        store.renew_releases(["p1", "unheard of"], 30)
        clock.advance(20)
        assert [pin.name for pin in drain(store)] == ["p2"]
        clock.advance(11)
        assert [pin.name for pin in drain(store)] == ["p1"]
        store.record_release("p1", FAILURE, retry_seconds=100)
        store.record_release("p2", None)
        before = store.pins()
        store.renew_releases(["p1", "p2"], 30)  # said late: the one waits for longer, the other is gone
        assert store.pins() == before

    def test_L31_a_release_that_failed_is_counted_and_tried_again(
        self, store: Store, clock: FakeClock
    ) -> None:
        process_id = ended_with_pins(store, "p1").process_id
        (claim,) = drain(store)
        store.record_release(claim.name, FAILURE, retry_seconds=100)
        clock.advance(99)
        assert drain(store) == []
        clock.advance(2)
        (again,) = drain(store)
        assert (again.release_attempts, again.error) == (1, FAILURE)
        store.record_release(again.name, None)
        (released,) = store.pins(process_id)
        assert (released.state, released.error) == (PinState.RELEASED, None)
        store.record_release(again.name, FAILURE)  # a late answer of the first try
        assert store.pins(process_id) == [released]

    def test_a_pin_is_released_only_by_who_reaches_its_source(self, store: Store) -> None:
        ended_with_pins(store, "p1")
        assert store.claim_releases(BERT, frozenset({"catalog:lake"}), limit=5, lease_seconds=30) == []
        elsewhere = frozenset({"source:other"})
        assert store.claim_releases(BERT, elsewhere, limit=5, lease_seconds=30) == []
        assert len(drain(store)) == 1

    def test_a_pin_that_is_still_needed_is_not_released(self, store: Store) -> None:
        row = claimed(store)
        store.apply(lease_of(row), Change(NewPin(name="p", source="main", detail="{}")))
        assert drain(store) == []
        with pytest.raises(PermanentError) as refused:
            store.record_release("p", None)
        assert refused.value.code == "illegal_transition"
        with pytest.raises(NotFoundError):
            store.record_release("unheard of", None)


def ended_with_pins(store: Store, *names: str) -> Pin:
    row = claimed(store)
    new = tuple(NewPin(name=name, source="main", detail="{}") for name in names)
    row = store.apply(lease_of(row), Change(*new))
    move(store, row, ProcessState.CANCELLED)
    return store.pins(row.id)[0]


def drain(store: Store, limit: int = 10) -> list[Pin]:
    return store.claim_releases(ANNE, REACH, limit=limit, lease_seconds=30)
