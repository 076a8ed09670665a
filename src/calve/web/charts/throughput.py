"""How fast a process went: rows that its tasks wrote, spread over the time that each try took."""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.charts.gantt import extent
from calve.web.charts.sparkline import columns
from calve.web.words import moment, short

_PIECES = 120
_LONGEST = 366 * 86_400.0


def throughput(document: Mapping[str, Any]) -> Markup | str:
    """Rows by piece of time, on the axis of the chart of its tasks; nothing while no try has written a row."""
    attempts = document["attempts"]
    start = moment(attempts["from"])
    if start is None:
        return ""
    first, last = (min(max(at, -_LONGEST), _LONGEST) for at in extent(document, start))
    if attempts["buckets"]:
        buckets = attempts["buckets"]
        piece = max(svg.finite(buckets["step_seconds"]), 0.001)
        bars: Sequence[Mapping[str, Any]] = [
            {"start": at * piece, "end": (at + 1) * piece, "rows": rows}
            for at, rows in enumerate(svg.known(buckets["rows"]))
            if rows
        ]
    else:
        bars = attempts["bars"] or ()
    pieces = min(max(math.ceil(last - first), 1), _PIECES)
    step = (last - first) / pieces
    rows = spread(
        [{**one, "start": one["start"] - first, "end": one["end"] - first} for one in bars], step, pieces
    )
    if not any(rows):
        return ""
    working = min(max(svg.finite(attempts["seconds"]), step), last)
    rates = [one / step for one in rows]
    mean, most = (short(round(one)) for one in (sum(rows) / working, max(rates)))
    begin = start + timedelta(seconds=first)
    return columns(
        rates,
        begin.isoformat(),
        step,
        what="rows a second",
        end=(start + timedelta(seconds=last)).isoformat(),
        title=f"{mean} rows a second on average, at most {most}",
    )


def spread(bars: Sequence[Mapping[str, Any]], step: float, pieces: int) -> list[float]:
    """The rows of each bar, evenly over the pieces of time that it lies in."""
    found = [0.0] * pieces
    for one in bars:
        begin, last = svg.finite(one["start"]) / step, svg.finite(one["end"]) / step
        first, until = (min(max(int(at), 0), pieces - 1) for at in (begin, math.ceil(last) - 1))
        for at in range(first, until + 1):
            found[at] += svg.known([one["rows"]])[0] / (until - first + 1)
    return found
