"""The feed: positions are given once, in order, without a gap, and what was forgotten is said."""

import threading
from collections.abc import Sequence
from functools import partial

from calve.control.registry import ServedStore
from calve.model.states import ProcessState
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import Contract, claimed, move, new, submit
from calve.testing.contracts.races import race, winners

_DAY_SECONDS = 86_400


def number(store: ServedStore, limit: int = 1000) -> int:
    """Until none is left; how many."""
    total = 0
    while given := store.number_events(limit):
        total += given
    return total


def positions(store: ServedStore, after: int = 0) -> list[int]:
    return [event.position for event in store.feed(after, 1000)]


class FeedContract(Contract):
    def test_events_show_up_in_the_feed_once_they_are_numbered(self, store: ServedStore) -> None:
        row = submit(store)
        assert store.feed(0, 10) == []
        assert store.number_events() == 1
        assert store.number_events() == 0
        (event,) = store.feed(0, 10)
        assert (event.process_id, event.name, event.position) == (row.id, "submitted", 1)
        assert [one.position for one in store.events(row.id)] == [1]
        assert store.event_at(1) == event
        assert store.event_at(0) is store.event_at(2) is None
        state = store.feed_state()
        assert (state.last_position, state.forgotten_position) == (1, 0)
        assert state.store_id and state == store.feed_state()

    def test_pieces_and_pages_follow_each_other_without_a_gap(self, store: ServedStore) -> None:
        ids = [submit(store).id for _ in range(7)]
        assert store.number_events(limit=3) == 3
        ids += [submit(store).id for _ in range(3)]
        assert number(store, limit=4) == 7
        assert positions(store) == list(range(1, 11))
        pages = [store.feed(after, 4) for after in (0, 4, 8)]
        assert [event.process_id for page in pages for event in page] == ids
        assert store.feed(10, 4) == []

    def test_numberers_at_once_number_every_event_once(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        for _ in range(3):
            store.submit([new() for _ in range(20)])
            given = race([partial(number, rival, 7) for rival in rivals])
            assert len(winners(given)) == len(rivals)
        assert positions(store) == list(range(1, 61))
        assert store.feed_state().last_position == 60

    def test_a_reader_beside_writers_and_numberers_misses_nothing(
        self, store: ServedStore, rivals: Sequence[ServedStore]
    ) -> None:
        writes, over = 15, threading.Event()
        first, second, reader, *rest = rivals

        def write(rival: ServedStore) -> None:
            for _ in range(writes):
                rival.submit([new()])

        def read() -> list[int]:
            seen: list[int] = []
            while not over.is_set() or reader.number_events() or reader.feed(len(seen), 1):
                reader.number_events(5)
                seen += [event.position for event in reader.feed(seen[-1] if seen else 0, 3)]
            return seen

        def write_and_end() -> list[int]:
            race([partial(write, rival) for rival in (first, second, *rest)])
            over.set()
            return []

        seen, _ = race([read, write_and_end])
        assert seen == list(range(1, writes * (len(rivals) - 1) + 1))

    def test_forgetting_events_says_up_to_where_the_feed_has_holes(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        old = move(store, claimed(store), ProcessState.CANCELLED)
        number(store)
        last = store.events(old.id)[-1].position
        clock.advance(20 * _DAY_SECONDS)
        live = submit(store)
        number(store)
        store.forget_history(days=10, after=0, limit=100)
        state = store.feed_state()
        assert (state.forgotten_position, state.last_position) == (last, last + 1)
        assert [event.process_id for event in store.feed(0, 10)] == [live.id]
        store.forget_history(days=10, after=0, limit=100)
        assert store.feed_state() == state

    def test_positions_go_on_after_every_event_was_forgotten(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        move(store, claimed(store), ProcessState.CANCELLED)
        number(store)
        last = store.feed_state().last_position
        clock.advance(20 * _DAY_SECONDS)
        store.forget_history(days=10, after=0, limit=100)
        assert store.feed(0, 10) == []
        submit(store)
        number(store)
        assert positions(store) == [last + 1]

    def test_an_event_that_is_forgotten_before_it_was_numbered_puts_every_cursor_behind(
        self, store: ServedStore, clock: FakeClock
    ) -> None:
        move(store, claimed(store), ProcessState.CANCELLED)
        number(store)
        last = store.feed_state().last_position
        move(store, claimed(store), ProcessState.CANCELLED)  # nobody reads the feed
        clock.advance(20 * _DAY_SECONDS)
        store.forget_history(days=10, after=0, limit=100)
        state = store.feed_state()
        assert state.forgotten_position == state.last_position == last + 1
        submit(store)
        number(store)
        assert positions(store, state.last_position) == [last + 2]
