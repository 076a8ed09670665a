"""Elements of SVG and HTML as text: the one place where a chart's text and attributes are escaped.

Lengths across are percentages and lengths down are pixels: a chart is as wide as its place, and its text keeps its size
on a phone. There is no `style=`: colours are classes of the style sheet. A number that is none is 0.
"""

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

Piece = Markup | str | None
_MOST = 1e18


def element(name: str, *inside: Piece, **attributes: object) -> Markup:
    """`cls` is the class; `_` in a name becomes `-`; an attribute that is None is left out. Text is escaped."""
    written = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    content = "".join(escape(piece) for piece in inside if piece is not None)
    return Markup(f"<{name}{written}>{content}</{name}>")


def joined(pieces: Iterable[Piece]) -> Markup:
    return Markup("").join(piece for piece in pieces if piece is not None)


def picture(title: str, about: str, *inside: Piece, cls: str, height: float, **attributes: object) -> Markup:
    """A whole chart. `title` is its finding in a sentence, `about` how it is to be read."""
    return element(
        "svg",
        element("title", title),
        element("desc", about),
        *inside,
        cls=f"chart {cls}",
        role="img",
        width="100%",
        height=height,
        **attributes,
    )


def rect(x: float, y: float, width: float, height: float, cls: str, *inside: Piece) -> Markup:
    """`x` and `width` of 1."""
    return element(
        "rect", *inside, cls=cls, x=across(x), y=finite(y), width=across(width), height=finite(height)
    )


def words(x: float, y: float, text: str, cls: str, anchor: str | None = None) -> Markup:
    return element("text", text, cls=cls, x=across(x), y=finite(y), text_anchor=anchor)


def inside(x: float, y: float, width: float, text: str, cls: str, *, indent: float = 0) -> Markup:
    """Words that end where their place ends; `y` is their base line."""
    line = element("text", text, cls=cls, x=indent, y=14)
    return element("svg", line, x=across(x), y=finite(y - 14), width=across(width), height=20)


def upright(x: float, top: float, bottom: float, cls: str) -> Markup:
    """A line from top to bottom."""
    return element("line", cls=cls, x1=across(x), x2=across(x), y1=finite(top), y2=finite(bottom))


def level(y: float, cls: str) -> Markup:
    """A line from side to side."""
    return element("line", cls=cls, x1="0", x2="100%", y1=finite(y), y2=finite(y))


def numbers(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """What a chart shows, as a table that opens."""
    top = element("tr", *(element("th", name, scope="col") for name in head))
    body = joined(element("tr", *(element("td", cell) for cell in row)) for row in rows)
    table = element(
        "table",
        element("caption", caption, cls="unseen"),
        element("thead", top),
        element("tbody", body),
        cls="list small",
    )
    region = element("div", table, cls="wide", role="group", tabindex=0, aria_label=caption)
    return element("details", element("summary", "Numbers"), region, cls="numbers")


def across(part: float) -> str:
    """A part of 1 as a percentage."""
    return f"{round(finite(part) * 100, 2):g}%"


def finite(number: float) -> float:
    """Rounded to a tenth or less; 0 for NaN and infinity, and never beyond the largest size."""
    if not math.isfinite(number):
        return 0.0
    return round(min(max(number, -_MOST), _MOST), 5)


def known(values: Iterable[float | None]) -> list[float]:
    """Numbers to draw: none below 0, no NaN."""
    return [max(finite(value), 0.0) if value is not None else 0.0 for value in values]


def _value(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)
