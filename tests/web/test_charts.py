"""Charts: numbers in, SVG out; escaped, bounded, with a title and a description."""

import json
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.web.charts import svg
from calve.web.charts.calendar import calendar
from calve.web.charts.diagram import diagram
from calve.web.charts.gantt import gantt, tries
from calve.web.charts.histogram import histogram
from calve.web.charts.outages import outages
from calve.web.charts.sparkline import columns, shares, sparkline
from calve.web.charts.throughput import spread

PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
EVIL = "</svg><script>alert(1)</script>\"'&<"
NOW = "2026-11-16T12:00:00Z"
ODD = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**20), 10**20)


def parsed(markup: str) -> ElementTree.Element:
    """Well-formed, without anything that acts."""
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    for one in root.iter():
        assert one.tag != "script"
        assert not [name for name in one.attrib if name == "style" or name.startswith("on")]
        assert "nan" not in [*one.attrib.values()] and "inf" not in [*one.attrib.values()]
    return root


def shapes(markup: str) -> int:
    return sum(1 for one in parsed(markup).iter() if one.tag in ("rect", "path", "line", "text"))


def sheet(name: str = "sheet", **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAGES / f"{name}.json").read_text())
    return found | given


def bar(number: int, start: float = 0.0, end: float = 1.0, **given: Any) -> dict[str, Any]:
    made = {
        "number": number, "attempt": 1, "start": start, "end": end, "ending": "done", "code": "", "worker": "w",
        "rows": 10, "bytes": 100, "spent": {"read": 0.2, "write": 0.3, "upload": 0.1},
    }  # fmt: skip
    return made | given


def with_bars(*bars: dict[str, Any], **given: Any) -> dict[str, Any]:
    document = sheet(**given)
    last = max((one["end"] for one in bars), default=0.0)
    failed = sum(1 for one in bars if one["code"])
    found = {"bars": list(bars), "buckets": None, "count": len(bars), "failed": failed, "seconds": last}
    return document | {"attempts": document["attempts"] | found}


