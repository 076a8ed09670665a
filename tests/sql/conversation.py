"""A plain HTTP server around `calve.http.clickhouse.answer`, for real clients in tests."""

import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from calve.http.clickhouse import Asked, answer, pinged
from calve.model.access import Caller
from calve.sql.execution import Sql


@contextmanager
def conversation(sql: Sql, caller: Caller) -> Iterator[tuple[int, list[str]]]:
    """Its port, and the statements that came."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urllib.parse.urlsplit(self.path)
            seen.append(body.decode("utf-8", "replace"))
            asked = Asked(
                method=self.command,
                parameters=urllib.parse.parse_qsl(url.query, keep_blank_values=True),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
            )
            answered = pinged() if url.path == "/ping" else answer(sql, caller, asked)
            self.send_response(answered.status)
            for name, value in answered.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        server.server_close()
