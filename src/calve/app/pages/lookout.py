"""Who looks outside for pages, how often, and in which order: pages themselves ask only the store.

What somebody has open comes first, then what was not looked at for longest. A look must not be felt: one at a time for
each service, so many a minute, bounded in time, none while a service is down, and none into an embedded source that
work needs. Several servers of one store look once: the store decides who. What was found is kept by
`Desk.perform`, as if somebody had asked.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from calve.app.calve import Calve
from calve.app.config import Config
from calve.app.desk import Desk
from calve.app.pages.counts import Counts, LastSeen
from calve.app.pages.overview import Overview
from calve.app.pages.sightings import pair
from calve.control.registry import ServedStore
from calve.model.access import Caller, Role
from calve.model.errors import CalveError, UnavailableError
from calve.model.reach import is_folder

CALL_SECONDS = 15.0  # of one call to a source, a catalog or a storage
WANTED_SECONDS = 60.0  # what somebody has open is not looked at again sooner
PRESSED_SECONDS = 10.0  # nor what somebody asks for with a button
A_MINUTE = 30
AT_ONCE = 4
_OPEN_SECONDS = 120.0  # a page that is open says so again within this time
_LIST_SECONDS = 60.0
_TICK_SECONDS = 1.0  # while somebody has a page open
_IDLE_SECONDS = 10.0
_LEASE_SECONDS = 120.0
_MOST_WANTED = 1000
_OF_A_PAGE = 20  # a list of a hundred tables does not go before everything else
_HEALTH_SECONDS = 6 * 3600.0  # also where nothing was published: others write there too
_DOWN_PROBES = 10
_WHO = Caller(name="lookout", role=Role.VIEWER)
_log = logging.getLogger(__name__)

Subject = tuple[str, str]  # what, and of what


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look asks. `due`: when it is next looked at by itself, in seconds after the last; None for never."""

    what: str
    subject: str
    verb: str
    arguments: Mapping[str, Any]
    tried: float  # seconds since the last look, when the list was made; infinite for none
    due: float | None


