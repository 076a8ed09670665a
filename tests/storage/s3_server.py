"""A small S3 on loopback: enough of its protocol to put, get, list, delete and upload in parts.

Real sockets and a real client; faults are chosen by the test: a status for every answer, or
connections that are accepted and never answered.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "bucket"


class S3(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.fail_with: tuple[int, str] | None = None  # status, S3 error code
        self.fail_parts_after: int | None = None
        self.lose_answers = 0  # of the next puts, which are applied
        self.lifecycle = ""  # the bucket's rules, in XML
        self.versioning = self.object_lock = ""  # the same
        self.silent = threading.Event()
        self.guard = threading.Lock()

    @property
    def properties(self) -> dict[str, str]:
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.server_address[1]}",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "hush-secret",
            "s3.region": "us-east-1",
        }

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are part of the tests."""


@contextmanager
def running() -> Iterator[S3]:
    server = S3()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.silent.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: Nagle would hold the second for 40 ms
    server: S3

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.server.requests.append(f"{self.command} {key} {sorted(query)}")
        if self.server.fail_with == (0, "silence"):
            self.server.silent.wait(30)
            self.close_connection = True
            return
        if self.server.fail_with is not None:
            self._error(*self.server.fail_with)
        elif bucket != BUCKET:
            self._error(404, "NoSuchBucket")
        else:
            with self.server.guard:
                self._object(key, query, body)

    def _object(self, key: str, query: dict[str, str], body: bytes) -> None:
        objects = self.server.objects
        match self.command:
            case "PUT" if "partNumber" in query:
                self._part(query, body)
            case "PUT":
                if self.headers.get("If-None-Match") == "*" and key in objects:
                    self._error(412, "PreconditionFailed")
                else:
                    objects[key] = body
                    if self.server.lose_answers:
                        self.server.lose_answers -= 1
                        self.close_connection = True
                    else:
                        self._answer(200, b"", {"ETag": '"x"'})
            case "POST" if "uploads" in query:
                self.server.uploads[key] = {}
                self._xml(f"<InitiateMultipartUploadResult><UploadId>{escape(key)}</UploadId>"
                          "</InitiateMultipartUploadResult>")  # fmt: skip
            case "POST" if "uploadId" in query:
                uploaded = self.server.uploads.pop(query["uploadId"])
                objects[key] = b"".join(uploaded[number] for number in sorted(uploaded))
                self._xml('<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')
            case "POST" if "delete" in query:
                keys = [found.split("</Key>")[0] for found in body.decode().split("<Key>")[1:]]
                for one in keys:
                    objects.pop(unescape(one), None)
                deleted = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in keys)
                self._xml(f"<DeleteResult>{deleted}</DeleteResult>")
            case "DELETE" if "uploadId" in query:
                self.server.uploads.pop(query["uploadId"], None)
                self._answer(204, b"")
            case "DELETE":
                objects.pop(key, None)
                self._answer(204, b"")
            case "GET" if "lifecycle" in query and self.server.lifecycle:
                self._xml(self.server.lifecycle)
            case "GET" if "lifecycle" in query:
                self._error(404, "NoSuchLifecycleConfiguration")
            case "GET" if "versioning" in query:
                self._xml(self.server.versioning or "<VersioningConfiguration/>")
            case "GET" if "object-lock" in query and self.server.object_lock:
                self._xml(self.server.object_lock)
            case "GET" if "object-lock" in query:
                self._error(404, "ObjectLockConfigurationNotFoundError")
            case "GET" if not key:
                self._list(query.get("prefix", ""))
            case _ if key in objects:
                headers = {"ETag": '"x"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
                self._answer(200, objects[key], headers)
            case _:
                self._error(404, "NoSuchKey")

    def _part(self, query: dict[str, str], body: bytes) -> None:
        after = self.server.fail_parts_after
        if after is not None and int(query["partNumber"]) > after:
            self._error(403, "AccessDenied")
        else:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"{query["partNumber"]}"'})

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            '<LastModified>2024-01-01T00:00:00Z</LastModified><ETag>"x"</ETag></Contents>'
            for key, data in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        self._xml(f"<ListBucketResult>{found}<IsTruncated>false</IsTruncated></ListBucketResult>")

    def _xml(self, text: str) -> None:
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
