"""The states of a process: the way it went, where it stands, and where it can still go."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.words import between, cut, span, state_look

_WIDE, _HIGH, _STEP = 132.0, 34.0, 208.0
_ROW = ("PENDING", "RUNNING", "PUBLISHING", "COMPLETED")
_BELOW = ("FAILED", "CANCELLED")
_TOP, _BUS, _LOW = 4.0, 62.0, 84.0
_PLACES = {name: (at * _STEP, _TOP) for at, name in enumerate(_ROW)} | {
    "FAILED": (_STEP * 1.0, _LOW),
    "CANCELLED": (_STEP * 2.0, _LOW),
}
# Milestones that are not called as their state.
_STATES = {"submitted": "PENDING", "planned": "RUNNING"}


def diagram(
    state: str,
    milestones: Sequence[Mapping[str, Any]],
    transitions: Mapping[str, Sequence[str]],
    now: str | None = None,
) -> Markup:
    """A state that is not of the six is written below them, and lights none."""
    reached = _reached(milestones)
    if state in _PLACES:
        reached.setdefault(state, None)
    path = [name for name in (*_ROW, *_BELOW) if name in reached]
    ahead = _ahead(state, transitions)
    drawn = [_edge(one, other, reached, path) for one, other in pairwise(_ROW)]
    drawn.append(_bus(path))
    for name, (x, y) in _PLACES.items():
        kind = (
            "current"
            if name == state
            else "past"
            if name in reached
            else "ahead"
            if name in ahead
            else "never"
        )
        drawn += _node(name, x, y, kind)
    if state not in _PLACES:
        drawn.append(svg.element("text", f"now: {cut(state, 16)}", cls="value", x=0, y=_LOW + 21))
    since = next((one["at"] for one in reversed(milestones) if _state(one) == state), None)
    stood = between(since, now)
    title = f"This process is {state_look(state).word}"
    title += f", for {span(stood)}" if stood is not None and state in _ROW[:3] else ""
    width = _STEP * 3 + _WIDE
    chart = svg.element(
        "svg",
        svg.element("title", title),
        svg.element("desc", "; then ".join(_said(name, reached) for name in path) or "No state is known."),
        *drawn,
        cls="chart diagram", role="img", viewBox=f"-2 0 {width + 4:g} {_LOW + _HIGH + 4:g}", width=width, height=_LOW + _HIGH + 4,
    )  # fmt: skip
    return svg.element("div", chart, cls="wide", role="group", tabindex=0, aria_label="State diagram")


def _node(name: str, x: float, y: float, kind: str) -> list[Markup]:
    look = state_look(name)
    shape = svg.element(
        "rect", cls=f"node {kind} {look.tone}", x=x, y=y, width=_WIDE, height=_HIGH, rx=_HIGH / 2
    )
    icon = svg.element(
        "use", cls=f"sign {kind} {look.tone}", href=f"#i-{look.icon}", x=x + 14, y=y + 9, width=16, height=16
    )
    word = svg.element("text", look.word, cls=f"state {kind} {look.tone}", x=x + 37, y=y + 22)
    return [shape, icon, word]


def _edge(one: str, other: str, reached: Mapping[str, str | None], path: Sequence[str]) -> Markup:
    """Between neighbours of the row, with the time between them if both were reached."""
    taken = one in path and other in path
    left, right = _PLACES[one][0] + _WIDE + 4, _PLACES[other][0] - 5
    y = _TOP + _HIGH / 2
    line = svg.element("path", cls=f"edge{' taken' if taken else ''}", d=f"M{left:g} {y:g}H{right:g}")
    tip = svg.element(
        "path", cls=f"tip{' taken' if taken else ''}", d=f"M{right - 6:g} {y - 4:g}L{right:g} {y:g}L{right - 6:g} {y + 4:g}"
    )  # fmt: skip
    spent = between(reached.get(one), reached.get(other)) if taken else None
    middle = (left + right) / 2
    said = (
        svg.element("text", span(spent), cls="tick", x=middle, y=y - 7, text_anchor="middle")
        if spent is not None
        else None
    )
    return svg.joined((line, tip, said))


def _bus(path: Sequence[str]) -> Markup:
    """From each live state down to the two other ends."""
    ended = next((name for name in _BELOW if name in path), None)
    before = [name for name in _ROW[:3] if name in path]
    drawn = []
    for name in _ROW[:3]:
        x = _PLACES[name][0] + _WIDE / 2
        drawn.append(svg.element("path", cls="edge", d=f"M{x:g} {_TOP + _HIGH + 3:g}V{_BUS:g}"))
    first, last = (_PLACES[name][0] + _WIDE / 2 for name in ("PENDING", "PUBLISHING"))
    drawn.append(svg.element("path", cls="edge", d=f"M{first:g} {_BUS:g}H{last:g}"))
    for name in _BELOW:
        x = _PLACES[name][0] + _WIDE / 2
        drawn.append(svg.element("path", cls="edge", d=f"M{x:g} {_BUS:g}V{_LOW - 4:g}"))
    if ended and before:
        x, to = _PLACES[before[-1]][0] + _WIDE / 2, _PLACES[ended][0] + _WIDE / 2
        drawn.append(
            svg.element(
                "path", cls="edge taken", d=f"M{x:g} {_TOP + _HIGH + 3:g}V{_BUS:g}H{to:g}V{_LOW - 4:g}"
            )
        )
    return svg.joined(drawn)


def _reached(milestones: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """When each state was first reached."""
    found: dict[str, str | None] = {}
    for one in milestones:
        name = _state(one)
        if name in _PLACES:
            found.setdefault(name, one.get("at"))
    return found


def _state(milestone: Mapping[str, Any]) -> str:
    name = str(milestone.get("name", ""))
    return _STATES.get(name, name.upper())


def _ahead(state: str, transitions: Mapping[str, Sequence[str]]) -> set[str]:
    """States that it can still come to."""
    found: set[str] = set()
    more = list(transitions.get(state, ()))
    while more:
        name = more.pop()
        if name not in found:
            found.add(name)
            more += transitions.get(name, ())
    return found


def _said(name: str, reached: Mapping[str, str | None]) -> str:
    at = reached.get(name)
    return f"{state_look(name).word}{f' at {at}' if at else ''}"
