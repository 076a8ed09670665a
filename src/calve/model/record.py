"""Records: dataclasses that are kept as JSON, in the store, in object storage or in a task's payload.

What cannot be read is a `DamagedError` that names the object, never a `KeyError` somewhere.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from calve.model.codec import Malformed, decode, encode
from calve.model.errors import DamagedError

T = TypeVar("T")

COMPACT: Mapping[str, Any] = {"separators": (",", ":"), "sort_keys": True}
SPACED: Mapping[str, Any] = {"sort_keys": True}
UNSORTED: Mapping[str, Any] = {"separators": (",", ":")}
READABLE: Mapping[str, Any] = {"sort_keys": True, "indent": 1, "ensure_ascii": False}


class Record:
    """Base of a frozen dataclass that is kept as JSON. `layout` is part of the format where texts are
    compared: a request that is asked for again is the same text."""

    _layout: ClassVar[Mapping[str, Any]] = COMPACT

    def __init_subclass__(cls, layout: Mapping[str, Any] | None = None) -> None:
        super().__init_subclass__()
        if layout is not None:
            cls._layout = layout

    def to_json(self) -> str:
        return json.dumps(encode(self), **self._layout)

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "") -> Self:
        """`where` names the object for people."""
        return loads(cls, text, where or f"a stored {cls.__name__}")


def fields_of(text: str | None) -> dict[str, Any]:
    """The JSON object in a text, for showing; {} if there is none, or it cannot be read (T10)."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def rows_of(texts: Iterable[str], *needs: str) -> list[dict[str, Any]]:
    """The objects of JSON lists, for showing: those that have what is needed; none of a text that cannot be read
    (T10)."""
    found: list[dict[str, Any]] = []
    for text in texts:
        try:
            rows = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            continue
        found += (
            [row for row in rows if isinstance(row, dict) and row.keys() >= {*needs}]
            if isinstance(rows, list)
            else []
        )
    return found


def loads(kind: type[T], text: str | bytes, where: str) -> T:
    """A value of any type that the codec knows. DamagedError if the text is not one."""
    try:
        return decode(kind, json.loads(text))
    except (Malformed, ValueError, TypeError, RecursionError) as error:
        raise DamagedError(
            f"{where} cannot be read: {error}",
            code="damaged",
            hint="something other than Calve changed it; run the command that began this work again",
        ) from None