CHARTS: dict[str, Callable[[], str]] = {
    "sparkline": lambda: sparkline([1, 2, 3]),
    "columns": lambda: columns([1, 2, 3], NOW, 900),
    "histogram": lambda: histogram([{"name": "small", "files": 3}], [{"name": "small", "files": 9}]),
    "calendar": lambda: calendar([{"day": "2026-11-15", "made": 1, "proven": 0, "failed": 0}], NOW),
    "outages": lambda: outages([{"service": "catalog:lake", "reason": "refused", "opened_at": NOW, "closed_at": None}], NOW),
    "diagram": lambda: diagram("RUNNING", [{"name": "submitted", "at": NOW}], {"RUNNING": ["FAILED"]}, NOW),
    "gantt": lambda: gantt(sheet()),
    "a failed one": lambda: gantt(sheet("sheet_failed")),
    "one that waits": lambda: gantt(sheet("sheet_pending")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_says_what_it_shows(name: str) -> None:
    picture = parsed(CHARTS[name]()).find(".//svg")
    assert picture is not None and picture.get("role") == "img"
    assert (picture.findtext("title") or "").strip() and picture.find("desc") is not None


@pytest.mark.parametrize(
    "made",
    [
        lambda: histogram([{"name": EVIL, "files": 3}]),
        lambda: outages([{"service": EVIL, "reason": EVIL, "opened_at": NOW, "closed_at": NOW}], NOW),
        lambda: diagram(EVIL, [{"name": EVIL, "at": EVIL}], {EVIL: [EVIL]}, EVIL),
        lambda: gantt(with_bars(bar(1, code=EVIL, worker=EVIL), phases={"read": EVIL}, waits=[{"from": NOW, "to": None, "for": EVIL}])),
        lambda: tries(with_bars(bar(1, code=EVIL, worker=EVIL), phases={"read": EVIL})),
        lambda: calendar([{"day": EVIL, "made": 1}], NOW),
        lambda: sparkline([1], what=EVIL),
        lambda: svg.element("text", EVIL, cls=EVIL, x=EVIL),
    ],
)  # fmt: skip
def test_text_from_outside_is_text(made: Callable[[], str]) -> None:
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            seen.append(tag)

    text = made()
    parsed(text)
    Tags().feed(text)
    assert "script" not in seen


@settings(deadline=None)
@given(st.lists(ODD, max_size=60))
def test_amounts_may_be_anything(values: list[float]) -> None:
    for text in (
        sparkline(values),
        columns(values, NOW, 900),
        shares([("ok", "a", value) for value in values]),
    ):
        parsed(text)
    parsed(histogram([{"name": "x", "files": value} for value in values]))


@settings(deadline=None)
@given(ODD, ODD, ODD, st.sampled_from([None, {}, {"read": math.nan}, {"write": -5.0}, {"upload": math.inf}]))
def test_times_may_be_anything(start: float, end: float, seconds: float, spent: Any) -> None:
    document = with_bars(bar(1, start, end, spent=spent), bar(2))
    document["attempts"]["seconds"] = seconds
    parsed(gantt(document))
    parsed(tries(document))


def test_a_million_amounts_are_some_hundred_shapes() -> None:
    many = [1.0] * 1_000_000
    assert shapes(sparkline(many)) <= 410 and shapes(columns(many, NOW, 1)) <= 420
    assert "1,000,000" in columns(many, NOW, 1)


def test_more_tries_than_are_drawn_do_not_make_a_larger_chart() -> None:
    document = with_bars(*(bar(number, number * 0.1, number * 0.1 + 1) for number in range(5_000)))
    assert shapes(gantt(document)) <= 4 * 400 + 120 + 60
    crowd = with_bars(*(bar(number, 0.0, 100.0) for number in range(400)))
    height = parsed(gantt(crowd)).find(".//svg")
    assert height is not None and float(str(height.get("height"))) < 64 * 18 + 300


def test_phases_of_a_try_lie_side_by_side_and_end_with_it() -> None:
    text = gantt(
        with_bars(
            bar(1, 0, 10, spent={"read": 2, "write": 3, "upload": 1}),
            waits=[],
            outages=[],
            running=[],
            milestones=[],
        )
    )
    group = parsed(text).find(".//g")
    assert group is not None
    found = [(one.get("class"), one.get("x"), one.get("width")) for one in group.iter("rect")]
    assert [name for name, _, _ in found] == ["waiting", "read", "write", "upload"]
    places = [float(str(x).rstrip("%")) for _, x, _ in found]
    widths = [float(str(width).rstrip("%")) for _, _, width in found]
    for place, width, following in zip(places, widths, places[1:], strict=False):
        assert place + width == pytest.approx(following, abs=0.05)
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.05)  # four seconds of waiting, two of reading
    assert "waited 4.0 s" in (group.findtext("title") or "")


def test_tries_that_overlap_have_lanes_of_their_own_and_others_share_one() -> None:
    given: dict[str, Any] = {"waits": [], "outages": [], "running": [], "milestones": []}
    beside = gantt(with_bars(bar(1, 0, 5), bar(2, 1, 6), **given))
    after = gantt(with_bars(bar(1, 0, 5), bar(2, 5, 6), **given))
    assert "2 at once" in beside and "1 at once" in after


def test_what_was_not_measured_is_grey_and_what_failed_is_crossed() -> None:
    text = gantt(with_bars(bar(1, spent=None), bar(2, code="s3_slow_down", spent=None)))
    classes = [one.get("class") for one in parsed(text).iter() if one.tag in ("rect", "text")]
    assert "worked" in classes and "lost" in classes and "cross" in classes
    assert "failed: s3_slow_down" in text


def test_tasks_that_wait_are_hatched_with_what_they_wait_for() -> None:
    start = sheet()["attempts"]["from"]
    waiting = {"count": 5, "for": "a free slot", "tasks": [{"number": 7, "since": start}]}
    again = bar(3, 0, 2, ending="again", code="s3_slow_down")
    document = with_bars(
        again, bar(1, 0, 9), waiting=waiting, waits=[], outages=[], running=[], milestones=[]
    )
    text = gantt(document)
    assert "task 7 waits for a free slot" in text and "task 3 backs off after s3_slow_down" in text
    assert "Tasks that wait, and 3 more" in text
    hatched = [one for one in parsed(text).iter("rect") if one.get("class") == "waiting"]
    assert len(hatched) >= 2
    assert "Tasks that wait" not in gantt(with_bars(again, waiting={"count": 0, "for": "", "tasks": []}))


def test_rows_a_second_are_drawn_on_the_axis_of_the_tasks() -> None:
    """What lies above each other happened at the same time, though the process waited before its first task."""
    document = with_bars(bar(1, 0, 10, rows=100), outages=[], running=[], milestones=[], waits=[])
    start = datetime.fromisoformat(document["attempts"]["from"])
    document["process"] = document["process"] | {
        "created_at": (start - timedelta(seconds=10)).isoformat(),
        "finished_at": (start + timedelta(seconds=20)).isoformat(),
    }

    def ends(markup: str, *classes: str) -> tuple[float, float]:
        found = [one for one in parsed(markup).iter("rect") if one.get("class") in classes]
        places = [
            (float(str(one.get("x")).rstrip("%")), float(str(one.get("width")).rstrip("%"))) for one in found
        ]
        return min(x for x, _ in places), max(x + width for x, width in places)

    text = gantt(document)
    tasks = ends(text, "read", "write", "upload", "waiting")
    assert ends(text, "column") == pytest.approx(tasks, abs=100 / 120)  # a column
    assert "10 rows a second on average" in text
    assert "rows a second" not in gantt(with_bars(bar(1, rows=0)))


def test_a_long_wait_for_a_worker_does_not_squeeze_the_work() -> None:
    document = with_bars(bar(1, 0, 10), outages=[], running=[], milestones=[])
    start = document["attempts"]["from"]
    document["process"] = document["process"] | {"created_at": "2020-01-01T00:00:00Z", "finished_at": start}
    document["waits"] = [{"from": "2020-01-01T00:00:00Z", "to": start, "for": "a worker"}]
    group = parsed(gantt(document)).find(".//g")
    assert group is not None
    assert sum(float(str(one.get("width")).rstrip("%")) for one in group.iter("rect")) > 40


def test_of_very_many_tries_the_chart_shows_how_many_were_in_each_phase() -> None:
    zeros = [0.0] * 240
    buckets = dict.fromkeys(("waiting", "upload", "worked", "rows", "bytes"), zeros)
    buckets |= {"read": [5.0] * 240, "write": [3.0] * 240, "failed": [0.0] * 239 + [101.0]}
    document = with_bars()
    document["attempts"] |= {"bars": None, "count": 120_000, "failed": 20_000, "seconds": 600.0}
    document["attempts"]["buckets"] = buckets | {"step_seconds": 2.5, "every": 101, "sampled": 1200}
    text = gantt(document)
    paths = {one.get("class") for one in parsed(text).iter("path")}
    assert {"read", "write"} <= paths and "upload" not in paths
    assert "at most 8" in text and "every 101st" in text and "20,000 failed" in text


def test_the_diagram_lights_the_state_and_draws_the_way_there() -> None:
    went = [
        {"name": "submitted", "at": "2026-11-16T12:00:00Z"},
        {"name": "planned", "at": "2026-11-16T12:00:02Z"},
        {"name": "failed", "at": "2026-11-16T12:05:00Z"},
    ]
    text = diagram("FAILED", went, {"FAILED": []}, NOW)
    nodes = {str(one.get("class")).split()[1] for one in parsed(text).iter("rect")}
    assert nodes == {"current", "past", "never"} and text.count("node current") == 1
    assert "2.0 s" in text and "This process is failed" in text
    ahead = diagram("PENDING", went[:1], {"PENDING": ["RUNNING"], "RUNNING": ["FAILED"]}, NOW)
    assert ahead.count("node ahead") == 2 and "waiting, for" in ahead


def test_the_calendar_is_of_thirteen_weeks_and_says_each_day() -> None:
    days = [{"day": "2026-11-15", "made": 2, "proven": 1, "failed": 0}, {"day": "1999-01-01", "made": 9}]
    text = calendar(days, NOW)
    assert text.count('class="day') == 12 * 7 + 1  # the last week has one day yet
    assert "2026-11-15: made and proven" in text and "2 backups in 13 weeks" in text and "1999" not in text
    parsed(calendar(days, "never"))


def test_an_outage_that_goes_on_reaches_to_now() -> None:
    opened = "2026-11-16T06:00:00Z"
    found = [{"service": "source:main", "reason": "refused", "opened_at": opened, "closed_at": None}]
    text = outages(found, NOW)
    down = [one for one in parsed(text).iter("rect") if one.get("class") == "down"]
    assert [float(str(one.get("width")).rstrip("%")) for one in down] == [pytest.approx(100 / 28, abs=0.01)]
    assert "still down" in text


def test_rows_are_spread_by_time() -> None:
    """Else the highest speed of a chart is below its average."""
    assert spread([{"start": 0.75, "end": 2.25, "rows": 15}], 1.0, 4) == pytest.approx([2.5, 10, 2.5, 0])
    assert spread([{"start": 1.0, "end": 1.0, "rows": 3}], 1.0, 4) == [0, 3, 0, 0]
