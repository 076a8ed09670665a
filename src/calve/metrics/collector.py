"""Facts of the store as metrics, for servers: counts, ages, and when work on a table last succeeded.

One read is shared by all scrapes for `KEPT_SECONDS`. A scrape always answers: if the store does not answer in time,
the facts are left out and `calve_store_up` is 0. A fact that is older than its read is never told.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from threading import Lock

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from calve import __version__
from calve.control.registry import ServedStore
from calve.metrics.names import BY_NAME, METRICS, Told
from calve.model.access import Latest, Totals
from calve.model.process import Breaker, Worker
from calve.model.reach import Service, ServiceType
from calve.model.record import fields_of
from calve.model.seen import RELEASED, Sighting
from calve.model.states import ProcessState

KEPT_SECONDS = 10.0
WAIT_SECONDS = 0.8
MOST_TABLES = 500
OTHER = "other"
_LASTS = {
    "calve_last_success_timestamp_seconds": "completed_at",
    "calve_last_failure_timestamp_seconds": "failed_at",
    "calve_last_proven_timestamp_seconds": "proven_at",
}

Expected = Sequence[tuple[str, str]]
Work = tuple[str, str]  # kind and table


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What one look at the store shows."""

    totals: Totals
    breakers: Sequence[Breaker]
    workers: Sequence[Worker]
    halts: int
    guards: Sequence[Sighting] = ()  # of lake tables, whose released rows are counted


def look(store: ServedStore) -> Collected:
    return Collected(
        totals=store.totals(),
        breakers=store.breakers(),
        workers=store.workers(),
        halts=len(store.halts()),
        guards=store.sightings(RELEASED, limit=MOST_TABLES),
    )


