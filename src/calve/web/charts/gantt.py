"""When each try of each task ran, and what it did: reading, writing, uploading, and waiting in a hatch of its own.

At most 400 tries are drawn one by one, in lanes; of more, how many were in each phase over time. Nothing is guessed:
where phases were not measured a bar is grey, and what lies between two bars of a lane is nobody's time. Publishing has
a row of its own: its colour is too near to the others' for some eyes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.charts.throughput import rates
from calve.web.words import count, counted, cut, moment, short, size, span

LANES = 64
_QUEUE = 8
BARS = 400
_LANE, _BAR = 18.0, 14.0
_HEAD, _AXIS, _AREA = 22.0, 22.0, 160.0
_RATES = 60.0
_PHASES = ("read", "write", "upload")
_AREAS = ("upload", "write", "read", "worked", "waiting")  # from the bottom
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
_HATCH = "h-wait"
_WORDS = 0.1  # of the width: what a bar needs to have words in it
_GAP = 0.01  # of the whole: shorter pauses between tries are not drawn


class _Frame:
    """Time across, rows down."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.length = first, max(last - first, 0.001)
        self.y = 0.0
        self.drawn: list[Markup] = []

    def at(self, second: float) -> float:
        return min(max((second - self.first) / self.length, 0.0), 1.0)

    def row(self, text: str) -> None:
        self.drawn.append(svg.words(0, self.y + 15, text, "label"))
        self.y += _HEAD

    def bar(self, first: float, last: float, cls: str, title: str = "", height: float = _BAR) -> None:
        left, right = self.at(first), self.at(last)
        inside = svg.element("title", title) if title else None
        self.drawn.append(svg.rect(left, self.y, max(right - left, 0.0008), height, cls, inside))


def gantt(document: Mapping[str, Any]) -> Markup:
    """The chart of a process, from its sheet."""
    attempts, process = document["attempts"], document["process"]
    start = moment(attempts["from"])
    if start is None:
        return svg.picture("No times are known", "", cls="gantt", height=_HEAD)
    running = [_after(one["started_at"], start) for one in document["running"] if one["started_at"]]
    now = _after(process["finished_at"] or document["now"], start)
    first, last = extent(document, start)
    frame = _Frame(first, last)
    _waits(frame, _stops(document, start, running, now))
    if attempts["bars"] is not None:
        lanes = _lanes(frame, document, running, now)
        title = f"{counted(attempts['count'], 'try', 'tries')} of tasks in {span(last)}, {lanes} at once"
    else:
        _areas(frame, attempts)
        every, total = attempts["buckets"]["every"], process["tasks"]["total"]
        title = f"{counted(attempts['count'], 'try', 'tries')} of tasks in {span(last)}"
        title += f"; drawn from every {_ordinal(every)} of {counted(total, 'task')}"
    _queue(frame, document, start, now)
    title += f"; {count(attempts['failed'])} failed" if attempts["failed"] else ""
    _publishing(frame, document["milestones"], start, now)
    _rates(frame, attempts, last)
    behind = [*_bands(frame, document["outages"], start, now), *_axis(frame)]
    height = frame.y + _AXIS
    about = (
        "Time goes to the right. Hatched is waiting. Bands are outages of services that the process needs."
    )
    return svg.picture(title, about, _hatches(), *behind, *frame.drawn, cls="gantt", height=height)


def extent(document: Mapping[str, Any], start: datetime) -> tuple[float, float]:
    """The first and the last second of the axis, after the first try. A long wait before it is cut; the words say how
    long it was."""
    attempts, process = document["attempts"], document["process"]
    running = [_after(one["started_at"], start) for one in document["running"] if one["started_at"]]
    now = _after(process["finished_at"] or document["now"], start)
    last = max(now, svg.finite(attempts["seconds"]), *running, 0.001)
    return max(min(_after(process["created_at"], start), 0.0), -last / 3), last


