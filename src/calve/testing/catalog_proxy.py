"""An HTTP proxy in front of a real REST catalog that does to a commit what networks do.

It injects the same faults as `catalog_faults`, at the wire: the real client, the real timeout, a
real reset. What is not a commit or a look at a table passes unchanged, unless the whole catalog ails.
"""

import http.client
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from calve.testing.catalog_faults import Fault, Landing, Reading, Told
from calve.testing.catalog_tokens import TOKENS_PATH, CatalogTokens

_TABLE = re.compile(r"/namespaces/[^/]+/tables/[^/?]+$")
_STATUS = {Told.CONFLICT: 409, Told.BAD_REQUEST: 400, Told.SERVER_ERROR: 500, Told.UNAVAILABLE: 503}
_PASSED_ON = ("Content-Type", "Authorization", "Accept", "X-Client-Version", "X-Iceberg-Access-Delegation")


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


def _injected(status: int) -> Answer:
    error = {"error": {"message": "injected", "type": "InjectedError", "code": status}}
    return Answer(status=status, body=json.dumps(error).encode())


class CatalogProxy:
    """The faults, and what was held back. Thread-safe."""

    def __init__(self, upstream: str, tokens: CatalogTokens | None = None) -> None:
        self.tokens = tokens
        self.ails: Told | None = None  # everything is answered like this, and nothing is passed on
        self.bury: Callable[[], None] = lambda: None
        self.before_send: Callable[[], None] = lambda: None
        self.sends = 0
        self._upstream = urlsplit(upstream).netloc
        self._lock = Lock()
        self._fault: Fault | None = None
        self._held: list[Request] = []
        self._until_released = False
        self._reading, self._bad_looks = Reading.AT_ONCE, 0
        self._old: dict[str, Answer] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arm(self, fault: Fault) -> None:
        with self._lock:
            self._fault = fault

    def release(self) -> None:
        """Let the commits that were held arrive; what the catalog says to them, nobody hears."""
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            self.forward(request)

    def forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            connection.request(request.method, request.path, request.body or None, request.headers)
            response = connection.getresponse()
            return Answer(status=response.status, body=response.read())
        finally:
            connection.close()

    def instead(self, request: Request) -> tuple[Told, Answer] | None:
        """What is said without asking the catalog."""
        if self.ails is not None:
            return self.ails, Answer(status=503, body=b"")
        if self.tokens is None:
            return None
        if urlsplit(request.path).path == TOKENS_PATH:
            status, body = self.tokens.exchange(request.body)
            return Told.OK, Answer(status=status, body=body)
        refused = self.tokens.refusal(request.headers.get("Authorization", ""))
        return (Told.OK, Answer(status=refused[0], body=refused[1])) if refused else None

    def look(self, request: Request) -> Answer | None:
        """A look at a table; None: no answer at all."""
        with self._lock:
            bad = self._bad_looks > 0
            self._bad_looks -= bad
            reading = self._reading if bad else Reading.AT_ONCE
        if reading is Reading.UNREADABLE:
            return None
        if reading is Reading.REFUSED:
            return _injected(401)
        if reading is Reading.STALE and request.path in self._old:
            return self._old[request.path]
        answer = self.forward(request)
        self._old[request.path] = answer
        return answer

    def commit(self, request: Request) -> tuple[Told, Answer]:
        """What became of a commit, and what is said of it."""
        self.before_send()
        self.sends += 1
        if not self._until_released:
            self.release()
        with self._lock:
            fault, self._fault = self._fault, None
        if fault is None:
            return Told.OK, self.forward(request)
        answer: Answer | None = None
        match fault.landing:
            case Landing.LANDED:
                answer = self.forward(request)
            case Landing.BURIED:
                answer = self.forward(request)
                self.bury()
            case Landing.LATER | Landing.LAST:
                with self._lock:
                    self._held.append(request)
                    self._until_released = fault.landing is Landing.LAST
            case Landing.NOT:
                pass
        with self._lock:
            self._reading, self._bad_looks = fault.reading, fault.looks
        return fault.told, answer or self._lie(request)

    def _lie(self, request: Request) -> Answer:
        """ "Yes", with the table as it is: the answer of a catalog that has not applied a thing."""
        table = self.forward(Request(method="GET", path=request.path, headers=request.headers, body=b""))
        loaded = json.loads(table.body)
        said = {"metadata-location": loaded["metadata-location"], "metadata": loaded["metadata"]}
        return Answer(status=200, body=json.dumps(said).encode())

    def start(self) -> None:
        Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(proxy: CatalogProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _request(self) -> Request:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name: self.headers[name] for name in _PASSED_ON if self.headers.get(name)}
            body = self.rfile.read(length)
            return Request(method=self.command, path=self.path, headers=headers, body=body)

        def _pass(self) -> None:
            request = self._request()
            table = _TABLE.search(urlsplit(self.path).path) is not None
            instead = proxy.instead(request)
            if instead is not None:
                self._tell(*instead)
            elif table and self.command == "POST":
                self._tell(*proxy.commit(request))
            elif table and self.command == "GET":
                answer = proxy.look(request)
                self._tell(Told.OK if answer else Told.RESET, answer or Answer(status=503, body=b""))
            else:
                self._tell(Told.OK, proxy.forward(request))

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _pass  # noqa: N815

        def _tell(self, told: Told, answer: Answer) -> None:
            match told:
                case Told.RESET:
                    # Lingering for no time makes the kernel send a reset instead of an end.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    self.connection.close()
                case Told.TIMEOUT:
                    self.connection.recv(1)  # nothing is said until the client hangs up
                    self.close_connection = True
                case Told.OK:
                    self._answer(answer)
                case _:
                    self._answer(_injected(_STATUS[told]))

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


@contextmanager
def catalog_proxy(upstream: str, tokens: CatalogTokens | None = None) -> Iterator[CatalogProxy]:
    """A running proxy in front of `upstream`."""
    proxy = CatalogProxy(upstream, tokens)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
