"""Relative paths, made absolute: they are relative to the configuration file.

One form of path everywhere (L8): a local warehouse becomes a full `file://` URI here, so that
nothing later converts back and forth.
"""

import re
from pathlib import Path

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


def absolute(text: str, folder: Path) -> Path:
    """Without resolving links: a person should recognise the path in a message."""
    path = folder / Path(text).expanduser()
    return Path(*_without_dots(path.parts))


def _without_dots(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == ".." and len(kept) > 1:
            kept.pop()
        elif part != "..":
            kept.append(part)
    return kept


def source_url(url: str, folder: Path) -> str:
    """`chdb://folder` is relative to the file, `chdb:///folder` is not."""
    if not url.startswith("chdb://"):
        return url
    return f"chdb://{absolute(url.removeprefix('chdb://'), folder)}"


def database_url(url: str, folder: Path) -> str:
    """`sqlite:///file` is relative to the file, `sqlite:////file` is not."""
    scheme, parted, rest = url.partition(":///")
    if not parted or not scheme.startswith("sqlite") or not rest or rest.startswith(":memory:"):
        return url
    path, question, query = rest.partition("?")
    return f"{scheme}:///{absolute(path, folder)}{question}{query}"


def location(text: str, folder: Path) -> str:
    """A folder becomes `file:///…`; a URI stays."""
    if text.startswith("file:"):
        text = text.removeprefix("file:")
        if text.startswith("//"):
            text = text.removeprefix("//")
        return f"file://{absolute(text, folder)}"
    if _SCHEME.match(text):
        return text
    return f"file://{absolute(text, folder)}"
