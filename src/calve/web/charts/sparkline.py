"""Amounts over time: a small one for a row of a list, and columns with an axis for a page."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.words import count, exact, moment, short, size

MOST = 400  # columns; more are added up
_HEIGHT = 24.0
_TALL = 120.0
_AXIS = 20.0
_HOUR = 3600.0
_KEPT = 512  # small charts, of a kilobyte each
_LEAST = 1.5  # pixels that an amount above 0 has


def sparkline(values: Sequence[float], what: str = "exported in 30 days", unit: str = "bytes") -> Markup:
    """The last one looks different from the others. Nothing at all is a dotted line."""
    return _sparkline(tuple(values), what, unit)


@lru_cache(_KEPT)  # a list has a hundred, and few of them change before it is shown again
def _sparkline(values: tuple[float, ...], what: str, unit: str) -> Markup:
    amounts, said = folded(svg.known(values), MOST), _unit(unit)
    highest = max(amounts, default=0.0)
    if highest <= 0:
        base = svg.level(_HEIGHT - 1, "base none")
        return svg.picture(f"Nothing {what}", "A column a day.", base, cls="spark", height=_HEIGHT)
    title = f"{said(sum(amounts))} {what}, at most {said(highest)} a day"
    return svg.picture(
        title,
        "A column a day, today last.",
        svg.level(_HEIGHT - 0.5, "base"),
        # One shape for all of them: a list has a hundred of these charts.
        svg.element("path", cls="column", d=_outline(amounts[:-1], 0, highest)),
        svg.element("path", cls="last", d=_outline(amounts[-1:], len(amounts) - 1, highest)),
        cls="spark",
        height=_HEIGHT,
        viewBox=f"0 0 {len(amounts)} {_HEIGHT:g}",
        preserveAspectRatio="none",
    )


def _outline(amounts: Sequence[float], first: int, highest: float) -> str:
    """Columns that stand on the base, each 1 wide with what is left between them."""
    return "".join(
        f"M{at}.1 {_HEIGHT - 1:g}v-{round(_tall(one / highest, _HEIGHT - 3), 1):g}h.8V{_HEIGHT - 1:g}"
        for at, one in enumerate(amounts, first)
        if one > 0
    )


def columns(
    values: Sequence[float],
    start: str,
    step_seconds: float,
    *,
    what: str = "rows",
    unit: str = "count",
    end: str = "now",
    title: str = "",
) -> Markup:
    """Amounts by piece of time, with clock times below, or dates for pieces of a day, and the highest above. `end`: a time,
    or a word for it."""
    amounts, said = folded(svg.known(values), MOST), _unit(unit)
    highest, total = max(amounts, default=0.0), sum(amounts)
    begin = moment(start)
    step = step_seconds * (len(values) / len(amounts) if amounts else 1)
    wide = 1 / max(len(amounts), 1)
    times = [
        exact((begin + timedelta(seconds=at * step)).isoformat()) if begin else ""
        for at in range(len(amounts))
    ]
    drawn = [
        svg.rect(
            at * wide + wide * 0.12,
            _TALL - _tall(one / highest, _TALL - 18),
            wide * 0.76,
            _tall(one / highest, _TALL - 18),
            "column",
            svg.element("title", f"{times[at]}: {said(one)} {what}"),
        )
        for at, one in enumerate(amounts)
        if one > 0
    ]
    clock = slice(11, 16 if step * len(amounts) >= _HOUR else 19)
    if step >= 24 * _HOUR:
        times, clock = [one[:10] for one in times], slice(10)
    ticks = [
        svg.words(place, _TALL + 15, times[min(int(place * len(amounts)), len(amounts) - 1)][clock], f"tick{minor}", anchor)
        for place, anchor, minor in ((0.0, "start", ""), (0.25, "middle", " minor"), (0.5, "middle", ""), (0.75, "middle", " minor"))
        if amounts and begin
    ]  # fmt: skip
    top = (
        svg.words(0.0, 11, f"{short(highest) if unit == 'count' else said(highest)} {what}", "tick")
        if highest
        else None
    )
    title = title or (
        f"{said(total)} {what} since {times[0]}, at most {said(highest)} at {times[amounts.index(highest)]}"
        if total
        else f"No {what} in this time"
    )
    chart = svg.picture(
        title,
        "A column for each piece of time. Times are UTC.",
        svg.level(18, "grid"),
        svg.level(18 + (_TALL - 18) / 2, "grid"),
        svg.level(_TALL, "base"),
        top,
        *drawn,
        *ticks,
        svg.words(1.0, _TALL + 15, exact(end)[clock] or end, "tick", "end"),
        cls="columns",
        height=_TALL + _AXIS,
    )
    rows = [(times[at], f"{said(one)} {what}") for at, one in enumerate(amounts) if one > 0]
    return svg.joined((chart, svg.numbers(title, ("Time", what.capitalize()), rows) if rows else None))


def shares(pieces: Sequence[tuple[str, str, float]]) -> Markup:
    """One bar in parts: class, word and number of each. Beside it stand the numbers, so it is hidden from readers."""
    return _shares(tuple(pieces))


@lru_cache(_KEPT)
def _shares(pieces: tuple[tuple[str, str, float], ...]) -> Markup:
    amounts = svg.known(number for _, _, number in pieces)
    total = sum(amounts)
    place, drawn = 0.0, []
    for (cls, _, _), amount in zip(pieces, amounts, strict=True):
        if amount > 0:
            drawn.append(svg.rect(place / total, 0, amount / total, 8, cls))
            place += amount
    return svg.element("svg", *drawn, cls="chart shares", width="100%", height=8, aria_hidden="true")


def folded(values: list[float], most: int) -> list[float]:
    """At most that many, neighbours added up."""
    if len(values) <= most:
        return values
    of = -(-len(values) // most)
    return [sum(values[start : start + of]) for start in range(0, len(values), of)]


def _tall(part: float, height: float) -> float:
    return max(part * height, _LEAST)


def _unit(unit: str) -> Callable[[float], str]:
    return size if unit == "bytes" else count
