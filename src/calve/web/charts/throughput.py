"""How fast a process went: rows that its tasks wrote, spread over the time that each try took."""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.charts.sparkline import columns
from calve.web.words import moment, short

_PIECES = 120
_LONGEST = 366 * 86_400.0


def throughput(document: Mapping[str, Any]) -> Markup | str:
    """Rows by piece of time, from a process's sheet; nothing while no try has written a row."""
    attempts = document["attempts"]
    start = moment(attempts["from"])
    if start is None:
        return ""
    if attempts["buckets"]:
        buckets = attempts["buckets"]
        step, rows = max(svg.finite(buckets["step_seconds"]), 0.001), svg.known(buckets["rows"])
    else:
        seconds = min(max(svg.finite(attempts["seconds"]), 0.0), _LONGEST)
        step = max(seconds / _PIECES, 1.0)
        rows = spread(attempts["bars"] or (), step, max(math.ceil(seconds / step), 1))
    if not any(rows):
        return ""
    rates = [one / step for one in rows]
    mean, most = (short(round(one)) for one in (sum(rates) / len(rates), max(rates)))
    return columns(
        rates,
        start.isoformat(),
        step,
        what="rows a second",
        end=(start + timedelta(seconds=step * len(rows))).isoformat(),
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
