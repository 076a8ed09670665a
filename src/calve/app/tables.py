"""Pairs of a source table and a destination: what was exported between them, from counts in memory.

What only a source or a catalog knows comes from the last look at it and has its time; nobody looked is not nought.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from calve.app import view
from calve.app.documents import head
from calve.app.overview import DAYS, Backed, Counts, Overview, Pair, summary_of
from calve.app.sightings import pair
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.access import Latest
from calve.model.errors import UsageError
from calve.model.process import ProcessId

PAGE = 100
_MOST = 10_000
_SORTS: dict[str, Callable[[Json], Any]] = {
    "source": lambda row: (row["source"], row["destination"]),
    "destination": lambda row: (row["destination"], row["source"]),
    "last": lambda row: (row["last"] or {}).get("finished_at") or "",
    "hot": lambda row: row["hot"] if row["hot"] is not None else -1,
    "cold": lambda row: row["cold"] if row["cold"] is not None else -1,
    "score": lambda row: row["score"] if row["score"] is not None else 101,
    "proven": lambda row: row["proven_at"] or "",
    "live": lambda row: row["live"],
}


def tables(
    app: App,
    overview: Overview,
    *,
    q: str = "",
    sort: str = "last",
    order: str = "",
    page: int = 1,
    every: bool = False,
) -> Json:
    """`every`: all that fit, for a file."""
    document = head(app)
    if sort not in _SORTS or order not in ("", "up", "down"):
        names = ", ".join(_SORTS)
        raise UsageError("invalid sort", code="bad_option", hint=f"sort by {names}; order up or down")
    order = order or ("up" if sort in ("source", "destination", "score") else "down")
    rows = [row for row in pairs(overview.counts()) if _fits(row, q)]
    rows.sort(key=_SORTS["source"])
    rows.sort(key=_SORTS[sort], reverse=order == "down")
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(page, 1), pages)
    shown = rows[:_MOST] if every else rows[(page - 1) * PAGE : page * PAGE]
    return document | {
        "rows": shown,
        "total": len(rows),
        "page": page,
        "pages": pages,
        "sort": sort,
        "order": order,
        "q": q,
        "overview_seconds": round(overview.seconds, 1),
        "subjects": [["pair", pair(row["source"], row["destination"])] for row in shown[:PAGE]],
        "commands": {},
    }


def pairs(counts: Counts) -> list[Json]:
    """A row for each pair that ever had an export."""
    latest = {(one.source, one.destination): one for one in counts.totals.latest if one.kind == "export"}
    days: dict[Pair, list[int]] = {}
    for done in counts.days:
        age = counts.today - done.piece
        if done.kind == "export" and 0 <= age < DAYS:
            of = days.setdefault((done.source, done.destination), [0] * DAYS)
            of[DAYS - 1 - age] += done.bytes
    found = sorted({*latest, *counts.live})
    return [
        _row(counts, place, latest.get(place), counts.live[place], days.get(place, [0] * DAYS))
        for place in found
    ]


def _row(counts: Counts, place: Pair, latest: Latest | None, live: int, days: list[int]) -> Json:
    source, destination = place
    seen = counts.pairs.get(pair(source, destination))
    known, health = summary_of(seen), summary_of(counts.health.get(destination))
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


def _fits(row: Json, q: str) -> bool:
    wanted = q.lower()
    return not wanted or wanted in row["source"].lower() or wanted in row["destination"].lower()
