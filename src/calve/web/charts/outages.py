"""When services were down: a row for each, time to the right."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.words import between, counted, cut, exact, moment, span

_ROW, _AXIS = 40.0, 20.0
_ROWS, _EACH = 12, 100


def outages(found: Sequence[Mapping[str, Any]], now: str, days: int = 7) -> Markup:
    """`[{service, reason, opened_at, closed_at}]`."""
    last = moment(now)
    if last is None or not found:
        return svg.picture(f"No service was down in {days} days", "", cls="outages", height=1)
    first = last - timedelta(days=days)
    length = days * 86_400.0
    services = list(dict.fromkeys(str(one["service"]) for one in found))[:_ROWS]
    drawn: list[Markup] = []
    for row, service in enumerate(services):
        top = row * _ROW
        drawn += [svg.words(0, top + 14, cut(service, 40), "label"), svg.rect(0, top + 20, 1, 12, "track")]
        for one in [each for each in found if each["service"] == service][:_EACH]:
            end = one["closed_at"] or now
            left = (between(first.isoformat(), one["opened_at"]) or 0.0) / length
            wide = (between(one["opened_at"], end) or 0.0) / length
            said = f"{exact(one['opened_at'])}, {span(wide * length)}: {cut(one['reason'], 200)}"
            left = min(left, 0.997)
            drawn.append(
                svg.rect(
                    left, top + 20, min(max(wide, 0.003), 1 - left), 12, "down", svg.element("title", said)
                )
            )
    base = len(services) * _ROW
    for day in range(days + 1):
        at = (last - timedelta(days=days - day)).date()
        drawn.append(svg.words(day / days, base + 12, f"{at.day} {at:%b}", "tick minor" if day % 2 else "tick", "start" if day == 0 else "end" if day == days else "middle"))  # fmt: skip
    title = f"{counted(len(found), 'outage')} of {counted(len(services), 'service')} in {days} days"
    chart = svg.picture(title, "A row for each service; filled is down. Days are of UTC.", *drawn, cls="outages", height=base + _AXIS)  # fmt: skip
    rows = [
        (cut(one["service"], 60), exact(one["opened_at"]), exact(one["closed_at"]) or "still down", cut(one["reason"], 200))
        for one in found[:_EACH]
    ]  # fmt: skip
    return svg.joined((chart, svg.numbers(title, ("Service", "From", "To", "Reason"), rows)))
