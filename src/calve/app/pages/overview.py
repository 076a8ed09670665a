"""Counts of all work, kept in memory (see `kept`) with an age that pages say.

Nothing is decided by them, and what is wrong is never listed from them. The first look reads every process. Later ones
read what is new, for work that has ended does not change; once in an hour all of it is read again.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from calve.app.backups.facts import backup_rows, proven
from calve.app.pages.answers import Kept
from calve.app.pages.counts import (
    DAY_SECONDS,
    DAYS,
    QUARTER_SECONDS,
    Backed,
    Counts,
    LastSeen,
    Pair,
    day_of,
    summary_of,
)
from calve.app.view import Json
from calve.control.registry import ServedStore
from calve.model.process import ProcessId

QUARTERS = 96
_SIGHTINGS = 20_000
_LIVE = 1000
_ENDED = 1000
_WHOLE_SECONDS = 3600.0
_LATE = timedelta(minutes=2)  # above what a transaction takes: its times are from its beginning
_LOOKED = ("pair", "health", "backups")


class Memory:
    """What looks have found, as far as the next one need not read it again."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.at: datetime | None = None  # of the last look
        self.days: dict[int, dict[Pair, int]] = {}
        self.newest: dict[Pair, ProcessId] = {}
        self.known: dict[str, dict[str, LastSeen]] = {what: {} for what in _LOOKED}
        self.tried_at: dict[str, datetime] = {}  # of the newest sighting
        self.backups: dict[
            str, tuple[datetime | None, list[Json]]
        ] = {}  # rows, as they were seen at that time


class Overview(Kept[Counts]):
    """Of one program."""

    def __init__(self, store: ServedStore, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(self.look, "overview")
        self._store = store
        self._now = now
        self.memory = Memory(now())
        self._looking = threading.Lock()

    def counts(self) -> Counts:
        return self.get()

    def look(self) -> Counts:
        """Made now, by the caller."""
        with self._looking:
            return self._look()

    def _look(self) -> Counts:
        if self._now() - self.memory.since > _WHOLE_SECONDS:
            self.memory = Memory(self._now())
        store, memory = self._store, self.memory
        totals = store.totals()
        known = {what: self._sightings(what) for what in _LOOKED}
        made = Counts(
            at=totals.at,
            totals=totals,
            days=self._days(totals.at),
            quarters=tuple(store.work_done(totals.at - timedelta(days=1), piece_seconds=QUARTER_SECONDS)),
            pairs=known["pair"],
            health=known["health"],
            backups=known["backups"],
            backed_up=self._backed_up(known["backups"]),
            newest=self._newest(totals.at),
            live=Counter((one.source, one.destination) for one in store.live(_LIVE) if one.kind == "export"),
        )
        _ = made.rows  # here, and not by the first page that shows them
        memory.at = totals.at
        return made

    def _days(self, now: datetime) -> Mapping[int, Mapping[Pair, int]]:
        """Today and yesterday anew."""
        memory = self.memory
        first = day_of(now) - DAYS if memory.at is None else day_of(memory.at) - 1
        begin = datetime.fromtimestamp(first * DAY_SECONDS, UTC)
        found: dict[int, dict[Pair, int]] = {}
        for done in self._store.work_done(begin, piece_seconds=DAY_SECONDS):
            if done.kind == "export":
                found.setdefault(done.piece, {})[done.source, done.destination] = done.bytes
        earlier = {day: of for day, of in memory.days.items() if day_of(now) - DAYS <= day < first}
        memory.days = earlier | found
        return memory.days

    def _newest(self, now: datetime) -> dict[Pair, ProcessId]:
        """The last export of each pair, as far back as so many ends."""
        memory = self.memory
        since = now - timedelta(days=DAYS) if memory.at is None else memory.at - _LATE
        ends = self._store.ends(since, limit=_ENDED)
        found: dict[Pair, ProcessId] = {}
        for one in ends:
            if one.kind == "export":
                found.setdefault((one.source, one.destination), one.process_id)
        memory.newest = found if len(ends) == _ENDED else memory.newest | found
        return memory.newest

    def _sightings(self, what: str) -> Mapping[str, LastSeen]:
        memory = self.memory
        last = memory.tried_at.get(what)
        after = last - _LATE if last else None
        found = self._store.sightings(what, after=after, limit=_SIGHTINGS)
        memory.known[what] = memory.known[what] | {
            one.subject: LastSeen(sighting=one, summary=summary_of(one)) for one in found
        }
        if times := [one.tried_at for one in found if one.tried_at]:
            memory.tried_at[what] = max(times)
        return memory.known[what]

    def _backed_up(self, places: Mapping[str, LastSeen]) -> dict[str, Backed]:
        store, found = self._store, dict[str, Backed]()
        for place, known in places.items():
            seen_at, rows = self.memory.backups.get(place, (None, []))
            if seen_at is None or seen_at != known.sighting.seen_at:
                rows = backup_rows(store, place)
                self.memory.backups[place] = known.sighting.seen_at, rows
            proofs = proven(store, place, rows)
            for row in rows:
                proof = proofs.get(row["name"])
                good = proof if proof and proof.ok else None
                made = Backed(
                    name=row["name"],
                    made_at=row.get("created_at", ""),
                    proven_at=good.at if good else None,
                    depth=good.how if good else "",
                )
                for table in row.get("contents") or ():
                    found.setdefault(f"{row['source']}:{table}", made)
        return found
