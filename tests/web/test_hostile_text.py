"""Text from outside is text on every page, whatever it is: a page with it has the same elements and attributes as one
with plain letters in its place."""

from itertools import repeat
from typing import Any

import pytest
from hypothesis import example as tried
from hypothesis import given, settings
from hypothesis import strategies as st

from support.html import Html
from web.test_templates import TEMPLATE_SET, TEMPLATES, context, example, renamed

NOW = "2026-11-16T12:00:00Z"
PIECES = [
    "<script>", "</script>", "<img src=x onerror=alert(1)>", '"', "'", ">", "<", "&", "&lt;", "</title>", "</main>", "</svg>",
    "<!--", "-->", "]]>", "{{ 7*7 }}", "{% raw %}", "javascript:", "data:text/html,", "//evil.example", "\\", "`", "=", " ",
    "\n", "\t", "\0", "\x1b[31m", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\ud800", "e\u03bdents", "🧊", "%3C", "../", "a",
]  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES) | st.characters(), min_size=1, max_size=12).map("".join)

TABLE = {
    "table": "db.t", "target": "db2.t", "engine": "MergeTree", "exists": False, "goes_on": False, "rows": 1, "bytes": 2,
    "parts": 1, "create": "CREATE TABLE db2.t", "refused": None,
}  # fmt: skip
RESTORE_PLAN = {
    "backup": "b", "process": "p", "source": "main", "existing": "replace", "schema": True, "data": True, "partitions": [],
    "tables": [TABLE, TABLE | {"target": "db2.u", "refused": {"message": "it exists", "code": "x", "hint": "y"}}],
    "rows": 2, "bytes": 4, "left_out": [{"what": "users", "why": "without --rbac"}], "plan_hash": "r1-1", "now": NOW,
}  # fmt: skip
COLUMN = {
    "name": "c", "source": "d", "source_type": "String", "type": "string", "required": True, "added": True, "was": "",
    "fails_on": "x", "lossy": True,
}  # fmt: skip
EXPORT_PLAN = {
    "source": "main:db.t", "destination": "lake.ns.t", "creates_table": True, "rows": 1, "bytes": 2, "parts": 1,
    "partitions": [{"id": "202601", "value": "202601", "rows": 1, "bytes": 2, "parts": 1}], "tasks": [{"partition": "x"}],
    "columns": [COLUMN], "notes": ["a note"], "plan_hash": "p1-1", "now": NOW,
}  # fmt: skip
PLANNED: dict[str, Any] = {
    "arguments": {"table": "main:db.t", "plan_hash": "x"}, "free": {"table": "main:db.t"}, "was": "p1-0",
    "differences": [{"what": "rows", "before": "1", "now": "2"}],
}  # fmt: skip
FAILED = {
    "message": "it failed",
    "hint": "do this",
    "code": "x",
    "status": 409,
    "title": "Not done",
    "request_id": "1",
}
PROCESS = {
    "id": "7k2m",
    "kind": "export",
    "state": "FAILED",
    "source": "main:db.t",
    "destination": "lake.ns.t",
}
ASKED: dict[str, Any] = {
    "action": {"name": "backup_restore", "label": "Restore", "title": "Restore"}, "consequence": "It is done.",
    "processes": [], "hidden": [("table", "main:db.t")], "asks": [], "typed": "b", "about": None, "allowed": True,
    "needs": "admin", "line": "calve backup restore b", "key": "k", "back": "tables", "unknown": True, "error": FAILED,
}  # fmt: skip
ANSWER = {
    "processes": [PROCESS], "joined": ["7k2m"], "unchanged": ["202601"], "known": [{"process": "7k2m"}],
    "refused": [{"message": "it exists", "hint": "do this"}], "unreachable": "main", "batch": "",
}  # fmt: skip
MOVED: dict[str, Any] = {
    "title": "x",
    "back": "policies",
    "arguments": {"table": "db.t", "partitions": ["202601"]},
}
OTHERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "plan": ("plan.html", EXPORT_PLAN, PLANNED),
    "restore_plan": ("restore_plan.html", RESTORE_PLAN, PLANNED),
    "backup": ("backup.html", example("vault") | {"name": "b", "commands": {"show": "calve backup show b"}}, {}),
    "restore": ("restore.html", example("vault") | {"name": "b"},
                {"contents": {"db.t": ["202601"]}, "partitions": ["202601"], "allowed": True, "given": {"into": "x"}}),
    "confirm": ("confirm.html", {"now": NOW}, ASKED),
    "confirm_processes": ("confirm.html", {"now": NOW}, ASKED | {"processes": [PROCESS]}),
    "asked": ("asked.html", {"now": NOW}, {"title": "x", "outcome": "answered", "submitted": True, "answer": ANSWER,
                                           "back": "", "seconds": 0, "subject": []}),
    "due": ("moved.html", {"now": NOW}, MOVED | {"answer": {
        "policy": "events", "dry_run": True, "started": [], "states": {"DUE": 1},
        "due": [{"source": "main:db.t", "value": "202601", "next": "export", "rows": 1, "bytes": 2}]}}),
    "drop": ("moved.html", {"now": NOW}, MOVED | {"answer": {
        "hash": "3f2c", "processes": [],
        "plan": [{"partition": "202601", "rows": 1, "place": "calve_released.x", "destination": "lake.ns.t", "backup": "q1"}]}}),
    "held": ("moved.html", {"now": NOW}, MOVED | {"answer": {
        "id": "hold-1", "name": "main:db.t", "partition": "202601", "until_at": None, "unmatched": "no such table",
        "announced": [{"process": "7k2m", "step": "move", "partition": "202601", "at": NOW}]}}),
    "looking": ("asked.html", {"now": NOW}, {"title": "x", "outcome": "running", "subject": ["main:db.t"], "seconds": 1}),
    "error": ("error.html", {"now": NOW}, {"error": FAILED}),
    "sign_in": ("sign_in.html", {"now": NOW},
                {"next": "tables", "error": FAILED, "ended": True, "roles": ["viewer"]}),
}  # fmt: skip
_ALSO = {  # free text of what is no document
    "table", "target", "engine", "create", "backup", "what", "before", "now_text", "source_type", "type", "fails_on",
    "notes", "location", "how", "seen_by", "typed_text", "line", "into", "subject", "unchanged", "unreachable", "key",
}  # fmt: skip


