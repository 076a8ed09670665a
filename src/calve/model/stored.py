"""Stored JSON, read by another version than wrote it (L12)."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def known_fields(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that `data` has. What a newer version added is left alone; what did not
    exist then gets its default."""
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
