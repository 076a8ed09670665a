"""The front's process: `python -m support.front_process OPTIONS`, a file of JSON.

ClickHouse's HTTP protocol, as far as clients use it, in front of `FrontEngine`. Prints its
port once it listens. Exceptions that come after the first bytes are sent end the body the way
a server does it: today's with a tagged block and no last chunk, one of old with the bare text
and a body that looks complete.
"""

import http.server
import itertools
import json
import os
import re
import secrets
import ssl
import string
import sys
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calve.clickhouse.sql import tokens
from support.front_access import EVERYTHING
from support.front_compression import choose, compressed, decompressed
from support.front_engine import EngineError, FrontEngine, Statement
from support.front_users import FrontUser, Refused, authenticate, check_grants, credentials

_CODE = re.compile(r"Code: (\d+)")
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*(?:SETTINGS\s[^']*)?;?\s*\Z", re.IGNORECASE)
_RESERVED = frozenset(
    {"query", "database", "user", "password", "query_id", "default_format", "session_id", "session_timeout"}
    | {
        "session_check",
        "compress",
        "decompress",
        "quota_key",
        "stacktrace",
        "role",
        "client_protocol_version",
    }
)
_HTTP_ONLY = frozenset(
    {"wait_end_of_query", "buffer_size", "enable_http_compression", "http_zlib_compression_level"}
)
_STATUS = (
    {516: 403, 194: 401, 497: 403, 192: 403, 193: 403}
    | dict.fromkeys((6, 27, 36, 38, 41, 53, 62, 70, 72, 117, 164, 457), 400)
    | dict.fromkeys((16, 46, 47, 60, 81, 115, 218), 404)
    | {48: 501, 50: 501}
)
_INSERT_HEAD = 65_536


class FrontServer(http.server.ThreadingHTTPServer):
    """Options, engine and users of one front."""

    daemon_threads = True
    version = ""
    request_queue_size = 128

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", options["port"]), _Handler)
        # The engine takes settings of a server's configuration behind its folder.
        configured = urllib.parse.urlencode(options["server_settings"])
        folder = f"{options['folder']}?{configured}" if configured else options["folder"]
        self.users = {name: FrontUser(**user) for name, user in options["users"].items()}
        granted = any(user.grants is not None for user in self.users.values())
        self.engine = FrontEngine(folder, options["stand_ins"], roles=granted)
        self.delays: dict[str, float] = options["delays"]
        self.timezone: str = options["timezone"]
        self.tagged: bool = options["tagged_exceptions"]
        if options["certificate"]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options["certificate"], options["key"])
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def warm_up(self) -> str:
        """The engine's version; its first query costs the most."""
        ask = Statement(sql="SELECT version()", format="TSVRaw", database="default", query_id="warm-up")
        return b"".join(self.engine.run(ask)).decode().strip()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FrontServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: Nagle would hold the second for 40 ms

    def do_GET(self) -> None:
        if urllib.parse.urlsplit(self.path).path == "/ping" or self.path == "/":
            self._whole(200, b"Ok.\n", {})
            return
        self._query(b"", reading_only=True)

    def do_POST(self) -> None:
        try:
            body = decompressed(self._body(), self.headers.get("Content-Encoding", "").lower())
        except (ValueError, OSError) as error:
            self._whole(400, str(error).encode(), {})
            return
        self._query(body, reading_only=False)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _query(self, body: bytes, *, reading_only: bool) -> None:
        params = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        query_id = params.get("query_id") or str(uuid.uuid4())
        common = {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Server-Display-Name": "front",
            "X-ClickHouse-Timezone": self.server.timezone,
        }
        try:
            statement = self._statement(params, body, query_id, reading_only=reading_only)
            time.sleep(sum(seconds for word, seconds in self.server.delays.items() if word in statement.sql))
            pieces = self.server.engine.run(statement)
            first = list(itertools.islice(pieces, 1))
            if params.get("wait_end_of_query") == "1":
                first += list(pieces)
        except (EngineError, Refused) as error:
            code = int(found[1]) if (found := _CODE.search(str(error))) else 1000
            headers = {"X-ClickHouse-Exception-Code": str(code)}
            self._whole(
                _STATUS.get(code, 500),
                f"{error} (version {self.server.version})\n".encode(),
                common | headers,
            )
            return
        encoding = ""
        if params.get("enable_http_compression") == "1":
            encoding = choose(self.headers.get("Accept-Encoding", ""))
        self._stream(itertools.chain(first, pieces), pieces, encoding, common, statement)

    def _statement(
        self, params: dict[str, str], body: bytes, query_id: str, *, reading_only: bool
    ) -> Statement:
        name, password = credentials(self.headers, params)  # type: ignore[arg-type]
        user = authenticate(self.server.users, name, password)
        if params.get("compress") == "1" or params.get("decompress") == "1":
            raise Refused(48, "NOT_IMPLEMENTED", "The front has no ClickHouse-native compression")
        head = params.get("query", "")
        text = f"{head}\n".encode() + body if head else body
        default = params.get("default_format") or self.headers.get("X-ClickHouse-Format") or "TabSeparated"
        sql, form, data = _split_insert(text)
        if data is None:
            found = _FORMAT.search(sql)
            form = found[1] if found else default
        check_grants(user, name, sql)
        return Statement(
            sql=sql,
            format=form,
            data=data,
            database=params.get("database") or self.headers.get("X-ClickHouse-Database") or "default",
            query_id=query_id,
            session=params.get("session_id", ""),
            readonly=user.readonly or (2 if reading_only else 0),
            role=name if user.grants is not None else EVERYTHING,
            parameters={key[6:]: value for key, value in params.items() if key.startswith("param_")},
            settings={
                key: value
                for key, value in params.items()
                if key not in _RESERVED and key not in _HTTP_ONLY and not key.startswith("param_")
            },
        )

    def _whole(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(
        self,
        result: Iterator[bytes],
        source: Iterator[bytes],
        encoding: str,
        headers: dict[str, str],
        statement: Statement,
    ) -> None:
        tag = "".join(secrets.choice(string.ascii_lowercase) for _ in range(16))
        self.send_response(200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("X-ClickHouse-Format", statement.format)
        self.send_header("X-ClickHouse-Summary", _SUMMARY)
        if self.server.tagged:
            self.send_header("X-ClickHouse-Exception-Tag", tag)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        failures: list[str] = []
        try:
            for piece in compressed(self._guarded(result, tag, failures), encoding):
                self._chunk(piece)
            if failures and self.server.tagged:
                self.close_connection = True  # no last chunk: the body is visibly cut
            else:
                self.wfile.write(b"0\r\n\r\n")
        finally:
            source.close()  # type: ignore[attr-defined]  # a client that went away cancels the query

    def _guarded(self, result: Iterator[bytes], tag: str, failures: list[str]) -> Iterator[bytes]:
        """The result, and, where it fails, the exception in a server's own words."""
        try:
            yield from result
        except EngineError as error:
            failures.append(str(error))
            text = f"{error} (version {self.server.version})\n"
            if self.server.tagged:
                text = f"\r\n__exception__\r\n{tag}\r\n{text}{len(text.encode())} {tag}\r\n__exception__\r\n"
            yield text.encode()

    def _chunk(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a request's line may hold what nobody should read."""


def _split_insert(text: bytes) -> tuple[str, str, bytes | None]:
    """Statement, format and data of an `INSERT … FORMAT X` with its data behind; otherwise no data."""
    head = text[:_INSERT_HEAD].decode("latin-1")
    words = tokens.tokens(head)
    first = next(words, None)
    if first is None or first.text.upper() != "INSERT":
        return text.decode("utf-8", "surrogateescape"), "", None
    previous = first
    for word in words:
        if word.text.upper() in ("SELECT", "VALUES", "WITH"):
            break
        if previous.text.upper() == "FORMAT":
            data = text[word.end :]
            data = data[1:] if data[:1] in (b"\n", b" ") else data
            return text[: previous.start].decode("utf-8", "surrogateescape"), word.text, data
        previous = word
    return text.decode("utf-8", "surrogateescape"), "", None


_SUMMARY = json.dumps(
    dict.fromkeys(
        [
            "read_rows",
            "read_bytes",
            "written_rows",
            "written_bytes",
            "result_rows",
            "result_bytes",
            "elapsed_ns",
        ],
        "0",
    )
)


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the engine prints goes to the log
    os.chdir("/")  # the engine's table functions read files below the working folder only
    server = FrontServer(options)
    server.version = server.warm_up()
    announce.write(f"{server.server_address[1]}\n")
    announce.close()
    server.serve_forever(poll_interval=60)


if __name__ == "__main__":
    main()