def skeleton(text: str) -> list[tuple[str, tuple[str, ...]]]:
    html = Html(text)
    for tag, attributes in html.tags:
        acting = [name for name in attributes if name == "style" or name.startswith("on")]
        assert not acting, (tag, attributes)
    for url in [*html.urls, *(form.action for form in html.forms)]:
        assert not url.lower().lstrip().startswith(("javascript:", "data:", "//", "http")), url
    # Where a name may be broken depends on its letters; and what cannot be seen whole has no button that copies it.
    found = [(tag, attributes) for tag, attributes in html.tags if tag != "wbr"]
    copies = {at for at, (_, attributes) in enumerate(found) if "copy" in (attributes.get("class") or "")}
    return [
        (tag, tuple(names))
        for at, (tag, names) in enumerate(found)
        if tag != "code"
        and not copies & {at, at - 1, at - 2, at - 3}  # what stands between backquotes is code
    ]


def written(template: str, document: dict[str, Any], more: dict[str, Any], text: str) -> str:
    made = context({**renamed(document, repeat(text)), **_free(document, text)}, **_freed(more, text))
    return TEMPLATE_SET.render(template, **made).decode()


def _free(document: dict[str, Any], text: str) -> dict[str, Any]:
    return {name: value for name, value in _freed(document, text).items() if name in _ALSO}


def _freed(value: Any, text: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _freed(one, text, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_freed(one, text, key) for one in value)
    return text if isinstance(value, str) and value and key in {*_ALSO, "message", "hint", "code"} else value


@pytest.mark.parametrize("name", [*TEMPLATES, *OTHERS])
@settings(max_examples=10)
@tried(text='"><script>alert(1)</script>')
@tried(text="' onmouseover='alert(1)")
@given(text=hostile)
def test_text_from_outside_adds_nothing_to_a_page(name: str, text: str) -> None:
    template, document, more = OTHERS.get(name) or (TEMPLATES[name], example(name), {})
    plain = "x" * len(text)
    assert skeleton(written(template, document, more, text)) == skeleton(
        written(template, document, more, plain)
    )
