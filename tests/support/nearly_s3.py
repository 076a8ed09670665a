"""A front of a real S3 server that takes one ability away, as storages do that are nearly S3.

What is not concerned passes unchanged, with its signature; a request that must be changed is signed anew.
"""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.s3 import S3Server


class Lacks(Enum):
    CONDITIONAL_PUT = auto()  # it ignores If-None-Match
    CONDITIONS = auto()  # it says that it does not implement them
    CHECKSUMS = auto()  # it refuses the ones that AWS's new clients add
    FRESH_LISTS = auto()  # it answers lists from a cache
    BULK_DELETE = auto()
    UPLOAD_RULES = auto()  # lifecycle
    PARTS = auto()  # uploads in several parts
    UPLOAD_LISTS = auto()  # of uploads that are not completed


@contextmanager
def nearly_s3(server: S3Server, lacks: Lacks) -> Iterator[str]:
    """The endpoint."""
    front = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server, lacks))
    front.daemon_threads = True
    Thread(target=front.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{front.server_address[1]}"
    finally:
        front.shutdown()
        front.server_close()


def _handler(server: S3Server, lacks: Lacks) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            chunked = self.headers.get("Transfer-Encoding", "") == "chunked"
            body = (
                self._chunks() if chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
            )
            instead = self._instead()
            if instead is not None:
                self._answer(*instead)
                return
            if lacks is Lacks.CONDITIONAL_PUT and self.headers.get("If-None-Match"):
                status, answer = server.request(self.command, urlsplit(self.path).path, body)
                self._answer(status, {"ETag": '"1"'}, answer)
                return
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":  # answered already
                    connection.putheader(name, value)
            connection.endheaders([body] if chunked else body, encode_chunked=chunked)
            found = connection.getresponse()
            data = found.read()
            ours = _OURS if self.command == "HEAD" else {*_OURS, "content-length"}
            headers = {name: value for name, value in found.getheaders() if name.lower() not in ours}
            self._answer(found.status, headers, data)
            connection.close()

        def _chunks(self) -> bytes:
            found = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return found

        def _instead(self) -> tuple[int, dict[str, str], bytes] | None:
            asked = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            names = {name.lower() for name in self.headers}
            refuses = {
                Lacks.CONDITIONS: "if-none-match" in names,
                Lacks.CHECKSUMS: bool(names & _CHECKSUMS),
                Lacks.BULK_DELETE: self.command == "POST" and "delete" in asked,
                Lacks.UPLOAD_RULES: "lifecycle" in asked,
                Lacks.PARTS: self.command == "POST" and "uploads" in asked,
                Lacks.UPLOAD_LISTS: self.command == "GET" and "uploads" in asked,
            }
            if refuses.get(lacks):
                return (400, _XML, _INVALID) if lacks is Lacks.CHECKSUMS else (501, _XML, _NOT_IMPLEMENTED)
            return (200, _XML, _EMPTY) if lacks is Lacks.FRESH_LISTS and "list-type" in asked else None

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _serve  # noqa: N815

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":  # whose answer has the object's length already
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Silent: tests read the answers."""

    return Handler


_OURS = {"connection", "transfer-encoding", "date", "server"}
_CHECKSUMS = {"x-amz-sdk-checksum-algorithm", "x-amz-trailer", "x-amz-checksum-crc64nvme"}
_XML = {"Content-Type": "application/xml"}
_INVALID = b"<?xml version='1.0'?><Error><Code>InvalidArgument</Code><Message>no</Message></Error>"
_NOT_IMPLEMENTED = b"<?xml version='1.0'?><Error><Code>NotImplemented</Code><Message>no</Message></Error>"
_EMPTY = b"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
