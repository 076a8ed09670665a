"""What stands in front of a real REST catalog: it answers a request itself, or passes it on."""

import http.client
import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

DELEGATION = "X-Iceberg-Access-Delegation"
_PASSED_ON = ("Content-Type", "Authorization", "Accept", "X-Client-Version", DELEGATION)


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class Silence(Enum):
    """No answer at all."""

    RESET = auto()
    UNTIL_HUNG_UP = auto()


class RestFront(ABC):
    """Use it as a context manager."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @abstractmethod
    def serve(self, request: Request) -> Answer | Silence:
        """Called by many threads at once."""

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forward(self, request: Request) -> Answer:
        """What the catalog itself answers."""
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            connection.request(request.method, request.path, request.body or None, request.headers)
            response = connection.getresponse()
            return Answer(status=response.status, body=response.read())
        finally:
            connection.close()

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(front: RestFront) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = (
            True  # headers and body are two writes: Nagle would hold the second for 40 ms
        )

        def _serve(self) -> None:
            headers = {name: self.headers[name] for name in _PASSED_ON if self.headers.get(name)}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(method=self.command, path=self.path, headers=headers, body=body)
            match front.serve(request):
                case Answer() as answer:
                    self._answer(answer)
                case Silence.RESET:
                    # Lingering for no time makes the kernel send a reset instead of an end.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    self.connection.close()
                case Silence.UNTIL_HUNG_UP:
                    self.connection.recv(1)
                    self.close_connection = True

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _serve  # noqa: N815

        def _answer(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, *args: Any) -> None:
            """Silent: tests read the answers."""

    return Handler
