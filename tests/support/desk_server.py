"""The desk over plain HTTP, in this process: what a client needs of a server, and nothing of its defences."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from calve.app.access import Gatekeeper
from calve.app.calve import Calve
from calve.app.desk import Desk
from calve.app.token_file import hello
from calve.model.access import Caller, Role
from calve.model.errors import CalveError, DeniedError, NotFoundError, RefusedError, UsageError

_STATUS = {UsageError: 400, DeniedError: 403, NotFoundError: 404, RefusedError: 409}


@contextmanager
def desk_server(calve: Calve, token: str) -> Iterator[str]:
    """Its address. `token` is that of this host."""
    desk, gate = Desk(calve), Gatekeeper(calve.registry, local_token=token, now=calve.now)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
            reader = Caller(name="local-reader", role=Role.VIEWER)
            caller = gate.caller(sent, loopback=True) if sent else reader
            try:
                if caller is None:
                    raise DeniedError("the token is wrong", code="token", hint="calve token list")
                verb = self.path.removeprefix("/v1/verbs/")
                self._send(
                    200, desk.perform(caller, verb, given, key=self.headers.get("Idempotency-Key", ""))
                )
            except CalveError as error:
                status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 503)
                self._send(status, error.info.to_json() | {"exit_code": error.exit_code})

        def do_GET(self) -> None:
            nonce = parse_qs(urlsplit(self.path).query)["nonce"][0]
            self._send(200, {"proof": hello(token, server.server_port, nonce)})

        def _send(self, status: int, document: Any) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
