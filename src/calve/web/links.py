"""Every URL in a page is relative, and every value in it is percent-encoded.

The way up is counted from the page's own path, never from the address in the browser: so pages work under any path that
a proxy puts in front of them, whether it takes that off or not. Names stand in queries only: proxies decode and merge
what they find in paths.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_IN_PATH = re.compile(r"\{(\w+)\}")
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.~-]*")
_PRINTABLE = re.compile(
    r"[!-\[\]-~]*"
)  # ASCII without spaces and the backslash, which browsers take for a slash
LONGEST = 4096  # characters of a URL that every proxy lets through


def target(path: str, given: Mapping[str, Any]) -> str:
    """Below the root, without a slash in front. Values that are None, false or empty are left out; lists repeat."""
    left = dict(given)
    filled = _IN_PATH.sub(lambda found: _quoted(left.pop(found[1])), path.lstrip("/"))
    pairs = [(name, text) for name, value in left.items() for text in texts(value)]
    query = "&".join(f"{_quoted(name)}={_quoted(text)}" for name, text in pairs)
    return f"{filled}?{query}" if query else filled


def texts(value: Any) -> list[str]:
    """As a form sends it."""
    if value is None or value is False or value == "":
        return []
    if value is True:
        return ["1"]
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


def _quoted(value: Any) -> str:
    text = str(value)
    return text if _AS_IT_IS.fullmatch(text) else quote(text, safe="", errors="replace")


class Links:
    """`here`: the path of the page that has the links. `paths`: of every page, by name."""

    def __init__(self, here: str, paths: Mapping[str, str]) -> None:
        self._up = "../" * (here.count("/") - 1)
        self._paths = paths

    def to(self, page: str, /, **given: Any) -> str:
        return self.at(target(self._paths[page], given))

    def goto(self, href: tuple[str, Mapping[str, Any]]) -> str:
        """Of a document: a page's name and its arguments."""
        name, given = href
        return self.to(name, **given)

    def at(self, below_root: str) -> str:
        return f"{self._up}{below_root}" if self._up or below_root else "./"


def is_own(text: str, paths: Mapping[str, str]) -> bool:
    """Whether this is a page of ours with a query: the only places that somebody may be sent to."""
    path, _, query = text.partition("?")
    if len(text) > LONGEST or not _PRINTABLE.fullmatch(query):
        return False
    return any(
        re.fullmatch(_IN_PATH.sub(r"[A-Za-z0-9_-]+", known.lstrip("/")), path) for known in paths.values()
    )