def tries(document: Mapping[str, Any]) -> Markup | str:
    """The numbers of the chart."""
    bars = document["attempts"]["bars"] or document["attempts"]["slowest"]
    phases = [name for name in _PHASES if any((one["spent"] or {}).get(name) for one in bars)]
    head = ("Task", "Try", "After", "Took", "Waited", *(document["phases"].get(one, one) for one in phases), "Rows", "Bytes", "Ended", "Worker")  # fmt: skip
    rows = [
        (
            str(one["number"]), str(one["attempt"]), span(one["start"]), span(one["end"] - one["start"]),
            span(waited(one)) if one["spent"] else "–",
            *(span((one["spent"] or {}).get(name)) for name in phases),
            count(one["rows"]), size(one["bytes"]), one["code"] or one["ending"], cut(one["worker"], 30),
        )
        for one in bars[:BARS]
    ]  # fmt: skip
    return svg.numbers("Tries of tasks", head, rows) if rows else ""


def waited(bar: Mapping[str, Any]) -> float:
    """What is left of a try: for a core, or for an executor to start."""
    return float(max(bar["end"] - bar["start"] - sum((bar["spent"] or {}).values()), 0.0))


# -- rows ---------------------------------------------------------------------------------------------


_Stop = tuple[float, float, str, str]  # from, to, what for, and more about it


def _stops(document: Mapping[str, Any], start: datetime, running: Sequence[float], now: float) -> list[_Stop]:
    """When nothing of it ran, and what it waited for: what is known, and between tries a back-off or a free slot."""
    known = [
        (_after(one["from"], start), _after(one["to"], start) if one["to"] else now, f"waited for {one['for']}", "")
        for one in document["waits"]
    ] + [
        (_after(one["opened_at"], start), _after(one["closed_at"], start) if one["closed_at"] else now,
         f"{one['service']} was down", f": {one['reason']}")
        for one in document["outages"]
    ]  # fmt: skip
    at = {one["name"]: one["at"] for one in document["milestones"]}
    if at.get("leased") and at.get("planned"):
        known.append((_after(at["leased"], start), _after(at["planned"], start), "being planned", ""))
    bars = sorted(document["attempts"]["bars"] or (), key=lambda one: one["start"])
    covered, last = 0.0, ""
    for begin, end, code in sorted(
        [*((one["start"], one["end"], one["code"]) for one in bars), *((one, now, "") for one in running),
         *((one[0], one[1], "") for one in known)],
        key=lambda one: one[0],
    ):  # fmt: skip
        if begin - covered > now * _GAP and begin > 0:
            known.append(
                (covered, begin, f"backed off after {last}" if last else "waited for a free slot", "")
            )
        if end > covered:
            covered, last = end, code
    return known


def _waits(frame: _Frame, stops: Sequence[_Stop]) -> None:
    """Those at the same time below each other."""
    if not stops:
        return
    frame.row("Waiting")
    top, free = frame.y, list[float]()
    for left, right, said, rest in sorted(stops[:BARS]):
        frame.y = top + _LANE * _lane(free, left, right)
        frame.bar(left, right, "waiting", f"{cut(said + rest, 200)}, {span(right - left)}")
        at, wide = frame.at(left), frame.at(right) - frame.at(left)
        if wide >= _WORDS:
            frame.drawn.append(svg.inside(at, frame.y + 11, wide, cut(said, 80), "inside", indent=6))
    frame.y = top + _LANE * len(free) + 4


def _lanes(frame: _Frame, document: Mapping[str, Any], running: Sequence[float], now: float) -> int:
    """Greedy packing: a try takes the first lane that is free. Answers how many lanes there are."""
    bars = sorted(document["attempts"]["bars"][:BARS], key=lambda one: (one["start"], one["number"]))
    if not bars and not running:
        return 0
    frame.row("Tasks")
    top, free = frame.y, list[float]()
    phases = document["phases"]
    for one in bars:
        frame.y = top + _LANE * _lane(free, one["start"], one["end"])
        before, frame.drawn = frame.drawn, []
        _try(frame, one)
        frame.drawn = [*before, svg.element("g", svg.element("title", _told(one, phases)), *frame.drawn)]
    for begin in sorted(running):
        frame.y = top + _LANE * _lane(free, begin, now)
        frame.bar(begin, now, "open", f"running for {span(now - begin)}")
    lanes = len(free)
    frame.y = top + _LANE * lanes + 4
    return lanes


