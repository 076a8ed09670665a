"""A proxy in front of a real REST catalog that lends keys with every table, as catalogs in the cloud do.

    with vending_proxy(rest.uri) as proxy:
        proxy.lend({"s3.access-key-id": …, "s3.secret-access-key": …})
        … proxy.uri, proxy.answers, proxy.after_answer

What is not an answer with a table in it passes unchanged.
"""

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

_TABLE = re.compile(r"/namespaces/[^/]+/tables(/[^/?]+)?$")
_PASSED_ON = ("Content-Type", "Authorization", "Accept")
_DELEGATION = "X-Iceberg-Access-Delegation"


class VendingProxy:
    """What is lent, and how often. Thread-safe."""

    def __init__(self, upstream: str) -> None:
        self.answers = 0  # that carried keys
        self.after_answer: Callable[[int], None] = lambda _number: None
        self.as_storage_credentials = False
        self._upstream = urlsplit(upstream).netloc
        self._lock = Lock()
        self._lent: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lend(self, properties: Mapping[str, str]) -> None:
        """Lend these from now on."""
        with self._lock:
            self._lent = dict(properties)

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            kept = {name: headers[name] for name in _PASSED_ON if name in headers}
            connection.request(method, path, body or None, kept)
            response = connection.getresponse()
            status, answer = response.status, response.read()
        finally:
            connection.close()
        asked = headers.get(_DELEGATION, "") == "vended-credentials"
        if status != 200 or not asked or not _TABLE.search(urlsplit(path).path):
            return status, answer
        return status, self._with_keys(answer)

    def _with_keys(self, answer: bytes) -> bytes:
        said = json.loads(answer)
        if "metadata-location" not in said:
            return answer
        with self._lock:
            self.answers += 1
            number, lent = self.answers, dict(self._lent)
        if self.as_storage_credentials:
            location = said["metadata"]["location"]
            said["storage-credentials"] = [
                {"prefix": "s3", "config": lent | {"s3.access-key-id": "of-another-prefix"}},
                {"prefix": location, "config": lent},
            ]
        else:
            said["config"] = said.get("config", {}) | lent
        self.after_answer(number)
        return json.dumps(said).encode()

    def start(self) -> None:
        Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(proxy: VendingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = proxy.serve(self.command, self.path, self.headers, body)  # type: ignore[arg-type]
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_GET = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Said by the test, if anything."""

    return Handler


@contextmanager
def vending_proxy(upstream: str) -> Iterator[VendingProxy]:
    """A running proxy, stopped at the end of the block."""
    proxy = VendingProxy(upstream)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
