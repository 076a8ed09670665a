"""Charts in a browser: nothing at all, far too much, and names that do not end; no label lies on another or outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import calve.web
from calve.web.charts import CHARTS
from support.browser import Chromium

PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
ASSETS = Path(calve.web.__file__).parent / "assets"
NOW = "2026-11-16T12:00:00Z"
LONG = "a_name_of_two_hundred_characters_" * 6 + "to"
OVERLAPS = """() => [...document.querySelectorAll("figure")].flatMap((figure) => {
  const chart = figure.querySelector("svg");
  const whole = chart.getBoundingClientRect();
  const shown = [...chart.querySelectorAll("text")].map((text) => {
    const box = text.getBoundingClientRect(), inner = text.closest("svg");
    const end = whole.left + inner.x.baseVal.value + inner.width.baseVal.value;
    return { text: text.textContent.slice(0, 40), left: box.left, top: box.top + 2, bottom: box.bottom - 2,
             right: inner === chart ? box.right : Math.min(box.right, end) };
  }).filter((one) => one.right - one.left > 0);
  const found = [];
  shown.forEach((one, at) => {
    if (one.left < whole.left - 3 || one.right > whole.right + 3) found.push(`${figure.id}: ${one.text} is cut`);
    for (const other of shown.slice(at + 1))
      if (one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom)
        found.push(`${figure.id}: ${one.text} | ${other.text}`);
  });
  return found;
})"""


def sheet(seconds: float = 10.0, bars: Any = (), **given: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PAGES / "sheet.json").read_text())
    document |= {"waits": [], "outages": [], "running": [], "milestones": []} | given
    tries = {"bars": bars, "buckets": None, "count": len(bars or ()), "failed": 0, "seconds": seconds}
    return document | {"attempts": document["attempts"] | tries | given.get("attempts", {})}


def bar(number: int, start: float, end: float, code: str = "") -> dict[str, Any]:
    spent = None if code else {"read": 0.2, "write": 0.3}
    return {
        "number": number, "attempt": 1, "start": start, "end": end, "ending": "done", "code": code, "worker": LONG,
        "rows": 10**9, "bytes": 10**12, "spent": spent,
    }  # fmt: skip


def very_many() -> dict[str, Any]:
    pieces = {name: [9.0] * 240 for name in ("waiting", "upload", "worked", "rows", "bytes", "read", "write", "failed")}  # fmt: skip
    found = sheet(86_400.0, None)
    found["attempts"] |= {"count": 120_000, "buckets": pieces | {"step_seconds": 360.0, "every": 53}}
    found["process"] = found["process"] | {"tasks": {"total": 100_000, "done": 100_000, "failed": 0}}
    return found


def chart(name: str, *given: Any, **more: Any) -> Callable[[], str]:
    return lambda: str(CHARTS[name](*given, **more))


WAITED = {"from": "2026-11-16T12:44:00Z", "to": None, "for": LONG}
QUEUE = {
    "count": 10**9,
    "for": LONG,
    "tasks": [{"number": at, "since": "2026-11-16T12:44:30Z"} for at in range(8)],
}
DOWN = {"service": LONG, "reason": LONG, "opened_at": "2026-11-16T12:44:30Z", "closed_at": None}
WENT = [{"name": name, "at": at} for name, at in (("submitted", "2020-01-01T00:00:00Z"), ("planned", NOW), ("publishing", "2019-01-01T00:00:00Z"))]  # fmt: skip
PENDING = {"PENDING": ["RUNNING"], "RUNNING": ["PUBLISHING"]}
EXTREMES: dict[str, Callable[[], str]] = {
    "columns-none": chart("columns_chart", [], NOW, 900),
    "columns-one": chart("columns_chart", [1], NOW, 900),
    "columns-day": chart("columns_chart", [10**15] * 96, NOW, 900),
    "columns-million": chart("columns_chart", [1.0] * 10**6, NOW, 1),
    "spark-none": chart("sparkline", []),
    "spark": chart("sparkline", [10**18] * 30),
    "histogram": chart("histogram_chart", [{"name": LONG, "files": 10**9}, {"name": "b", "files": 0}]),
    "histogram-before": chart("histogram_chart", [{"name": LONG, "files": 1}], [{"name": LONG, "files": 10**6}]),
    "outages": chart("outages_chart", [DOWN], NOW),
    **{f"calendar-{day}": chart("calendar_chart", [], f"2026-{day}") for day in ("11-16", "01-01", "03-02", "08-31", "05-31")},
    **{f"diagram-{state}": chart("diagram_chart", state, WENT, PENDING, NOW) for state in ("PENDING", "PUBLISHING", "FAILED", LONG)},
    "gantt-none": lambda: str(CHARTS["gantt_chart"](sheet(0.0))),
    "gantt-one": lambda: str(CHARTS["gantt_chart"](sheet(0.001, [bar(1, 0.0, 0.001)]))),
    "gantt-negative": lambda: str(CHARTS["gantt_chart"](sheet(5.0, [bar(1, 4.0, -3.0), bar(2, -9.0, 5.0, "lost")]))),
    "gantt-many": lambda: str(CHARTS["gantt_chart"](sheet(400.0, [bar(at, at, at + 9.0) for at in range(400)]))),
    "gantt-waits": lambda: str(CHARTS["gantt_chart"](sheet(60.0, [bar(1, 0.0, 5.0), bar(2, 50.0, 60.0)], waits=[WAITED], outages=[DOWN]))),
    "gantt-very-many": lambda: str(CHARTS["gantt_chart"](very_many())),
    "gantt-queue": lambda: str(CHARTS["gantt_chart"](sheet(60.0, [bar(1, 0.0, 5.0)], waiting=QUEUE))),
}  # fmt: skip


@pytest.mark.parametrize("width", [328, 700, 1200])
def test_no_label_lies_on_another_or_outside_its_chart(chromium: Chromium, width: int) -> None:
    figures = "".join(f'<figure id="{name}">{made()}</figure>' for name, made in EXTREMES.items())
    page = chromium.browser.new_page(viewport={"width": width, "height": 900})
    try:
        page.set_content(
            f"<style>{(ASSETS / 'calve.css').read_text()} body {{ padding: 0 }}</style>{figures}"
        )
        assert page.locator("figure > svg, figure > div > svg").count() == len(EXTREMES)
        found = page.evaluate(OVERLAPS)
        assert not found, "\n".join(found)
    finally:
        page.close()
