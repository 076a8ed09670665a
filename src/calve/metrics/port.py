"""The port at which a worker tells its metrics: GET /metrics, one request at a time, bounded in time.

It is no API: it knows one path, reads nothing that a peer sends but the head of the request, and has no secret to
tell. It ends with the program.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6, SHUT_RDWR

from calve.metrics.meters import CONTENT_TYPE, Meters
from calve.model.errors import UsageError

_PEER_SECONDS = 5.0


@contextmanager
def told(meters: Meters, host: str, port: int) -> Iterator[int]:
    """Answer for as long as the block lasts; the port. UsageError if it is taken."""
    handler = type("Handler", (_Handler,), {"meters": meters})
    kind = type("Server", (HTTPServer,), {"address_family": AF_INET6}) if ":" in host else HTTPServer
    try:
        server = kind((host, port), handler)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port} for metrics: {error.strerror}",
            code="address",
            hint="give each worker of a host its own port: CALVE_METRICS__PORT=9181; or 0 for none",
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    meters: Meters
    timeout = _PEER_SECONDS  # of the socket: a silent peer holds up the next scrape no longer
    server_version = "calve"
    sys_version = ""

    def setup(self) -> None:
        """A peer that sends a byte now and then is cut off as well: `timeout` bounds only its silence."""
        super().setup()
        self._cut = threading.Timer(_PEER_SECONDS, self._cut_off)
        self._cut.daemon = True
        self._cut.start()

    def finish(self) -> None:
        self._cut.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(SHUT_RDWR)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.meters.text()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not in the log: it is scraped every few seconds."""
