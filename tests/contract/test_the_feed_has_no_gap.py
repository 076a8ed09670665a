"""PostgreSQL commits events out of the order of their numbers: a reader by number misses some, a reader by
position none. Commits are held open here, and let go after the reader has looked."""

import random
import threading
from collections.abc import Iterator

import psycopg
import pytest

from calve.model.process import ProcessId
from calve.store import SqlStore, open_store
from calve.testing.contracts.contract import submit

pytestmark = pytest.mark.services
WRITERS, EVENTS = 6, 25
_INSERT = "INSERT INTO events (process_id, at, name, message) VALUES (%s, 1, 'note', '') RETURNING number"


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture
def process_id(store: SqlStore) -> ProcessId:
    row = submit(store)
    store.number_events()
    return row.id


def test_an_event_that_commits_late_comes_later_and_is_not_missed(
    store: SqlStore, postgres_url: str, process_id: ProcessId
) -> None:
    with psycopg.connect(postgres_url) as early, psycopg.connect(postgres_url) as late:
        (first,) = late.execute(_INSERT, [process_id]).fetchone() or ()
        (second,) = early.execute(_INSERT, [process_id]).fetchone() or ()
        assert first < second
        early.commit()
        store.number_events()
        assert [(event.number, event.position) for event in store.feed(1, 10)] == [(second, 2)]
        late.commit()
    store.number_events()
    assert [(event.number, event.position) for event in store.feed(2, 10)] == [(first, 3)]


def test_a_numberer_that_has_not_committed_keeps_others_from_overtaking_it(
    store: SqlStore, postgres_url: str, process_id: ProcessId
) -> None:
    with psycopg.connect(postgres_url) as numberer, psycopg.connect(postgres_url, autocommit=True) as writer:
        writer.execute(_INSERT, [process_id])
        numberer.execute("SELECT * FROM store_state FOR UPDATE")
        numberer.execute("UPDATE events SET position = 2 WHERE position IS NULL")
        numberer.execute("UPDATE store_state SET last_position = 2")
        writer.execute(_INSERT, [process_id])
        other = threading.Thread(target=store.number_events)
        other.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'calve'"
        while not (writer.execute(waiting).fetchone() or (0,))[0]:
            pass
        assert store.feed(1, 10) == []
        numberer.commit()
        other.join(timeout=30)
    assert [event.position for event in store.feed(0, 10)] == [1, 2, 3]


def test_the_feed_has_no_gap(store: SqlStore, postgres_url: str, process_id: ProcessId) -> None:
    looks, looked, writing = 0, threading.Condition(), WRITERS
    missed_by_number: set[int] = set()

    def write(seed: int) -> None:
        nonlocal writing
        chance = random.Random(seed)
        with psycopg.connect(postgres_url) as connection:
            for _ in range(EVENTS):
                connection.execute(_INSERT, [process_id])
                with looked:  # the commit is held open until the reader has looked so often
                    until = looks + chance.randrange(3)
                    looked.wait_for(lambda until=until: looks >= until, timeout=30)
                connection.commit()
        with looked:
            writing -= 1

    def number() -> None:
        while writing:
            store.number_events(7)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(WRITERS)]
    threads += [threading.Thread(target=number) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen, last_number = [1], 0
    while writing or store.number_events():
        store.number_events(7)
        for event in store.feed(seen[-1], 20):
            seen.append(event.position)
            if event.number < last_number:
                missed_by_number.add(event.number)
            last_number = max(last_number, event.number)
        with looked:
            looks += 1
            looked.notify_all()
    for thread in threads:
        thread.join(timeout=30)
    while page := store.feed(seen[-1], 100):
        seen += [event.position for event in page]
    assert seen == list(range(1, WRITERS * EVENTS + 2))
    assert len({event.number for event in store.feed(0, 1000)}) == len(seen)
    assert missed_by_number, "no commit was held long enough to come out of turn: this test proves nothing"
