"""A page as a browser without a script reads it: its tags must close, its ids be single; links and forms are found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_URLS = frozenset({"href", "src"})


@dataclass(kw_only=True)
class Form:
    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)

    def filled(self, **given: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.fields:
            found.setdefault(name, []).append(value)
        return found | {name: [value] for name, value in given.items()}


class Html(HTMLParser):
    """AssertionError for a page that is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.forms: list[Form] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.forms = [one for one in self.forms if one.method != "dialog"]  # which sends nothing
        assert not self._open, f"never closed: {self._open}"
        ids = [given["id"] for _, given in self.tags if "id" in given]
        assert len(ids) == len(set(ids)), "an id stands twice"

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        self.urls += [value for name, value in given.items() if name in _URLS]
        if tag == "form":
            method = given.get("method", "get")
            self.forms.append(Form(action="" if method == "dialog" else given["action"], method=method))
        chosen = given.get("type") not in ("checkbox", "radio") or "checked" in given
        if tag in ("input", "select", "textarea") and "form" in self._open and "name" in given and chosen:
            self.forms[-1].fields.append((given["name"], given.get("value", "")))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, (
            f"</{tag}> closes {self._open[-3:]}, line {self.getpos()[0]}"
        )
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["script"], ["style"]):
            self.text += data

    def form(self, action: str) -> Form:
        """The one that posts to an address that ends so."""
        (found,) = [one for one in self.forms if one.action.endswith(action)]
        return found

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.tags if name == tag)
