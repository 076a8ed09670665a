"""Counts of all work, kept in memory and made beside requests: never by the page that shows them, but for the first.

It is a cache with an age that pages say. Nothing is decided by it, and what is wrong is never listed from it. It reads
every process, so it is made again only if somebody looks, and costs at most a twentieth of a core.
"""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from calve.app.backup_facts import backup_rows, proven
from calve.control.registry import ServedStore
from calve.model.access import Totals
from calve.model.errors import CalveError
from calve.model.process import ProcessId
from calve.model.seen import Sighting, WorkDone

DAYS = 30
DAY_SECONDS = 86_400
QUARTER_SECONDS = 900
QUARTERS = 96
_LEAST_SECONDS = 5.0
_SHARE = 20  # it may take a twentieth of the time
_SIGHTINGS = 20_000
_LIVE = 1000
_ENDED = 1000

Pair = tuple[str, str]  # source and destination


@dataclass(frozen=True, kw_only=True)
class Backed:
    """The newest backup that has a table."""

    name: str
    made_at: str
    proven_at: datetime | None = None
    depth: str = ""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one look found."""

    at: datetime
    totals: Totals
    days: tuple[WorkDone, ...]
    quarters: tuple[WorkDone, ...]
    pairs: dict[str, Sighting]  # by subject
    health: dict[str, Sighting]
    backups: tuple[Sighting, ...]
    backed_up: dict[str, Backed]  # by source table
    newest: dict[Pair, ProcessId]  # exports that ended lately
    live: Counter[Pair]  # exports that have not ended

    @property
    def today(self) -> int:
        return int(self.at.timestamp()) // DAY_SECONDS

    @property
    def this_quarter(self) -> int:
        return int(self.at.timestamp()) // QUARTER_SECONDS


class Overview:
    """Of one program. May be shared by threads."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts: Counts | None = None
        self._made = 0.0
        self._cost = 0.0
        self._making: threading.Thread | None = None

    def counts(self) -> Counts:
        """The last counts. If they are old, new ones are made in the background for the next request."""
        with self._lock:
            if self._counts is None:
                self._counts = self.look()
            elif time.monotonic() - self._made > max(_LEAST_SECONDS, _SHARE * self._cost):
                self._begin()
            return self._counts

    @property
    def seconds(self) -> float:
        """How old the counts are."""
        return time.monotonic() - self._made

    def _begin(self) -> None:
        if self._making is None or not self._making.is_alive():
            self._making = threading.Thread(target=self._again, name="overview", daemon=True)
            self._making.start()

    def _again(self) -> None:
        try:
            made = self.look()
        except CalveError:
            return  # the store does not answer: the old ones stay, and their age says so
        with self._lock:
            self._counts = made

    def look(self) -> Counts:
        """Made now, by the caller."""
        began, cpu = time.monotonic(), time.thread_time()
        store = self._store
        totals = store.totals()
        made = Counts(
            at=totals.at,
            totals=totals,
            days=tuple(store.work_done(totals.at - timedelta(days=DAYS), piece_seconds=DAY_SECONDS)),
            quarters=tuple(store.work_done(totals.at - timedelta(days=1), piece_seconds=QUARTER_SECONDS)),
            pairs={one.subject: one for one in store.sightings("pair", limit=_SIGHTINGS)},
            health={one.subject: one for one in store.sightings("health", limit=_SIGHTINGS)},
            backups=tuple(store.sightings("backups")),
            backed_up=_backed_up(store),
            newest=_newest(store, totals.at),
            live=Counter((one.source, one.destination) for one in store.live(_LIVE) if one.kind == "export"),
        )
        # Waiting for a database is not our core's time, but it is the database's.
        self._cost = max(time.thread_time() - cpu, (time.monotonic() - began) / 4)
        self._made = time.monotonic()
        return made


def _backed_up(store: ServedStore) -> dict[str, Backed]:
    found: dict[str, Backed] = {}
    for place in [one.subject for one in store.sightings("backups")]:
        rows = backup_rows(store, place)
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


def _newest(store: ServedStore, now: datetime) -> dict[Pair, ProcessId]:
    found: dict[Pair, ProcessId] = {}
    for one in store.ended(now - timedelta(days=DAYS), limit=_ENDED):
        if one.kind == "export":
            found.setdefault((one.source, one.destination), one.id)
    return found


def summary_of(sighting: Sighting | None) -> dict[str, Any]:
    """What a look noted; {} if there was none, or it cannot be read."""
    try:
        found = json.loads(sighting.summary) if sighting and sighting.summary else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
