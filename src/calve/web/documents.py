"""Documents of pages: one making at a time for equal arguments, kept for a second, so a hundred viewers cost as one.

A kept one is never older than the cursor that a viewer has seen. The last one of each address outlives its second: it is
shown, with its age, while the store does not answer. Only verbs that every role may ask are shared.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.app.verbs.roles import VERBS
from calve.http.service import VerbService
from calve.model.access import Caller, Role
from calve.model.errors import StoreError, TemporaryError
from calve.web.prints import Prints

KEEP_SECONDS = 1.0
MOST = 64
MOST_BYTES = 1 << 20  # of one that is kept
_READER = Caller(name="pages", role=Role.VIEWER)


@dataclass(frozen=True, kw_only=True)
class PageDocument:
    data: bytes  # JSON
    made: float
    position: int  # in the feed, of its cursor
    prints: Prints = field(default_factory=Prints, compare=False)


class Documents:
    """Of one event loop."""

    def __init__(self, service: VerbService, *, now: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._now = now
        self._kept: OrderedDict[str, PageDocument] = OrderedDict()
        self._making: dict[str, asyncio.Task[PageDocument]] = {}
        self._changed = float("-inf")

    def changed(self) -> None:
        """Somebody did something here: what is shown next is not older."""
        self._changed = self._now()

    async def get(self, verb: str, arguments: Mapping[str, Any], *, after: str = "") -> PageDocument:
        """`after`: a cursor that the document must not be older than."""
        assert VERBS[verb].role is Role.VIEWER, verb
        key = _key(verb, arguments)
        kept = self._kept.get(key)
        since = max(self._changed, self._now() - KEEP_SECONDS)
        if kept and kept.made > since and kept.position >= position(after):
            return kept
        if key in self._making:
            made = await asyncio.shield(self._making[key])
            if made.position >= position(after) and made.made > self._changed:
                return made
        if key not in self._making:  # the first of those who found it too old
            making = asyncio.create_task(self._make(key, verb, arguments))
            self._making[key] = making
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(self._making[key])

    def last(self, verb: str, arguments: Mapping[str, Any]) -> tuple[PageDocument, float] | None:
        """The newest that there is, and its age in seconds."""
        found = self._kept.get(_key(verb, arguments))
        return (found, self._now() - found.made) if found else None

    async def _make(self, key: str, verb: str, arguments: Mapping[str, Any]) -> PageDocument:
        started = self._now()
        data = await self._service.document(_READER, verb, arguments)
        made = PageDocument(data=data, made=started, position=position(_cursor_in(data)))
        self._kept.pop(key, None)
        if len(data) <= MOST_BYTES:
            self._kept[key] = made
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        return made

    def _made(self, key: str, done: "asyncio.Task[PageDocument]") -> None:
        if self._making.get(key) is done:
            del self._making[key]
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits for it any more


def is_store_down(error: Exception) -> bool:
    return isinstance(error, StoreError) or (isinstance(error, TemporaryError) and error.service == "store")


def position(cursor: str) -> int:
    """Of a cursor; -1 for what is none."""
    number = cursor.split(".")[1] if cursor.count(".") == 2 else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else -1


def _cursor_in(data: bytes) -> str:
    """Without reading all of it: it is among the first keys."""
    return data[:300].partition(b'"cursor": "')[2].partition(b'"')[0].decode()


def _key(verb: str, arguments: Mapping[str, Any]) -> str:
    return repr((verb, sorted(arguments.items())))
