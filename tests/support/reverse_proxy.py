"""A proxy as people put in front of a server: under a path of its own, which it takes off or not, and with its headers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "server", "date", "keep-alive"})


@contextmanager
def behind_a_proxy(server: str, root: str, *, strips: bool) -> Iterator[str]:
    """The address that browsers use. What is not under the root path is not passed on: it belongs to others."""
    with httpx.Client(base_url=server, trust_env=False, timeout=30) as client:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path != root and not self.path.startswith(f"{root}/"):
                    self.send_error(404, "not under the root path")
                    return
                headers = [(name, value) for name, value in self.headers.items() if name.lower() not in _HOP]
                headers += [("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Proto", "http")]
                path = (self.path.removeprefix(root) or "/") if strips else self.path
                found = client.request(self.command, path, headers=headers, content=body)
                self.send_response(found.status_code)
                for name, value in found.headers.multi_items():
                    if name.lower() not in (*_HOP, "content-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
            thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield f"http://127.0.0.1:{proxy.server_address[1]}{root}"
            finally:
                proxy.shutdown()
                thread.join()
