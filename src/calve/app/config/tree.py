"""The configuration before it is checked: leaves by their path, each with its origin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[str, ...]

ENVIRONMENT = "environment"  # how an origin there begins

# PyIceberg reads these two as tables of their own; every other nested table under a catalog is
# a dotted key written without quotes (`s3.endpoint = …`).
_NESTED_CATALOG_KEYS = frozenset({"auth", "ssl"})


@dataclass(frozen=True, kw_only=True)
class Leaf:
    value: Any
    origin: str


Leaves = dict[Key, Leaf]


def leaves_of(document: Mapping[str, Any], origin: str) -> Leaves:
    """The leaves of a TOML document, in the file's order."""
    return {key: Leaf(value=value, origin=origin) for key, value in _walk((), document)}


def _walk(above: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if not isinstance(value, Mapping) or _is_handed_on(above):
        yield _joined(above), value
        return
    if not value and above:
        yield above, {}  # an empty section still names something: [source.main] without a url
    for name, below in value.items():
        yield from _walk((*above, name), below)


def _is_handed_on(key: Key) -> bool:
    return len(key) == 3 and key[0] == "catalog" and key[2] in _NESTED_CATALOG_KEYS


def _joined(key: Key) -> Key:
    """Dotted keys of catalogs and Spark are one name each."""
    if len(key) > 3 and (key[0] == "catalog" or key[:2] == ("spark", "conf")):
        return (*key[:2], ".".join(key[2:]))
    return key


def document_of(leaves: Leaves) -> dict[str, Any]:
    """Back to nested tables."""
    root: dict[str, Any] = {}
    for key, leaf in leaves.items():
        table = root
        for name in key[:-1]:
            below = table.setdefault(name, {})
            if not isinstance(below, dict):
                below = table[name] = {}
            table = below
        if leaf.value == {} and isinstance(table.get(key[-1]), dict):
            continue
        table[key[-1]] = leaf.value
    return root


def dotted(key: Key) -> str:
    """As a person writes it: quotes where a name has more than letters, digits, `_` and `-`."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    return ".".join(name if name and all(sign in plain for sign in name) else f'"{name}"' for name in key)
