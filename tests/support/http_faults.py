"""A proxy in front of an S3 server that answers chosen requests itself, as an overloaded service or its load
balancer does: 500, 502, 503 `SlowDown`, 429.

    with HttpFaults(s3.port) as front:
        front.answer(503, code="SlowDown", of=lambda method, path: method == "PUT")

Other requests pass byte by byte, so that signatures hold. One request for each connection.
"""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from support import tally

Of = Callable[[str, str], bool]  # of a request's method and path


class HttpFaults:
    """Use it as a context manager. Thread-safe."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._fault: tuple[Of, bytes] | None = None
        self.answered: list[str] = []  # the requests that were answered here
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(
        self,
        status: int,
        *,
        code: str = "",
        of: Of = lambda _method, _path: True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer such requests with this from now on. `code` is S3's own, in the body."""
        body = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>busy</Message></Error>" if code else ""
        )
        lines = [f"HTTP/1.1 {status} Fault", "Connection: close", f"Content-Length: {len(body)}"]
        if code:
            lines.append("Content-Type: application/xml")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._fault = (of, ("\r\n".join(lines) + "\r\n\r\n").encode() + body.encode())

    def heal(self) -> None:
        self._fault = None

    def instead(self, method: str, path: str) -> bytes | None:
        """What is answered here; None if the server is asked."""
        fault = self._fault
        if fault is None or not fault[0](method, path):
            return None
        self.answered.append(f"{method} {path}")
        tally.count("answer", fault[1].split(b" ", 2)[1].decode())
        # The answer to HEAD has no body, whatever its length says.
        return fault[1].partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else fault[1]

    def connect(self) -> socket.socket:
        return socket.create_connection(self._target, timeout=30)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(front: HttpFaults) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            client.settimeout(30)
            with contextlib.suppress(OSError):
                head, rest = _head(client)
                if not head:
                    return
                method, path, _ = head[0].split(" ", 2)
                instead = front.instead(method, path)
                if instead is not None:
                    client.sendall(instead)
                    client.shutdown(socket.SHUT_WR)
                    client.settimeout(5)
                    while client.recv(65536):  # a close with unread bytes would reset the answer away
                        pass
                    return
                with front.connect() as server:
                    kept = [line for line in head if not line.lower().startswith("connection:")]
                    server.sendall("\r\n".join([*kept, "Connection: close", "", ""]).encode() + rest)
                    sending = threading.Thread(target=_pump, args=(client, server), daemon=True)
                    sending.start()
                    _pump(server, client)

    return Handler


def _head(client: socket.socket) -> tuple[list[str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return [], b""
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
