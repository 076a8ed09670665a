"""The look keeps its promises: contrast in both themes, and templates without what the CSP refuses."""

import math
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

import calve.web
from calve.web import words

WEB = Path(calve.web.__file__).parent
CSS = (WEB / "assets" / "calve.css").read_text()
TEMPLATES = sorted((WEB / "templates").rglob("*.html"))
TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
}
Matrix = Sequence[Sequence[float]]
SAME = {("completed", "done"), ("late", "overdue"), ("silent", "no worker")}  # words of one thing
TONES = ("run", "ok", "wait", "warn", "bad", "off")


def linear(colour: str) -> list[float]:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, theme: int) -> float:
    light, dark = sorted((luminance(TOKENS[one][theme]), luminance(TOKENS[other][theme])), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_is_read_on_every_ground_it_stands_on(theme: int) -> None:
    text = {(name, ground) for name in ("text", "soft", "accent", *TONES) for ground in ("bg", "sunk")}
    text |= {(tone, f"{tone}-tint") for tone in TONES} | {("text", f"{tone}-tint") for tone in TONES}
    text |= {("on-accent", "accent"), ("bg", "text")}
    assert {pair: found for pair in text if (found := contrast(*pair, theme)) < 4.5} == {}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_shapes_are_seen_on_the_ground(theme: int) -> None:
    shapes = ("edge", "read", "write", "upload", "publish", *TONES)
    assert {name: found for name in shapes if (found := contrast(name, "bg", theme)) < 3} == {}


# What an eye without one kind of cones sees (Machado, Oliveira and Fernandes, 2009; severity 1), in linear RGB.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = (0.95047, 1.0, 1.08883)


def times(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    return [sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix]


def lab(colour: str, eye: Matrix) -> list[float]:
    """A colour as that eye sees it, in CIELAB."""
    seen = [min(max(one, 0.0), 1.0) for one in times(eye, linear(colour))]
    x, y, z = (
        one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116
        for one in (part / white for part, white in zip(times(XYZ, seen), WHITE, strict=True))
    )
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("eye", EYES)
def test_phases_that_touch_are_told_apart_by_every_eye(eye: str, theme: int) -> None:
    """Publishing does not touch the others: it has a row of its own."""
    seen = {name: lab(TOKENS[name][theme], EYES[eye]) for name in ("read", "write", "upload")}
    apart = {(one, other): math.dist(seen[one], seen[other]) for one, other in combinations(seen, 2)}
    assert {pair: found for pair, found in apart.items() if found < 20} == {}


def test_no_state_is_told_by_its_colour_alone() -> None:
    for looks in (words._STATES, words._CARDS):
        assert len({look.word for look in looks.values()}) == len(looks)
        alike = [(one, other) for one, other in combinations(looks.values(), 2) if (one.icon, one.tone) == (other.icon, other.tone)]  # fmt: skip
        assert [(one.word, other.word) for one, other in alike] == [
            pair for pair in ((one.word, other.word) for one, other in alike) if pair in SAME
        ]


def test_people_who_asked_for_less_get_it() -> None:
    """Motion only where it was not refused; borders where colours are the system's; no controls on paper."""
    moving = re.findall(r"[^{}]*\{[^{}]*(?:transition|animation)[^{}]*\}", CSS)
    allowed = CSS.split("@media (prefers-reduced-motion: no-preference)", 1)[1].split("\n\n", 1)[0]
    assert moving and all(rule.strip().rstrip("}").strip() in allowed for rule in moving)
    assert "border: 1px solid" in CSS.split("@media (forced-colors: active)", 1)[1].split("\n\n", 1)[0]
    paper = CSS.split("@media print", 1)[1]
    assert all(name in paper for name in (".top", ".filters", ".button", "display: none", "attr(title)"))


def test_every_colour_is_written_once() -> None:
    rules = CSS.split("/* -- the page", 1)[1]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\")", rules) == []
    used = set(re.findall(r"var\(--([\w-]+)\)", CSS))
    defined = set(re.findall(r"--([\w-]+):", CSS))
    assert used <= defined, used - defined


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_that_the_policy_refuses(path: Path) -> None:
    text = re.sub(r"\{([{%#]).*?[}%#]\}", "", path.read_text(), flags=re.DOTALL)
    assert "|safe" not in path.read_text().replace(" ", "")
    assert not re.search(r"\sstyle=|\son\w+=|javascript:|<script(?! src=)|<style", text)
    assert not re.search(r"(href|src|action)=\"(https?:)?//", text)
    bare = re.sub(r"\"[^\"]*\"", '""', text)
    assert not re.search(r"<\w[^<>]*\s[\w-]+=[^\"'\s>]", bare), "an attribute without quotes"


def test_markup_is_made_in_two_modules_only() -> None:
    makers = {path.name for path in WEB.rglob("*.py") if "Markup(" in path.read_text()}
    assert makers == {"svg.py", "marks.py"}


def test_every_icon_that_is_used_is_there() -> None:
    there = set(
        re.findall(r'<symbol id="i-([\w-]+)"', (WEB / "templates" / "parts" / "icons.html").read_text())
    )
    used = {
        name
        for path in TEMPLATES
        for name in re.findall(r'icon\("([\w-]+)"', path.read_text())
        + re.findall(r"#i-([\w-]+)\"", path.read_text())
    }
    used |= set(re.findall(r'icon="([\w-]+)"', (WEB / "words.py").read_text()))
    assert used <= there, used - there
