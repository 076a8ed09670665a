"""Google Cloud Storage's XML API, for a client that speaks it, before a server that has only the JSON API.

`fake-gcs-server` checks `ifGenerationMatch`, keeps the objects and lists them; this front translates. Parts of a
multipart upload are kept here until they are put together, as one object.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

TOKEN = "ya29.test-token"
_JSON_API = ("/storage/v1", "/upload/", "/download/", "/batch/")
_HOP = ("connection", "transfer-encoding", "date", "content-length")
_MATCH = "x-goog-if-generation-match"


class GcsFront(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.guard = Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request of the JSON API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: GcsFront

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        if parts.path.startswith(_JSON_API):
            self._pass_on(body)
            return
        bucket, _, name = parts.path.lstrip("/").partition("/")
        asked = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._error(401, "AuthenticationRequired")
        elif self.server.ask("GET", f"/storage/v1/b/{bucket}")[0] == 404:
            self._error(404, "NoSuchBucket")
        elif not name:
            self._list(bucket, asked)
        elif "uploads" in asked or "uploadId" in asked:
            self._multipart(bucket, unquote(name), asked, body)
        elif self.command == "PUT":
            self._put(bucket, unquote(name), body)
        else:
            self._object(f"/storage/v1/b/{bucket}/o/{quote(unquote(name), safe='')}")

    do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _serve  # noqa: N815

    def _pass_on(self, body: bytes) -> None:
        """What Java's client asks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=30)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        found = connection.getresponse()
        data = found.read()
        kept = {name: value for name, value in found.getheaders() if name.lower() not in _HOP}
        self._answer(found.status, data, kept)
        connection.close()

    def _put(self, bucket: str, name: str, body: bytes) -> None:
        asked = {"uploadType": "media", "name": name}
        if match := self.headers.get(_MATCH):
            asked["ifGenerationMatch"] = match
        status, answer = self.server.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(asked)}", body)
        if status != 200:
            self._error(status, "PreconditionFailed" if status == 412 else "Refused")
            return
        generation = json.loads(answer)["generation"]
        self._answer(200, b"", {"ETag": f'"{generation}"', "x-goog-generation": generation})

    def _multipart(self, bucket: str, name: str, asked: dict[str, str], body: bytes) -> None:
        uploads, key = self.server.uploads, asked.get("uploadId", "")
        if "uploads" in asked:
            key = uuid4().hex
            uploads[key] = {}
            self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{key}</UploadId></InitiateMultipartUploadResult>"
            )
        elif self.command == "PUT":
            with self.server.guard:
                uploads[key][int(asked["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"{asked["partNumber"]}"'})
        elif self.command == "DELETE":
            uploads.pop(key)
            self._answer(204, b"", {})
        else:
            whole = b"".join(data for _, data in sorted(uploads.pop(key).items()))
            query = urlencode({"uploadType": "media", "name": name})
            status, _ = self.server.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", whole)
            assert status == 200, status
            self._xml('<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>')

    def _object(self, path: str) -> None:
        if self.command == "DELETE":
            status, _ = self.server.ask("DELETE", path)
            self._answer(204, b"", {}) if status in (200, 204) else self._error(status, "NoSuchKey")
            return
        status, about = self.server.ask("GET", path)
        if status != 200:
            self._error(status, "NoSuchKey")
            return
        found = json.loads(about)
        headers = {"ETag": f'"{found["generation"]}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if self.command == "HEAD":
            self._answer(200, b"", headers | {"Content-Length": found["size"]})
            return
        _, data = self.server.ask("GET", f"{path}?alt=media")
        if given := self.headers.get("Range"):
            first, _, last = given.removeprefix("bytes=").partition("-")
            end = min(int(last), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{end}/{len(data)}"
            self._answer(206, data[int(first) : end + 1], headers)
            return
        self._answer(200, data, headers)

    def _list(self, bucket: str, asked: dict[str, str]) -> None:
        query = urlencode({"prefix": asked.get("prefix", "")})
        _, answer = self.server.ask("GET", f"/storage/v1/b/{bucket}/o?{query}")
        rows = "".join(
            f'<Contents><Key>{escape(one["name"])}</Key><Size>{one["size"]}</Size><ETag>"1"</ETag>'
            f"<LastModified>{one['updated']}</LastModified></Contents>"
            for one in json.loads(answer).get("items", ())
        )
        self._xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>")

    def _xml(self, text: str) -> None:
        self._answer(200, f"<?xml version='1.0'?>{text}".encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({} if status == 204 else {"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Silent: tests read the answers."""


@contextmanager
def gcs_front(upstream: int) -> Iterator[GcsFront]:
    front = GcsFront(upstream)
    Thread(target=front.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield front
    finally:
        front.shutdown()
        front.server_close()
