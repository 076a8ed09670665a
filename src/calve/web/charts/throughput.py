"""How fast a process went: rows that its tasks wrote, spread over the time that each try took."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calve.web.charts import svg

PIECES = 120
_LONGEST = 366 * 86_400.0


def rates(attempts: Mapping[str, Any], first: float, last: float) -> list[float]:
    """Rows a second in each piece of that time, from the attempts of a process's sheet; none while no try has written
    a row."""
    first, last = (min(max(svg.finite(at), -_LONGEST), _LONGEST) for at in (first, last))
    step = max((last - first) / PIECES, 0.001)
    bars: Sequence[Mapping[str, Any]] = attempts["bars"] or ()
    if attempts["buckets"]:
        piece = max(svg.finite(attempts["buckets"]["step_seconds"]), 0.001)
        bars = [
            {"start": at * piece, "end": (at + 1) * piece, "rows": rows}
            for at, rows in enumerate(svg.known(attempts["buckets"]["rows"]))
            if rows
        ]
    moved = [
        {
            "start": svg.finite(one["start"]) - first,
            "end": svg.finite(one["end"]) - first,
            "rows": one["rows"],
        }
        for one in bars
    ]
    rows = spread(moved, step, PIECES)
    return [one / step for one in rows] if any(rows) else []


def spread(bars: Sequence[Mapping[str, Any]], step: float, pieces: int) -> list[float]:
    """The rows of each bar, over the pieces of time that it lies in: as many to each as it has of the bar's time."""
    found = [0.0] * pieces
    for one in bars:
        begin, last = svg.finite(one["start"]) / step, svg.finite(one["end"]) / step
        first, until = (min(max(int(at), 0), pieces - 1) for at in (begin, math.ceil(last) - 1))
        shares = [max(min(last, at + 1) - max(begin, at), 0.0) for at in range(first, max(first, until) + 1)]
        whole = sum(shares)
        for at, share in enumerate(shares, first):
            found[at] += svg.known([one["rows"]])[0] * (share / whole if whole else 1 / len(shares))
    return found
