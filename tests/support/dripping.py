"""A server whose answers never end: it begins one, and goes on with a byte now and then, for ever.

Each byte comes in time and the whole never does, which only a bound on the whole call ends.
"""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

_PAUSE_SECONDS = 0.05


class Drip(Enum):
    """Where the answer begins to drip: what is sent at once, and what is sent again and again."""

    STATUS = (b"HTTP/1.1 200 ", b"O")
    HEADERS = (b"HTTP/1.1 200 OK\r\nX-Drip: ", b"a")
    CONTINUES = (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    BODY = (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ")
    CHUNKS = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0")
    REFUSAL = (b"HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n", b" ")


@contextmanager
def dripping(drip: Drip) -> Iterator[int]:
    """The port of such a server."""
    over, (at_once, again) = threading.Event(), drip.value

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(at_once)
                while not over.wait(_PAUSE_SECONDS):
                    self.request.sendall(again)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that gives up is what is wanted."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()
            thread.join()
