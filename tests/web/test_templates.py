"""Every page is written from its document alone: whole HTML, whatever the names in it are."""

import json
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from calve.app.commands import command
from calve.web.links import Links
from calve.web.template import Templates

PAGES = Path(__file__).parents[1] / "fixtures" / "pages"
TEMPLATES = {
    "attention": "attention.html", "tables": "tables.html", "table": "table.html", "page": "processes.html",
    "sheet": "process.html", "sheet_failed": "process.html", "sheet_pending": "process.html",
    "system": "system.html", "search": "search.html", "vault": "backups.html",
    "policies": "policies.html", "policy": "policy.html",
}  # fmt: skip
HOSTILE = (
    "<img src=x onerror=alert(1)>", '"><script>alert(1)</script>', "</svg><script>", "' onmouseover='x", "{{ 7*7 }}",
    "javascript:alert(1)", "a\u202eb", "a\0b", "e\u03bdents", "x" * 3_000, "a b/c?d=e&f#g%2F", "&lt;b&gt;",
)  # fmt: skip
VOID = {"meta", "link", "input", "img", "br", "hr", "wbr", "use", "path", "rect", "circle", "line", "stop"}
FREE = {  # where a document has text from outside
    "source", "destination", "message", "hint", "why", "title", "sub", "reason", "service", "who", "owner", "host",
    "value", "name", "code", "words", "remedy", "part", "q", "note", "error", "url", "worker", "depth", "by", "detail",
}  # fmt: skip
TEMPLATE_SET = Templates()


def context(document: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What `Frame.page` and `Pages` give, for an operator."""
    paths = {
        name: f"/{name}"
        for name in (
            "attention",
            "tables",
            "table",
            "page",
            "system",
            "search",
            "plan",
            "new",
            "vault",
            "policies",
            "policy",
            "backup",
            "restore",
        )
    }
    links = Links("/a/b", paths | {"sheet": "/processes/{id}"})
    return {
        "doc": document, "page": {"name": "x", "title": "X", "path": "/a/b"}, "given": {}, "address": "",
        "wants": "{}", "now": datetime.fromisoformat(document["now"]), "stale": None, "refresh": None, "part": False,
        "who": {"name": "alice", "role": "operator", "signed_in": True}, "open_reading": False, "navigation": [],
        "link": links.to, "goto": links.goto, "at": links.at, "here": lambda **_: "?", "file": lambda ext: f"x.{ext}",
        "asset": lambda name: name, "may": lambda *_, **__: True, "role_for": lambda *_, **__: "operator",
        "fields": lambda arguments: [(key, one) for key, value in arguments.items() for one in (value if isinstance(value, list) else [value])],
        "form_token": str, "form_key": lambda: "key", "form_url": str, "confirm_url": lambda name, /, **_: name,
        "sign_in_url": str, "command": command, "version": "1",
    } | given  # fmt: skip


class Whole(HTMLParser):
    """Every element is closed where it was opened; nothing acts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.heads = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "style", "img") or dict(attrs).get("src") in ("mark.svg", "calve.js")
        for name, value in attrs:
            assert name != "style" and not name.startswith("on"), (tag, name)
            assert name not in ("href", "src", "action") or not (value or "").startswith(
                ("javascript", "//", "http")
            )
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.heads += tag == "h1"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass  # <use …/> of SVG

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, (tag, self.getpos())


def whole(name: str, document: dict[str, Any], **given: Any) -> str:
    text = TEMPLATE_SET.render(TEMPLATES[name], **context(document, **given)).decode()
    reader = Whole()
    reader.feed(text)
    assert reader.open == [] and reader.heads == 1
    assert len(reader.ids) == len(set(reader.ids)), sorted(
        one for one in reader.ids if reader.ids.count(one) > 1
    )
    return text


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PAGES / f"{name}.json").read_text())
    return found


def renamed(value: Any, texts: Iterator[str], key: str = "") -> Any:
    """A document whose free text is what an enemy would like it to be."""
    if isinstance(value, dict):
        return {name: renamed(one, texts, name) for name, one in value.items() if name != "href"} | (
            {"href": value["href"]} if "href" in value else {}
        )
    if isinstance(value, list):
        return [renamed(one, texts, key) for one in value]
    return (
        next(texts)
        if isinstance(value, str) and value and key in {*FREE, "partitions", "needs", "reach"}
        else value
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_page_is_whole(name: str) -> None:
    text = whole(name, example(name))
    assert len(text) < 400_000


@pytest.mark.parametrize("name", TEMPLATES)
def test_names_are_text_whatever_they_are(name: str) -> None:
    for start in range(len(HOSTILE)):
        texts = (HOSTILE[(start + at) % len(HOSTILE)] for at in range(10**9))
        whole(name, renamed(example(name), texts))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_page_without_rights_and_while_the_store_is_down_is_whole(name: str) -> None:
    nobody = {"name": "local-reader", "role": "viewer", "signed_in": False}
    whole(name, example(name), may=lambda *_, **__: False, who=nobody)
    text = whole(name, example(name), stale=180.0)
    assert "3 minutes" in text and 'method="post"' not in text.split("<main", 1)[1]


def empty(document: dict[str, Any], *keys: str, **given: Any) -> dict[str, Any]:
    return document | {key: type(document[key])() for key in keys} | given


def test_an_empty_page_says_why_it_is_empty() -> None:
    page = whole("page", empty(example("page"), "processes", next=None))
    assert "Nothing has been started yet." in page
    filtered = whole("page", empty(example("page"), "processes", next=None), given={"kind": "export"})
    assert "Remove a filter" in filtered and "No process fits." in filtered
    assert "No table has been exported yet." in whole("tables", empty(example("tables"), "rows", q=""))
    assert "No table fits" in whole("tables", empty(example("tables"), "rows", q="x"))
    seen = {"at": None, "by": "", "tried_at": None, "error": ""}
    table = empty(example("table"), "partitions", "processes", counts=None, total=0, seen=seen, health=None)
    assert "Nobody has looked at this table yet." in whole("table", table)
    system = empty(
        example("system"), "workers", "servers", "breakers", "outages", "halts", "errors", doctor=None
    )
    assert "No worker is running." in whole("system", system) and "never run from here" in whole(
        "system", system
    )
    calm = empty(example("attention"), "cards", "live", more=0, sentence="Nothing needs attention.")
    assert "Nothing runs and nothing waits." in whole("attention", calm)
    first = calm | {"first_steps": [{"title": "Check", "command": "calve doctor", "done": True}]}
    assert "The first export" in whole("attention", first)
