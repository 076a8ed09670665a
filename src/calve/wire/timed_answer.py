"""An HTTP answer that is read, headers and body, by a deadline, or not at all.

A socket's timeout bounds the silence between two bytes, not the answer: a server that sends a byte now
and then, even of a header that never ends, would hold its caller for ever.
"""

import http.client
import io
import socket
import time
from typing import Any


class TimedAnswer(http.client.HTTPResponse):
    """Reads raise TimeoutError after `until`, a moment of `time.monotonic`."""

    def __init__(self, sock: socket.socket, *given: Any, until: float, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, until))


class _TimedStream(io.RawIOBase):
    """The bytes of a socket; each wait ends at the deadline."""

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
