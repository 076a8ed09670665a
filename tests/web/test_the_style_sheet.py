"""The look keeps its promises: contrast in both themes, and templates without what the CSP refuses."""

import re
from pathlib import Path

import pytest

import calve.web

WEB = Path(calve.web.__file__).parent
CSS = (WEB / "assets" / "calve.css").read_text()
TEMPLATES = sorted((WEB / "templates").rglob("*.html"))
TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
}
TONES = ("run", "ok", "wait", "warn", "bad", "off")


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


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
    assert makers <= {"svg.py", "template.py"}


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