class StoreFacts(Collector):
    """`expected`: the work of `[expect]`. May be asked by several threads."""

    def __init__(
        self,
        store: Callable[[], ServedStore],
        *,
        expected: Expected = (),
        lease_seconds: float,
        now: Callable[[], float] = time.monotonic,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._store = store
        self._expected = expected
        self._lease = timedelta(seconds=lease_seconds)
        self._now = now
        self.wait_seconds = wait_seconds
        self._lock = Lock()
        self.reader = ThreadPoolExecutor(1, "metrics")
        self._facts: Collected | None = None
        self._read_at = 0.0
        self._reading: Future[tuple[Collected, float]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing is read to be registered."""
        return [_family(metric.name) for metric in METRICS if metric.told is Told.STORE]

    def collect(self) -> Iterator[Metric]:
        facts = self._current()
        yield _single("calve_store_up", 0 if facts is None else 1)
        if facts is not None:
            yield from _counts(facts, self._lease)
            yield from _tables(facts.totals, self._expected)
            yield from _guards(facts.guards)

    def close(self) -> None:
        self.reader.shutdown(wait=False, cancel_futures=True)

    def _current(self) -> Collected | None:
        with self._lock:
            self._take()
            if self._fresh():
                return self._facts
            if self._reading is None:
                self._reading = self.reader.submit(self._read)
            reading = self._reading
        wait([reading], self.wait_seconds)
        with self._lock:
            self._take()
            return self._facts if self._fresh() else None

    def _read(self) -> tuple[Collected, float]:
        at = self._now()
        return look(self._store()), at

    def _take(self) -> None:
        """What a read that has ended brought: nothing, if the store is down, slow or damaged."""
        if self._reading is None or not self._reading.done():
            return
        reading, self._reading = self._reading, None
        if reading.cancelled() or reading.exception() is not None:
            self._facts = None
        else:
            self._facts, self._read_at = reading.result()

    def _fresh(self) -> bool:
        """Also not of a read that hung and ended long ago, between two scrapes."""
        return self._facts is not None and self._now() - self._read_at < KEPT_SECONDS


def _counts(facts: Collected, lease: timedelta) -> Iterator[Metric]:
    totals = facts.totals
    yield _family(
        "calve_processes", {(tally.kind, tally.state.value): tally.count for tally in totals.tallies}
    )
    yield _family("calve_tasks", {("running",): totals.tasks_running, ("waiting",): totals.tasks_waiting})
    yield _single("calve_unknown_outcomes", totals.unknown_outcomes)
    open_now = Counter(Service(breaker.service).partition(":")[0] for breaker in facts.breakers)
    yield _family("calve_breakers_open", {(one.value,): open_now[one.value] for one in ServiceType})
    yield _single("calve_pins_held", totals.pins_held)
    yield _single("calve_oldest_pin_seconds", _age(totals.at, totals.oldest_pin_at))
    waiting: dict[tuple[str, ...], float] = {
        (tally.kind,): _age(totals.at, tally.oldest_at)
        for tally in totals.tallies
        if tally.state is ProcessState.PENDING
    }
    yield _family("calve_oldest_waiting_seconds", waiting)
    states = Counter(_state(worker, totals.at - lease) for worker in facts.workers)
    yield _family("calve_workers", {(state,): states[state] for state in ("live", "draining", "silent")})
    old = [
        worker
        for worker in facts.workers
        if _state(worker, totals.at - lease) != "silent" and worker.version != __version__
    ]
    yield _single("calve_workers_old_version", len(old))
    yield _single("calve_halts", facts.halts)
    yield _single("calve_notices_waiting", totals.notices_waiting)


def _tables(totals: Totals, expected: Expected) -> Iterator[Metric]:
    """Tables that are expected come first, then those with the newest activity."""
    wanted = _expected(totals.latest, expected)
    tables = [table for _, table in wanted] + [latest.table for latest in totals.latest]
    known = list(dict.fromkeys(tables))
    shown = frozenset(known[:MOST_TABLES])
    for name, field in _LASTS.items():
        found: dict[tuple[str, ...], float] = {}
        for latest in totals.latest:
            at: datetime | None = getattr(latest, field)
            if at is not None:
                table = latest.table
                key = (latest.kind, table if table in shown else OTHER)
                found[key] = max(found.get(key, 0.0), at.timestamp())
        yield _family(name, found)
    yield _family("calve_expected", {work: 1.0 for work in wanted if work[1] in shown})
    yield _single("calve_tables_dropped", len(known) - len(shown))


def _guards(guards: Iterable[Sighting]) -> Iterator[Metric]:
    """Of tables that had released rows when they were last counted."""
    missing: dict[tuple[str, ...], float] = {}
    counted: dict[tuple[str, ...], float] = {}
    for one in guards:
        found = fields_of(one.summary)
        if found.get("keys") and one.seen_at is not None:
            missing[(one.subject,)] = float(found.get("missing", 0))
            counted[(one.subject,)] = one.seen_at.timestamp()
    yield _family("calve_released_rows_missing", missing)
    yield _family("calve_released_rows_counted_timestamp_seconds", counted)


def _expected(latest: Iterable[Latest], expected: Expected) -> list[Work]:
    """A pattern means the tables that are known and match it; if none does, itself: it never ran."""
    known = list(dict.fromkeys((one.kind, one.table) for one in latest))
    wanted: dict[Work, None] = {}
    for kind, pattern in expected:
        if (kind, pattern) in known:  # backups are named by the patterns they were asked for
            found = [(kind, pattern)]
        else:
            found = [work for work in known if work[0] == kind and fnmatchcase(work[1], pattern)]
        wanted |= dict.fromkeys(found or [(kind, pattern)])
    return list(wanted)


def _state(worker: Worker, silent: datetime) -> str:
    if worker.heartbeat_at <= silent:
        return "silent"
    return "draining" if worker.draining else "live"


def _age(now: datetime, at: datetime | None) -> float:
    return max((now - at).total_seconds(), 0.0) if at else 0.0


def _family(name: str, values: Mapping[tuple[str, ...], float] | None = None) -> GaugeMetricFamily:
    metric = BY_NAME[name]
    made = GaugeMetricFamily(name, metric.about, labels=metric.labels)
    for labels, value in (values or {}).items():
        made.add_metric(labels, value)
    return made


def _single(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, BY_NAME[name].about, value=value)
