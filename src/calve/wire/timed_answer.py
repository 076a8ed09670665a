"""An HTTP answer that is read by a given moment, headers and body alike, or not at all.

A socket's timeout bounds the silence between two bytes, not the answer: a server that sends one byte
now and then, were it only of a header that never ends, would hold its caller for ever.
"""

import http.client
import io
import socket
import time
from typing import Any


class TimedAnswer(http.client.HTTPResponse):
    """TimeoutError from whatever would still read at `until`, a moment of `time.monotonic`."""

    def __init__(self, sock: socket.socket, *given: Any, until: float, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, until))


class _TimedStream(io.RawIOBase):
    """What comes from a socket; each wait is cut to the time that is left."""

    def __init__(self, stream: io.RawIOBase, sock: socket.socket, until: float) -> None:
        super().__init__()
        self._stream = stream
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._sock.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()
