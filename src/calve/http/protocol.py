"""Connections with a bound: so many in all and for each peer, each says what it wants in time, and reads the answer.

Uvicorn times nothing before the head of a request is complete, nor while a peer does not read, and its own limit
counts idle connections against those who ask. A peer that drips is cut off.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

READ_BYTES = 16 << 10  # that a peer reads in its time of an answer that waits for it
MOST = 1000
MOST_OF_A_PEER = 64

_peers: Counter[str] = Counter()  # of this program, which has one event loop


class BoundedProtocol(H11Protocol):
    """Uvicorn's, with a deadline for each head and a bound on connections. Pinned: it is subclassed."""

    _counted = ""
    _deadline: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None
    most_of_a_peer = MOST_OF_A_PEER
    seconds = 20.0  # for a head, and for reading on

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        own = peer in ("127.0.0.1", "::1")
        if len(self.connections) > MOST or (not own and _peers[peer] >= self.most_of_a_peer):
            transport.abort()
            return
        self._counted = peer
        _peers[peer] += 1
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            _peers[self._counted] -= 1
            if not _peers[self._counted]:
                del _peers[self._counted]
            self._counted = ""
        self._expect_nothing()
        self._expect_no_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is answered."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        self._expect_no_reader()
        super().resume_writing()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # a head is complete; its body has a deadline of its own
            self._expect_nothing()

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()  # begins the next request, if that is here already

    def _expect_head(self) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(self.seconds, self._look_for_head)

    def _look_for_head(self) -> None:
        if self._reader is None:
            self.transport.abort()
        else:  # it has not read the last answer yet, and has a deadline for that
            self._expect_head()

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expect_reader(self) -> None:
        """A peer that asks for much and reads nothing would keep it in memory for ever."""
        waits = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() > waits - READ_BYTES:
                self.transport.abort()
            else:
                self._expect_reader()

        self._expect_no_reader()
        self._reader = self.loop.call_later(self.seconds, look)

    def _expect_no_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None


def bounded(*, seconds: float, behind_proxy: bool) -> type[BoundedProtocol]:
    """Behind a proxy all connections have one peer."""
    most = MOST if behind_proxy else MOST_OF_A_PEER
    return type("Bounded", (BoundedProtocol,), {"seconds": seconds, "most_of_a_peer": most})
