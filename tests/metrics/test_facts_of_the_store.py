"""What a server tells of its store: counts, ages, tables, and how many of them."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calve import __version__
from calve.metrics.collector import KEPT_SECONDS, MOST_TABLES, StoreFacts
from calve.metrics.meters import Meters
from calve.model.access import Halt, Latest, Totals
from calve.model.errors import StoreError
from calve.model.limits import Limits
from calve.model.process import Breaker, Worker, WorkerId
from calve.model.seen import Sighting
from calve.testing.clock import FakeClock
from calve.testing.memory_store import MemoryStore
from calve.testing.scene import Scene

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Told:
    """A store that answers what the test says, and counts how often it was asked."""

    def __init__(self, **given: Any) -> None:
        self.totals_told = Totals(at=NOW, **given)
        self.looks = 0
        self.fails: Exception | None = None
        self.hangs = threading.Event()
        self.hangs.set()
        self.open: list[Breaker] = []
        self.known: list[Worker] = []
        self.seen: list[Sighting] = []

    def totals(self) -> Totals:
        self.looks += 1
        self.hangs.wait(30)
        if self.fails:
            raise self.fails
        return self.totals_told

    def breakers(self) -> list[Breaker]:
        return self.open

    def workers(self) -> list[Worker]:
        return self.known

    def halts(self) -> list[Halt]:
        return [Halt(kind="export", source="", who="alice")]

    def sightings(self, what: str, *, limit: int) -> list[Sighting]:
        return self.seen[:limit]


class Scraped:
    def __init__(self, store: Any, **options: Any) -> None:
        self.time = 0.0
        self.meters = Meters()
        self.facts = StoreFacts(lambda: store, lease_seconds=30.0, now=lambda: self.time, **options)
        self.meters.collect_also(self.facts)

    def value(self, name: str, **labels: str) -> float | None:
        return self.meters.registry.get_sample_value(name, labels)

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        found = [family for family in self.meters.registry.collect() if family.name == name]
        return {tuple(one.labels.values()): one.value for family in found for one in family.samples}


@pytest.fixture
def scraped() -> Iterator[Callable[..., Scraped]]:
    made: list[Scraped] = []

    def make(store: Any, **options: Any) -> Scraped:
        made.append(Scraped(store, **options))
        return made[-1]

    yield make
    for one in made:
        one.facts.close()


def latest(table: str, *, kind: str = "export", ago: float = 0.0, **times: Any) -> Latest:
    done = {"completed_at": NOW - timedelta(seconds=ago)} | times
    return Latest(kind=kind, source=table, destination="lake.ns.t", **done)


def test_processes_of_a_real_store_are_counted_and_its_tables_have_their_last_success(
    scraped: Callable[..., Scraped],
) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    scene = Scene(store=store, clock=clock, limits=Limits(slots=2))
    scene.submit(tasks=2)
    worker = scene.worker()
    scene.run(worker)
    done_at = clock.now()
    clock.advance(100)
    scene.submit(tasks=1)
    clock.advance(50)
    one = scraped(store)
    assert one.series("calve_processes") == {("fake", "COMPLETED"): 1, ("fake", "PENDING"): 1}
    assert one.value("calve_oldest_waiting_seconds", kind="fake") == 50
    success = one.value("calve_last_success_timestamp_seconds", kind="fake", table="main:db.events")
    assert success is not None and abs(success - done_at.timestamp()) < 10
    assert one.value("calve_store_up") == 1
    assert one.value("calve_tables_dropped") == 0


def test_one_read_is_shared_by_the_scrapes_of_a_while(scraped: Callable[..., Scraped]) -> None:
    store = Told(unknown_outcomes=1)
    one = scraped(store)
    assert one.value("calve_unknown_outcomes") == 1
    store.totals_told = Totals(at=NOW, unknown_outcomes=2)
    one.time = KEPT_SECONDS - 0.1
    assert one.value("calve_unknown_outcomes") == 1
    assert store.looks == 1
    one.time = KEPT_SECONDS
    assert one.value("calve_unknown_outcomes") == 2


def test_a_store_that_is_down_has_no_facts_and_the_scrape_answers(scraped: Callable[..., Scraped]) -> None:
    store = Told(unknown_outcomes=1)
    one = scraped(store)
    assert one.value("calve_store_up") == 1
    store.fails = StoreError("gone", code="store_unavailable")
    one.time = 60
    assert (one.value("calve_store_up"), one.value("calve_unknown_outcomes")) == (0, None)
    store.fails = None
    assert (one.value("calve_store_up"), one.value("calve_unknown_outcomes")) == (1, 1)


def test_a_store_that_hangs_is_asked_once_and_the_scrapes_answer(scraped: Callable[..., Scraped]) -> None:
    store = Told(unknown_outcomes=1)
    store.hangs.clear()
    one = scraped(store, wait_seconds=0.01)
    assert [one.value("calve_store_up") for _ in range(3)] == [0, 0, 0]
    assert store.looks == 1
    store.hangs.set()
    one.facts.reader.submit(lambda: None).result(30)  # after the look that hung
    assert one.value("calve_store_up") == 1


def test_what_a_read_that_hung_brought_long_ago_is_not_told(scraped: Callable[..., Scraped]) -> None:
    store = Told(unknown_outcomes=1)
    store.hangs.clear()
    one = scraped(store, wait_seconds=0.01)
    assert one.value("calve_store_up") == 0
    store.hangs.set()
    one.facts.reader.submit(lambda: None).result(30)
    store.totals_told = Totals(at=NOW, unknown_outcomes=2)
    one.time = 3600
    one.facts.wait_seconds = 30
    assert one.value("calve_unknown_outcomes") == 2


def test_beyond_so_many_tables_the_rest_is_one_and_says_how_many(scraped: Callable[..., Scraped]) -> None:
    tables = tuple(latest(f"main:db.t{n}", ago=n) for n in range(MOST_TABLES + 7))
    last = tables[-1].source
    one = scraped(Told(latest=tables), expected=[("export", last), ("export", "main:db.none")])
    found = one.series("calve_last_success_timestamp_seconds")
    assert (
        len({table for _, table in found} - {"other"}) == MOST_TABLES - 1
    )  # one that is expected has no success
    assert ("export", last) in found, "what is expected is never dropped"
    assert one.value("calve_tables_dropped") == 8
    newest_dropped = tables[MOST_TABLES - 2]
    assert found["export", "other"] == newest_dropped.completed_at.timestamp()  # type: ignore[union-attr]


def test_what_is_expected_is_told_also_if_it_never_ran(scraped: Callable[..., Scraped]) -> None:
    known = (
        latest("main:db.a"),
        latest("main:db.b"),
        latest("main:db.*", kind="backup"),
        latest("x", kind="optimize"),
    )
    expected = [("export", "main:db.*"), ("backup", "main:db.*"), ("backup", "main:other.*")]
    one = scraped(Told(latest=known), expected=expected)
    assert set(one.series("calve_expected")) == {
        ("export", "main:db.a"),
        ("export", "main:db.b"),
        ("backup", "main:db.*"),
        ("backup", "main:other.*"),
    }


def test_the_latest_of_several_destinations_counts(scraped: Callable[..., Scraped]) -> None:
    failed = Latest(kind="export", source="main:db.a", destination="x", failed_at=NOW - timedelta(seconds=5))
    proven = Latest(kind="export", source="main:db.a", destination="y", proven_at=NOW - timedelta(seconds=9))
    restored = Latest(kind="restore", source="s3://b/nightly-1", destination="main:db.a", completed_at=NOW)
    one = scraped(
        Told(latest=(latest("main:db.a", ago=1), latest("main:db.a", ago=3), failed, proven, restored))
    )
    at, names = NOW.timestamp(), {"kind": "export", "table": "main:db.a"}
    assert one.value("calve_last_success_timestamp_seconds", **names) == at - 1
    assert one.value("calve_last_failure_timestamp_seconds", **names) == at - 5
    assert one.value("calve_last_proven_timestamp_seconds", **names) == at - 9
    assert one.value("calve_last_success_timestamp_seconds", kind="restore", table="main:db.a") == at


def test_breakers_workers_and_halts_are_counted(scraped: Callable[..., Scraped]) -> None:
    store = Told(pins_held=2, oldest_pin_at=NOW - timedelta(hours=1))
    store.open = [Breaker(service="catalog:lake", reason="x", opened_at=NOW, probe_at=NOW)]
    store.known = [
        worker("a", version=__version__),
        worker("b", version="0.0.9"),
        worker("c", version=__version__, draining=True),
        worker("d", version="0.1.0", heartbeat_at=NOW - timedelta(seconds=31)),
    ]
    one = scraped(store)
    assert one.series("calve_breakers_open") == {
        ("source",): 0, ("catalog",): 1, ("storage",): 0, ("backup",): 0, ("spark",): 0,
    }  # fmt: skip
    assert one.series("calve_workers") == {("live",): 2, ("draining",): 1, ("silent",): 1}
    assert one.value("calve_workers_old_version") == 1
    assert one.value("calve_halts") == 1
    assert (one.value("calve_pins_held"), one.value("calve_oldest_pin_seconds")) == (2, 3600)


def worker(name: str, **given: Any) -> Worker:
    times = {"started_at": NOW, "heartbeat_at": NOW} | given
    return Worker(id=WorkerId(name), host="h", reach=(), slots=1, **times)


def test_tables_without_released_rows_are_not_told_of(scraped: Callable[..., Scraped]) -> None:
    store = Told()
    store.seen = [
        Sighting(subject="lake.ns.a", what="released", seen_at=NOW, summary='{"keys": 2, "missing": 7}'),
        Sighting(subject="lake.ns.b", what="released", seen_at=NOW, summary='{"keys": 0}'),
        Sighting(subject="lake.ns.c", what="released", summary=""),
    ]
    one = scraped(store)
    assert one.series("calve_released_rows_missing") == {("lake.ns.a",): 7}
    assert one.series("calve_released_rows_counted_timestamp_seconds") == {("lake.ns.a",): NOW.timestamp()}
