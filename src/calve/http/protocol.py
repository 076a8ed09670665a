"""Connections with a bound: so many in all and for each peer, and each says what it wants in time.

Uvicorn times nothing before the head of a request is complete, and its own limit counts idle connections
against those who ask. A peer that drips is cut off.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
MOST = 1000
MOST_OF_A_PEER = 64

_peers: Counter[str] = Counter()  # of this program, which has one event loop


class BoundedProtocol(H11Protocol):
    """Uvicorn's, with a deadline for each head and a bound on connections. Pinned: it is subclassed."""

    _counted = ""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        own = peer in ("127.0.0.1", "::1")
        if len(self.connections) > MOST or (not own and _peers[peer] >= MOST_OF_A_PEER):
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
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # a head is complete; its body has a deadline of its own
            self._expect_nothing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._expect_head()

    def _expect_head(self) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