def _queue(frame: _Frame, document: Mapping[str, Any], start: datetime, now: float) -> None:
    """Tasks that have not ended and do not run: since when, and what for. Those that back off come first."""
    running = {one["number"] for one in document["running"]}
    latest = {one["number"]: one for one in sorted(document["attempts"]["bars"] or (), key=_tried)}
    ready = {one["number"]: _after(one["since"], start) for one in document["waiting"]["tasks"]}
    found = [
        (one["end"], f"task {number} backs off after {one['code']}")
        for number, one in latest.items()
        if one["ending"] == "again" and number not in running and number not in ready
    ] if document["waiting"]["count"] else []  # fmt: skip
    found += [
        (since, f"task {number} waits for {document['waiting']['for']}") for number, since in ready.items()
    ]
    more = document["waiting"]["count"] - len(found[:_QUEUE])
    if not found:
        return
    frame.row("Tasks that wait" + (f", and {count(more)} more" if more > 0 else ""))
    for since, said in found[:_QUEUE]:
        frame.bar(since, now, "waiting", f"{cut(said, 200)}, {span(now - since)}")
        at, wide = frame.at(since), frame.at(now) - frame.at(since)
        if wide >= _WORDS:
            frame.drawn.append(svg.inside(at, frame.y + 11, wide, cut(said, 80), "inside", indent=6))
        frame.y += _LANE
    frame.y += 4


def _tried(one: Mapping[str, Any]) -> tuple[int, int]:
    return one["number"], one["attempt"]


def _try(frame: _Frame, one: Mapping[str, Any]) -> None:
    at, end = one["start"], one["end"]
    if not one["spent"]:
        frame.bar(at, end, "lost" if one["code"] else "worked")
    else:
        gap = waited(one)
        if gap > 0:
            frame.bar(at, at + gap, "waiting")
        at += gap
        for name in _PHASES:
            spent = max(svg.finite(one["spent"].get(name, 0.0)), 0.0)
            if spent > 0:
                frame.bar(at, min(at + spent, end), name)
                at = min(at + spent, end)
    if one["code"]:
        frame.drawn.append(svg.words(frame.at(end), frame.y + 12, "✕", "cross", "end"))


def _told(one: Mapping[str, Any], phases: Mapping[str, str]) -> str:
    said = [f"task {one['number']}", f"try {one['attempt']}" if one["attempt"] > 1 else ""]
    if one["spent"]:
        said.append(f"waited {span(waited(one))}")
        said += [
            f"{phases.get(name, name)} {span(one['spent'][name])}"
            for name in _PHASES
            if one["spent"].get(name)
        ]
    else:
        said.append(f"took {span(one['end'] - one['start'])}")
    said.append(f"failed: {cut(one['code'], 60)}" if one["code"] else f"{count(one['rows'])} rows")
    return ", ".join(part for part in said if part)


def _lane(free: list[float], begin: float, end: float) -> int:
    for at, until in enumerate(free):
        if until <= begin:
            free[at] = end
            return at
    if len(free) == LANES:
        soonest = min(range(LANES), key=lambda at: free[at])
        free[soonest] = max(end, free[soonest])
        return soonest
    free.append(end)
    return len(free) - 1


def _areas(frame: _Frame, attempts: Mapping[str, Any]) -> None:
    """How many were in each phase, stacked."""
    buckets = attempts["buckets"]
    found = {name: svg.known(buckets[name]) for name in _AREAS}
    size_ = len(found["read"])
    below = [0.0] * size_
    highest = max((sum(found[name][at] for name in _AREAS) for at in range(size_)), default=0.0)
    frame.row(f"Tasks at once, at most {count(highest)}")
    left, right = frame.at(0.0), frame.at(svg.finite(buckets["step_seconds"]) * size_)
    shapes = []
    for name in _AREAS:
        above = [below[at] + found[name][at] for at in range(size_)]
        if sum(found[name]) > 0:
            shapes.append(svg.element("path", cls=name, d=_path(below, above, highest)))
        below = above
    frame.drawn.append(
        svg.element(
            "svg", *shapes,
            x=svg.across(left), y=frame.y, width=svg.across(right - left), height=_AREA,
            viewBox=f"0 0 {max(size_ - 1, 1)} 100", preserveAspectRatio="none",
        )
    )  # fmt: skip
    frame.y += _AREA
    failed = svg.known(buckets["failed"])
    if any(failed):
        for at, number in enumerate(failed):
            if number:
                place = left + (right - left) * at / max(size_, 1)
                frame.drawn.append(svg.upright(place, frame.y + 2, frame.y + 8, "cross"))
        frame.y += 10
    frame.y += 4


