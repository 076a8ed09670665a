"""Files by size: a bar for each class, what was before as an outline beside what is now."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from calve.web.charts import svg
from calve.web.words import count, counted, cut

_MOST = 12
_ROW = 24.0
_NAME = 0.36  # of the width
_ROOM = 0.16  # for the number


def histogram(now: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] | None = None) -> Markup:
    """`[{name, files}]`, the smallest class first."""
    names = [str(one["name"]) for one in now][:_MOST]
    files = svg.known(one["files"] for one in now)[:_MOST]
    old = svg.known(one["files"] for one in before)[: len(names)] if before else []
    highest = max([*files, *old], default=0.0)
    drawn: list[Markup] = []
    for at, (name, number) in enumerate(zip(names, files, strict=True)):
        top = at * _ROW
        wide = (1 - _NAME - _ROOM) * (number / highest if highest else 0)
        drawn.append(svg.inside(0, top + 16, _NAME - 0.01, cut(name, 80), "label"))
        if at < len(old):
            drawn.append(
                svg.rect(_NAME, top + 4, (1 - _NAME - _ROOM) * old[at] / (highest or 1), 16, "before")
            )
        if number:
            drawn.append(svg.rect(_NAME, top + 6, max(wide, 0.004), 12, "column"))
        said = f"{count(old[at])} → {count(number)}" if at < len(old) else count(number)
        drawn.append(svg.words(1.0, top + 16, said, "value", "end"))
    total = sum(files)
    most = names[files.index(highest)] if total and highest in files else ""
    title = f"{counted(int(total), 'file')}, most of them {most}" if total else "No files"
    about = "Files by size" + (", before the last optimize as an outline." if old else ".")
    return svg.picture(title, about, *drawn, cls="histogram", height=max(len(names), 1) * _ROW)
