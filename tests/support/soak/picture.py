"""All lines of a soak as one picture: a panel for each measure."""

from collections.abc import Sequence
from html import escape

from support.soak.slopes import ALLOWED, WARM_UP_SHARE, Line

_WIDTH, _HEIGHT, _LEFT, _RIGHT = 900, 150, 60, 250
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096", "#d69e2e", "#1a202c")
MEASURES = (*ALLOWED, "history rows", "kept rows")


def picture(lines: Sequence[Line]) -> str:
    panels = [(measure, [one for one in lines if one.measure == measure]) for measure in MEASURES]
    panels = [(measure, found) for measure, found in panels if found]
    height = len(panels) * (_HEIGHT + 40) + 20
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="11"><rect width="{_WIDTH}" height="{height}" fill="white"/>'
    ]
    for number, (measure, found) in enumerate(panels):
        drawn += _panel(measure, found, number * (_HEIGHT + 40) + 25)
    return "".join([*drawn, "</svg>"])


def _panel(measure: str, lines: Sequence[Line], top: int) -> list[str]:
    longest = max(one.seconds[-1] for one in lines) or 1.0
    highest = max(max(one.values) for one in lines) * 1.1 or 1.0
    width = _WIDTH - _LEFT - _RIGHT
    warm = _LEFT + width * WARM_UP_SHARE
    bottom = top + _HEIGHT
    drawn = [
        f'<text x="{_LEFT}" y="{top - 6}" font-weight="bold">{escape(measure)}</text>',
        f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_HEIGHT}" fill="#f7fafc"/>',
        f'<rect x="{_LEFT}" y="{top}" width="{warm - _LEFT:.0f}" height="{_HEIGHT}" fill="#edf2f7"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{highest:.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + width}" y="{bottom + 12}" text-anchor="end">{longest / 60:.0f} min</text>',
    ]
    for number, one in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + at / longest * width:.1f},{bottom - value / highest * _HEIGHT:.1f}"
            for at, value in zip(one.seconds, one.values, strict=True)
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        words = f"{one.subject}: {one.values[-1]:.0f}, {one.slope():+.0f} an hour"
        drawn.append(
            f'<text x="{_LEFT + width + 8}" y="{top + 12 + 14 * number}" fill="{colour}">{escape(words)}</text>'
        )
    return drawn