def _path(below: Sequence[float], above: Sequence[float], highest: float) -> str:
    def point(at: int, value: float) -> str:
        return f"{at} {round(100 - 100 * value / highest, 1) if highest else 100:g}"

    there = "L".join(point(at, value) for at, value in enumerate(above))
    back = "L".join(point(at, below[at]) for at in range(len(below) - 1, -1, -1))
    return f"M{there}L{back}Z"


def _publishing(frame: _Frame, milestones: Sequence[Mapping[str, Any]], start: datetime, now: float) -> None:
    at = {one["name"]: one["at"] for one in milestones}
    if not at.get("publishing"):
        return
    end = next((at[name] for name in ("completed", "failed", "cancelled") if at.get(name)), None)
    begin, last = _after(at["publishing"], start), _after(end, start) if end else now
    frame.row("Publishing")
    frame.bar(begin, last, "publish", f"publishing, {span(last - begin)}")
    frame.y += _LANE


def _rates(frame: _Frame, attempts: Mapping[str, Any], last: float) -> None:
    """Rows a second, below the tasks that wrote them."""
    found = rates(attempts, frame.first, last)
    if not found:
        return
    step, most = frame.length / len(found), max(found)
    working = max(min(svg.finite(attempts["seconds"]), last), step)
    mean = sum(found) * step / working
    frame.row(f"{short(round(mean))} rows a second on average, at most {short(round(most))}")
    for at, one in enumerate(found):
        if one > 0:
            height = max(_RATES * one / most, 1.0)
            title = svg.element("title", f"{count(round(one))} rows a second")
            place = frame.at(frame.first + at * step)
            frame.drawn.append(
                svg.rect(place, frame.y + _RATES - height, 1 / len(found), height, "column", title)
            )
    frame.y += _RATES + 4


def _bands(frame: _Frame, outages: Sequence[Mapping[str, Any]], start: datetime, now: float) -> list[Markup]:
    """Outages, behind all rows."""
    found = []
    for one in outages[:BARS]:
        left = frame.at(_after(one["opened_at"], start))
        right = frame.at(_after(one["closed_at"], start) if one["closed_at"] else now)
        found.append(svg.rect(left, 0, max(right - left, 0.001), frame.y, "band"))
    return found


def _axis(frame: _Frame) -> list[Markup]:
    """Round steps after the first try, five or so."""
    step = next((one for one in _STEPS if frame.length / one <= 7), frame.length / 6)
    drawn = [svg.level(frame.y, "base")]
    number = -int(-frame.first // step) if frame.first < 0 else 0
    while number * step <= frame.first + frame.length and len(drawn) < 40:
        place = frame.at(number * step)
        anchor = "start" if place < 0.06 else "end" if place > 0.95 else "middle"
        drawn.append(svg.upright(place, 0, frame.y, "grid"))
        said = "start" if number == 0 else ("−" if number < 0 else "") + span(abs(number) * step)
        drawn.append(svg.words(place, frame.y + 15, said, "tick minor" if number % 2 else "tick", anchor))
        number += 1
    return drawn


def _hatches() -> Markup:
    line = svg.element("path", cls="stroke", d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5")
    ground = svg.element("rect", cls="ground", width=6, height=6)
    pattern = svg.element(
        "pattern", ground, line, id=_HATCH, cls="hatch", width=6, height=6, patternUnits="userSpaceOnUse"
    )
    return svg.element("defs", pattern)


def _after(text: str | None, start: datetime) -> float:
    found = moment(text)
    return (found - start).total_seconds() if found else 0.0


def _ordinal(number: int) -> str:
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if 10 <= number % 100 <= 20 else last}"