class Lookout:
    """Of one server. `want` and `press` are quick, and may be called from any thread."""

    def __init__(
        self, calve: Calve, *, overview: Overview | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`calve` is its own: bounded as `bounded_for_looks` says. `overview`: the one that pages show, so that what
        all processes add up to is read once for both."""
        self._calve = calve
        self.overview = overview or calve.overview
        self._desk = Desk(calve)
        self._now = now
        self._lock = threading.Lock()
        self._wanted: dict[Subject, float] = {}  # until when
        self._pressed: dict[Subject, float] = {}
        self._looks: dict[Subject, Look] = {}
        self._listed = float("-inf")
        self._list_cost = 0.0
        self._last: dict[Subject, float] = {}
        self._recent: deque[float] = deque()
        self._busy: set[str] = set()  # services
        self._down: dict[str, float] = {}  # services, and until when
        self.woken = threading.Event()
        self.ending = False  # what it uses is about to be closed

    @property
    def _store(self) -> ServedStore:
        return self._calve.registry

    def want(self, subjects: Iterable[Sequence[str]]) -> None:
        """Somebody has a page open that shows these, as [what, subject]."""
        self._note(self._wanted, [(what, subject) for what, subject in subjects][:_OF_A_PAGE])

    def press(self, what: str, subject: str) -> None:
        """Somebody asks for a look now."""
        self._note(self._pressed, [(what, subject)])

    def _note(self, kept: dict[Subject, float], subjects: Iterable[Subject]) -> None:
        with self._lock:
            self._drop_old()
            known = len(kept)
            for one in subjects:
                if len(kept) < _MOST_WANTED:
                    kept[one] = self._now() + _OPEN_SECONDS
            new = len(kept) > known
        if new:  # a page that is asked for again and again wakes nobody
            self.woken.set()

    def _drop_old(self) -> None:
        for kept in (self._wanted, self._pressed):
            for old in [one for one, until in kept.items() if until <= self._now()]:
                del kept[old]

    def _is_asked(self) -> bool:
        with self._lock:
            self._drop_old()
            return bool(self._wanted or self._pressed)

    @property
    def tick_seconds(self) -> float:
        """How long it may be left alone, unless it is woken."""
        return _TICK_SECONDS if self._is_asked() else _IDLE_SECONDS

    def next(self) -> Callable[[], None] | None:
        """One look that may begin now, already claimed: call it, in any thread. None if there is none."""
        while self._recent and self._recent[0] <= self._now() - 60:
            self._recent.popleft()
        if len(self._recent) >= A_MINUTE or not (self._calve.config.limits.look_minutes or self._is_asked()):
            return None
        self._list()
        candidates = list(self._ordered())
        # Once for all of them: they may be very many, and all wait for the same service.
        down = self._down_now() if candidates else set()
        held = self._held(down) if candidates else set()
        for look, least in candidates:
            services = self._desk.services(look.verb, look.arguments)
            if self._busy.union(held).intersection(services) or _is_down(services, down):
                continue
            self._last[_of(look)] = self._now()
            self._pressed.pop(_of(look), None)
            # If we die after this, others may look once the claim has run out.
            if self._store.claim_look(
                look.subject, look.what, again_seconds=least, lease_seconds=_LEASE_SECONDS
            ):
                self._recent.append(self._now())
                with self._lock:
                    self._busy.update(services)
                return lambda look=look, services=services: self._do(look, services)  # type: ignore[misc]
        return None

    def _ordered(self) -> Iterator[tuple[Look, float]]:
        """What may be looked at, with how long ago the last look must be."""
        with self._lock:
            kept = ((self._pressed, PRESSED_SECONDS), (self._wanted, WANTED_SECONDS))
            self._drop_old()
            asked = [(one, least) for ones, least in kept for one in ones]
        for one, least in asked:
            if one in self._looks and self._since(one) >= least:
                yield self._looks[one], least
        due = [look for look in self._looks.values() if look.due and self._since(_of(look)) >= look.due]
        for look in sorted(due, key=lambda look: -self._since(_of(look))):
            if not any(map(self._embedded, self._desk.services(look.verb, look.arguments))):
                yield look, look.due or 0.0

    def _since(self, one: Subject) -> float:
        """Seconds since it was last looked at, by us or, as far as the list knows, by others."""
        mine = self._now() - self._last.get(one, float("-inf"))
        return min(mine, self._looks[one].tried + self._now() - self._listed)

    def _list(self) -> None:
        """What there is to look at: pairs that had an export, their destinations, and the backups."""
        with self._lock:
            unknown = any(one not in self._looks for one in (*self._pressed, *self._wanted))
        age = self._now() - self._listed
        # It reads every process; pages want what there is not, too. So a twentieth of the time at most.
        if age < max(_TICK_SECONDS * 5 if unknown else _LIST_SECONDS, 20 * self._list_cost):
            return
        began = self._now()
        counts = self.overview.renewed()
        self._list_cost = self._now() - began
        self._looks = {_of(look): look for look in looks(counts, self._calve.config)}
        self._last = {one: at for one, at in self._last.items() if one in self._looks}
        self._listed = self._now()

    def _down_now(self) -> set[str]:
        """Services that a worker found down, or we did."""
        return {one.service for one in self._store.breakers()} | {
            service for service, until in self._down.items() if until > self._now()
        }

    def _embedded(self, service: str) -> bool:
        kind, _, name = service.partition(":")
        found = self._calve.config.sources.get(name) if kind == "source" else None
        return found is not None and found.embedded

    def _held(self, down: set[str]) -> set[str]:
        """Embedded sources that processes need: a look into one holds its lock. Who waits for a service that is down
        does not need its source yet, and may wait for days."""
        live = (needs for needs in self._store.needed() if not _is_down(needs, down))
        return {one for needs in live for one in needs if self._embedded(one)}

    def _do(self, look: Look, services: Sequence[str]) -> None:
        try:
            self._desk.perform(_WHO, look.verb, look.arguments)
        except CalveError as error:
            if isinstance(error, UnavailableError):
                until = self._now() + _DOWN_PROBES * self._calve.config.limits.probe_seconds
                known = error.service in services
                self._down |= dict.fromkeys((error.service,) if known else services, until)
            self._fail(look, error.message)
        except Exception as error:  # noqa: BLE001 - a defect of one look must not end the others
            if self.ending:
                return
            _log.exception("looking at %s for pages failed", look.subject)
            self._fail(look, f"internal error: {type(error).__name__}")
        finally:
            with self._lock:
                self._busy.difference_update(services)
            self.woken.set()

    def _fail(self, look: Look, message: str) -> None:
        try:
            self._store.fail_look(look.subject, look.what, message)
        except CalveError as error:
            _log.warning("that %s could not be looked at is not kept: %s", look.subject, error.message)


def _is_down(services: Iterable[str], down: Iterable[str]) -> bool:
    """A breaker names a storage or a place of backups with its whole address, a look only by its kind."""
    wide = tuple("backup:" if one == "backups" else one for one in services)
    narrow = tuple(one for one in wide if one.startswith(("backup:", "storage:")))
    return any(one in wide or (narrow and one.startswith(narrow)) for one in down)


def _of(look: Look) -> Subject:
    return look.what, look.subject


def looks(counts: Counts, config: Config) -> Iterator[Look]:
    """Everything there is to look at."""
    due = config.limits.look_minutes * 60 or None

    def tried(seen: LastSeen | None) -> float:
        at = seen.sighting.tried_at if seen else None
        return (counts.at - at).total_seconds() if at else float("inf")

    found = counts.rows
    for one in found:
        subject = pair(one["source"], one["destination"])
        given = {"table": one["source"], "to": one["destination"], "gone": True}
        seen = counts.pairs.get(subject)
        if one["source"].partition(":")[0] in config.sources:
            yield Look(
                what="pair", subject=subject, verb="partitions", arguments=given, tried=tried(seen), due=due
            )
    published: dict[
        str, datetime
    ] = {}  # the last write to each: a list would be read through for every table
    for work in counts.totals.latest:
        if work.completed_at and work.kind in ("export", "optimize"):
            last = published.get(work.destination, work.completed_at)
            published[work.destination] = max(last, work.completed_at)
    for to in {one["destination"] for one in found}:
        if is_folder(to) or to.partition(".")[0] not in config.catalogs:
            continue  # plain Parquet has no health
        seen = counts.health.get(to)
        tried_at = seen.sighting.tried_at if seen else None
        changed = tried_at is None or (to in published and published[to] > tried_at)
        yield Look(
            what="health", subject=to, verb="health", arguments={"table": to}, tried=tried(seen),
            due=due and (due if changed else max(due, _HEALTH_SECONDS)),
        )  # fmt: skip
    seen = counts.backups.get(config.backup_url)
    used = seen is not None or any(one.kind in ("backup", "restore") for one in counts.totals.latest)
    yield Look(
        what="backups",
        subject=config.backup_url,
        verb="backup_list",
        arguments={"contents": True},
        tried=tried(seen),
        due=due if used else None,
    )


def bounded_for_looks(config: Config) -> Config:
    """The same configuration, with which nothing waits for long."""
    limits = config.limits
    return replace(
        config,
        limits=replace(
            limits,
            source_busy_seconds=0.0,
            query_seconds=min(limits.query_seconds, CALL_SECONDS),
            call_seconds=min(limits.call_seconds, CALL_SECONDS),
        ),
    )


@contextmanager
def looking_out(lookout: Lookout) -> Iterator[None]:
    """It is at work for as long as the block lasts."""
    stop = threading.Event()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lookout")

    def run() -> None:
        while not stop.is_set():
            lookout.woken.clear()
            try:
                while not stop.is_set() and (look := lookout.next()) is not None:
                    if not stop.is_set():  # else its claim runs out
                        pool.submit(look)
            except CalveError as error:
                _log.warning("nothing is looked at for pages now: %s", error.message)
            lookout.woken.wait(lookout.tick_seconds)
            stop.wait(0.1)  # a page that asks and asks does not keep us busy

    thread = threading.Thread(target=run, name="lookout", daemon=True)
    thread.start()
    try:
        yield
    finally:
        lookout.ending = True
        stop.set()
        lookout.woken.set()
        thread.join(CALL_SECONDS)  # first: it hands work to the pool
        pool.shutdown(wait=False, cancel_futures=True)
