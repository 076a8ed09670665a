"""What one look at all of the store found, and a row for each pair of tables made of it, once.

What only a source or a catalog knows comes from the last look at it and has its time; nobody looked is not nought.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from calve.app import view
from calve.app.pages.sightings import pair
from calve.app.view import Json
from calve.model.access import Latest, Totals
from calve.model.process import ProcessId
from calve.model.record import fields_of
from calve.model.seen import Sighting, WorkDone

DAYS = 30
DAY_SECONDS = 86_400
QUARTER_SECONDS = 900

Pair = tuple[str, str]  # source and destination


@dataclass(frozen=True, kw_only=True)
class Backed:
    """The newest backup that has a table."""

    name: str
    made_at: str
    proven_at: datetime | None = None
    depth: str = ""


@dataclass(frozen=True, kw_only=True)
class LastSeen:
    """A sighting, its summary read once."""

    sighting: Sighting
    summary: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one look found."""

    at: datetime
    totals: Totals
    days: Mapping[int, Mapping[Pair, int]]  # bytes of exports
    quarters: tuple[WorkDone, ...]
    pairs: Mapping[str, LastSeen]  # by subject
    health: Mapping[str, LastSeen]
    backups: Mapping[str, LastSeen]
    backed_up: dict[str, Backed]  # by source table
    newest: dict[Pair, ProcessId]  # exports that ended lately
    live: Counter[Pair]  # exports that have not ended

    @property
    def today(self) -> int:
        return day_of(self.at)

    @property
    def this_quarter(self) -> int:
        return int(self.at.timestamp()) // QUARTER_SECONDS

    @cached_property
    def rows(self) -> tuple[Json, ...]:
        """A row for each pair that ever had an export, as pages show it. Not to be changed: viewers share them."""
        return _rows(self)


def day_of(at: datetime) -> int:
    return int(at.timestamp()) // DAY_SECONDS


def _rows(counts: Counts) -> tuple[Json, ...]:
    latest = {(one.source, one.destination): one for one in counts.totals.latest if one.kind == "export"}
    first = counts.today - DAYS + 1
    days: dict[Pair, list[int]] = {}
    for day, done in counts.days.items():
        if 0 <= day - first < DAYS:
            for place, size in done.items():
                days.setdefault(place, [0] * DAYS)[day - first] = size
    found = sorted({*latest, *counts.live})
    return tuple(
        _row(counts, place, latest.get(place), counts.live[place], days.get(place, [0] * DAYS))
        for place in found
    )


def _row(counts: Counts, place: Pair, latest: Latest | None, live: int, days: list[int]) -> Json:
    source, destination = place
    found, healthy = counts.pairs.get(pair(source, destination)), counts.health.get(destination)
    seen, known, health = (
        found.sighting if found else None,
        found.summary if found else {},
        healthy.summary if healthy else {},
    )
    return {
        "source": source,
        "destination": destination,
        "counts": known.get("counts"),
        "hot": known.get("hot"),
        "cold": health.get("bytes"),
        "last": _last(latest, counts.newest.get(place)),
        "live": live,
        "proven_at": view.time_json(latest.proven_at) if latest else None,
        "backup": _backup(counts.backed_up.get(source)),
        "score": health.get("score"),
        "score_parts": health.get("parts"),
        "days": days,
        "seen_at": view.time_json(seen.seen_at) if seen else None,
        "error": seen.error if seen else "",
    }


def _backup(backed: Backed | None) -> Json | None:
    if backed is None:
        return None
    return {
        "name": backed.name,
        "at": backed.made_at,
        "proven_at": view.time_json(backed.proven_at),
        "depth": backed.depth,
    }


def _last(latest: Latest | None, id: ProcessId | None) -> Json | None:
    """How the newest work ended, and when; `id` is None if many others ended since."""
    if latest is None:
        return None
    ends: list[tuple[datetime, str]] = [
        (at, state)
        for at, state in ((latest.completed_at, "COMPLETED"), (latest.failed_at, "FAILED"))
        if at is not None
    ]
    if not ends:
        return None
    at, state = max(ends)
    return {"state": state, "finished_at": view.time_json(at), "id": id}


def summary_of(sighting: Sighting | None) -> dict[str, Any]:
    """What a look noted; {} if there was none, or it cannot be read."""
    return fields_of(sighting.summary) if sighting else {}
