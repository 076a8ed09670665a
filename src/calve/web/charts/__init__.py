"""Charts made on the server: numbers in, SVG out.

Each has a title with its finding and a description; those that stand alone have their numbers as a table too. However
much comes in, at most some hundred shapes go out. Text is escaped in `svg` alone.
"""

from collections.abc import Callable, Mapping

from markupsafe import Markup

from calve.web.charts.calendar import calendar
from calve.web.charts.diagram import diagram
from calve.web.charts.gantt import gantt, tries
from calve.web.charts.histogram import histogram
from calve.web.charts.outages import outages
from calve.web.charts.sparkline import columns, shares, sparkline

CHARTS: Mapping[str, Callable[..., Markup | str]] = {
    "calendar_chart": calendar,
    "columns_chart": columns,
    "diagram_chart": diagram,
    "gantt_chart": gantt,
    "gantt_tries": tries,
    "histogram_chart": histogram,
    "outages_chart": outages,
    "shares_chart": shares,
    "sparkline": sparkline,
}
