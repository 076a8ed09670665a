"""A real receiver of webhooks and pings, in a thread, that behaves as badly as it is told to."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Bad(StrEnum):
    DRIPS = "drips"  # a byte now and then, for ever
    DIES = "dies"  # closes the connection without an answer
    GARBLES = "garbles"  # answers, but not in HTTP
    HANGS = "hangs"  # says nothing until it is closed


@dataclass(frozen=True, kw_only=True)
class Got:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["x-calve-id"]


@dataclass
class Receiver:
    """`script`: how the next requests are answered, a status or worse; after them `then`."""

    address: str = ""
    script: list[int | Bad] = field(default_factory=list)
    then: int | Bad = 200
    got: list[Got] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.address}{path}"

    def wait_for(self, count: int, seconds: float = 30.0) -> list[Got]:
        """The first requests, once there are so many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= count, seconds), self.got
            return self.got[:count]


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    made.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(made: Receiver) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with made.arrived:
                how = made.script.pop(0) if made.script else made.then
                made.got.append(Got(method=self.command, path=self.path, headers=headers, body=body))
                made.arrived.notify_all()
            self._answer(how)

        do_GET = do_POST = _handle  # noqa: N815 - names of http.server

        def _answer(self, how: int | Bad) -> None:
            match how:
                case Bad.DRIPS:
                    self._drip()
                case Bad.GARBLES:
                    self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
                case Bad.HANGS:
                    made.closing.wait()
                case Bad.DIES:
                    pass
                case int(status):
                    self.send_response(status)
                    if 300 <= status < 400:
                        self.send_header("Location", made.url("/elsewhere"))
                    self.end_headers()
            self.close_connection = True

        def _drip(self) -> None:
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not made.closing.wait(0.02):
                    self.wfile.write(b".")
            except OSError:
                pass  # nobody listens any more

        def log_message(self, *_: Any) -> None:
            """Not on stderr."""

    return Handler
