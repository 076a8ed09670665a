"""Pairs of a source table and a destination, a page of them: what was exported between them, from counts in memory."""

from collections.abc import Callable
from typing import Any

from calve.app.pages.document import head
from calve.app.pages.overview import Overview
from calve.app.pages.sightings import pair
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.errors import UsageError

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
    rows = [row for row in overview.counts().rows if _fits(row, q)]
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
        "sources": sorted(app.config.sources, key=lambda name: (name != app.config.default_source, name)),
        "overview_seconds": round(overview.seconds, 1),
        "subjects": [["pair", pair(row["source"], row["destination"])] for row in shown[:PAGE]],
        "commands": {},
    }


def _fits(row: Json, q: str) -> bool:
    wanted = q.lower()
    return not wanted or wanted in row["source"].lower() or wanted in row["destination"].lower()
