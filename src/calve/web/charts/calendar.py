"""Days as squares, a column a week: what happened on each. Days are of UTC."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.words import counted

WEEKS = 13
_CELL, _GAP, _LEFT, _TOP = 14.0, 4.0, 34.0, 18.0
_MONTH = 30.0  # that a name of a month needs


def calendar(days: Sequence[Mapping[str, Any]], today: str) -> Markup:
    """`[{day, made, proven, failed}]`; `today` is a day or a time. Beyond 13 weeks nothing is drawn."""
    last = _day(today)
    if last is None:
        return svg.picture("No days", "", cls="calendar", height=_TOP)
    first = last - timedelta(days=last.weekday() + 7 * (WEEKS - 1))
    found = {parsed: one for one in days if (parsed := _day(one.get("day"))) and first <= parsed <= last}
    drawn: list[Markup] = []
    month, place, label = 0, 0.0, 0
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        x, y = _LEFT + number // 7 * (_CELL + _GAP), _TOP + day.weekday() * (_CELL + _GAP)
        if day.month != month and day.weekday() == 0:
            if month and x - place < _MONTH:
                drawn.pop(label)  # a month of one week at the left edge: its name would run into the next
            month, place, label = day.month, x, len(drawn)
            drawn.append(svg.element("text", f"{day:%b}", cls="tick", x=x, y=_TOP - 6))
        cls, said = _said(found.get(day))
        drawn.append(
            svg.element(
                "rect", svg.element("title", f"{day.isoformat()}: {said}"),
                cls=f"day {cls}", x=x, y=y, width=_CELL, height=_CELL, rx=2,
            )
        )  # fmt: skip
    for row, word in ((0, "Mon"), (2, "Wed"), (4, "Fri")):
        drawn.append(svg.element("text", word, cls="tick", x=0, y=_TOP + row * (_CELL + _GAP) + 11))
    made = sum(int(one.get("made") or 0) for one in found.values())
    title = f"{counted(made, 'backup')} in {WEEKS} weeks, on {counted(len(found), 'day')}"
    wide = _LEFT + WEEKS * (_CELL + _GAP) + _MONTH - _CELL
    chart = svg.element(
        "svg", svg.element("title", title), svg.element("desc", "A square a day, a column a week."), *drawn,
        cls="chart calendar", role="img", width=wide, height=_TOP + 7 * (_CELL + _GAP),
    )  # fmt: skip
    rows = [(day.isoformat(), _said(one)[1]) for day, one in sorted(found.items(), reverse=True)]
    return svg.joined((chart, svg.numbers(title, ("Day", "Backups"), rows) if rows else None))


def _said(one: Mapping[str, Any] | None) -> tuple[str, str]:
    if one is None:
        return "none", "none"
    if one.get("failed"):
        return "failed", "failed"
    if one.get("proven"):
        return "proven", "made and proven"
    return ("made", "made, not proven") if one.get("made") else ("none", "none")


def _day(text: object) -> date | None:
    try:
        return date.fromisoformat(str(text)[:10])
    except ValueError:
        return None
