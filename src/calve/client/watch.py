"""Events as an endless iterator: over a server's stream, or by looking again and again at a store.

Every event is seen once and in order, whatever happens to the connection: each carries a cursor, and a new
connection goes on from the last one. Where that cannot be, a `Reset` says so.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Self

from calve.client import values
from calve.client.transport import Transport
from calve.model.errors import TemporaryError
from calve.model.process import Event, ProcessId

_POLL_SECONDS = 0.5
_TRIES_AT_FIRST = 3
_TRIES = 25  # in a row, over a minute and a half: a server that is started again ends no watch
_LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class Reset:
    """Events may have been missed: read the processes again. The watch goes on from now."""

    reason: str  # "forgotten", "foreign", "rewritten", "unreadable" or "behind"


Seen = tuple[str, Event | Reset | None]  # a cursor, and what came before it; None: nothing that was asked for


class Watch:
    """`cursor` is where it stands: give it to the next one. After an error it may be asked again, and goes on."""

    def __init__(
        self,
        look: Callable[[str], Generator[Seen, None, None]],
        cursor: str,
        of: Collection[ProcessId] | None,
    ) -> None:
        self._look = look
        self._of = of
        self._seen: Generator[Seen, None, None] | None = None
        self.cursor = cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event | Reset:
        if self._seen is None:
            self._seen = self._look(self.cursor)
        try:
            while True:
                self.cursor, found = next(self._seen)
                if isinstance(found, Reset):
                    return found
                if found and (self._of is None or found.process_id in self._of):
                    return found
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; the next look opens another."""
        if self._seen is not None:
            self._seen.close()
        self._seen = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def polled(page: Callable[[str], Any], cursor: str) -> Generator[Seen, None, None]:
    """From a store, page by page."""
    while True:
        found = page(cursor)
        if found["reset"]:
            yield found["cursor"], Reset(found["reset"])
        for one in found["events"]:
            yield one["cursor"], values.event(one)
        cursor = found["cursor"]
        yield cursor, None
        if not found["events"]:
            time.sleep(_POLL_SECONDS)


def streamed(
    transport: Transport,
    of: Collection[ProcessId],
    cursor: str,
    sleep: Callable[[float], object] = time.sleep,
) -> Generator[Seen, None, None]:
    """From a server, over as many connections as it takes. TemporaryError if it is away for too long; another
    error if it refuses."""
    failed, most = 0, _TRIES_AT_FIRST
    while True:
        try:
            for cursor, found in _connection(transport, cursor, of):  # noqa: B020 - where the next one begins
                failed, most = 0, _TRIES
                yield cursor, found
        except TemporaryError:
            failed += 1
            if failed >= most:
                raise
        sleep(min(0.2 * (1 + failed), _LONGEST_PAUSE_SECONDS))


def _connection(transport: Transport, cursor: str, of: Collection[ProcessId]) -> Iterator[Seen]:
    for message in transport.stream(cursor, of):
        cursor = message.cursor or cursor
        if message.name == "process":
            yield cursor, values.event(message.data["event"])
        elif message.name == "reset":
            yield cursor, Reset(message.data["reason"])
        else:
            yield cursor, None
