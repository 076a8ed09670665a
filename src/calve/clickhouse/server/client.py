"""Our HTTP client for ClickHouse: one statement a request, bounded in time, whole or an error.

The standard library's `http.client`: nothing is retried behind our back, nothing follows a
redirect with our credentials. Connecting has an end, and so has, by a clock, the statement as a
whole, however slowly its answer comes.

Where a server is: `url` of the configuration, one address or several replicas of one cluster.
"""

import http.client
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from calve.clickhouse.server import errors
from calve.clickhouse.server.errors import TAG_HEADER, exception_in
from calve.model.errors import CalveError, UsageError
from calve.wire.bounded_http import TimedAnswer

SCHEMES = ("http", "https")
_PORTS = {"http": 8123, "https": 8443}


@dataclass(frozen=True, kw_only=True)
class Address:
    """One replica."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.url


def parse_url(text: str, source: str) -> tuple[Address, ...]:
    """The replicas that `url` names, in order: `http://a:8123,b:8123`, or whole URLs with commas."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _wrong(source, 'url = "http://host:8123" or "https://host:8443"')
    if "@" in rest:
        # The text is not repeated: it holds a password.
        raise _wrong(source, f"give user and password_file under [source.{source}], not in the url")
    pieces = [piece.removeprefix(f"{scheme}://") for piece in rest.split(",")]
    return tuple(_address(scheme, piece.rstrip("/"), source) for piece in pieces)


def _address(scheme: str, text: str, source: str) -> Address:
    split = urllib.parse.urlsplit(f"{scheme}://{text}")
    try:
        port = split.port
    except ValueError:
        raise _wrong(source, "a port is a number up to 65535") from None
    if not split.hostname or split.path or split.query or split.fragment:
        raise _wrong(source, "give scheme, host and port only; several replicas are separated by commas")
    return Address(scheme=scheme, host=split.hostname, port=port or _PORTS[scheme])


def _wrong(source: str, hint: str) -> UsageError:
    return UsageError(f"the url of source {source} names no ClickHouse server", code="source_url", hint=hint)


_READ_BYTES = 1 << 20
_ERROR_BYTES = 1 << 16
_OUTAGE_STATUS = (408, 425, 429)  # and 5xx: whatever answers is overloaded, or has nobody behind it
_MOST_BYTES = 1 << 30  # of one answer held in memory: these are lists of parts, never a table's rows


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Who asks. The password is in no `repr`."""

    user: str = "default"
    password: str = field(default="", repr=False)

    def headers(self) -> dict[str, str]:
        return {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password}

    @property
    def secrets(self) -> tuple[str, ...]:
        quoted = urllib.parse.quote(self.password)
        return (self.password, quoted) if self.password else ()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement."""

    sql: str
    what: str  # names the object in an error's message
    seconds: float
    query_id: str
    settings: Mapping[str, str] = field(default_factory=dict)


class ReplicaClient:
    """One replica of one source. A connection per request: statements are few, and one that
    outlived a fault is worth less than a new one."""

    def __init__(
        self,
        address: Address,
        *,
        source: str,
        credentials: Credentials,
        database: str,
        ca_file: str = "",
        connect_seconds: float = 5.0,
    ) -> None:
        self.address = address
        self._source = source
        self._credentials = credentials
        self._database = database
        self._connect_seconds = connect_seconds
        self._tls = _tls(ca_file, source) if address.scheme == "https" else None

    def ask(self, request: Statement) -> bytes:
        """The whole body of the answer, or an error that says why there is none."""
        what = f"source {self._source} ({self.address}), {request.what}"
        until = time.monotonic() + request.seconds
        connection = self._connected(what)
        try:
            return self._exchange(connection, request, what, until)
        except TimeoutError:
            raise errors.hung(what, request.seconds, self._source) from None
        except (http.client.IncompleteRead, http.client.HTTPException, OSError) as error:
            raise self._broken(what, error) from None
        finally:
            connection.close()

    def _connected(self, what: str) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._connect_seconds, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._connect_seconds)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise UsageError(
                f"{what}: the server's certificate is not trusted: {error.verify_message}",
                code="source_certificate",
                hint=f"set ca_file under [source.{self._source}] to the authority that signed it",
            ) from None
        except OSError as error:
            connection.close()
            raise errors.unreachable(what, _cause(error), self._source) from None
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, request: Statement, what: str, until: float
    ) -> bytes:
        parameters = {"database": self._database, "query_id": request.query_id, **request.settings}
        _wait_until(connection, until)
        connection.response_class = partial(TimedAnswer, until=until)  # type: ignore[assignment]
        connection.request(
            "POST",
            "/?" + urllib.parse.urlencode(parameters),
            request.sql.encode("utf-8", "surrogateescape"),
            self._credentials.headers(),
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise self._refused(answer, what)
        body = self._body(answer, what)
        failure = exception_in(body, answer.getheader(TAG_HEADER))
        if failure is not None:
            raise errors.translate(failure, what, self._source, self._credentials.secrets)
        return body

    def _body(self, answer: http.client.HTTPResponse, what: str) -> bytes:
        pieces = bytearray()
        tag = answer.getheader(TAG_HEADER)
        while True:
            try:
                piece = answer.read1(_READ_BYTES)
            except http.client.IncompleteRead as error:
                failure = exception_in(bytes(pieces), tag)
                if failure is None:
                    raise errors.cut_off(what, f"{len(pieces)} bytes came") from error
                raise errors.translate(failure, what, self._source, self._credentials.secrets) from None
            if not piece:
                return self._checked_end(answer, pieces, what)
            pieces += piece
            if len(pieces) > _MOST_BYTES:
                raise errors.cut_off(what, f"it is larger than {_MOST_BYTES} bytes")

    def _checked_end(self, answer: http.client.HTTPResponse, pieces: bytearray, what: str) -> bytes:
        """`http.client` takes a closed connection for the end of a body in some cases; we do not."""
        left = answer.length
        if left:
            raise errors.cut_off(what, f"{left} bytes are missing")
        return bytes(pieces)

    def _refused(self, answer: http.client.HTTPResponse, what: str) -> CalveError:
        text = answer.read(_ERROR_BYTES).decode("utf-8", "replace")
        if errors.code_of(text):
            return errors.translate(text, what, self._source, self._credentials.secrets)
        if answer.status in (401, 403):
            return errors.translate("Code: 516. refused", what, self._source, ())
        # A proxy or balancer in between, or no ClickHouse at all.
        shown = errors.masked(" ".join(text.split())[:200], self._credentials.secrets)
        said = f"HTTP {answer.status} {shown}".strip()
        if answer.status >= 500 or answer.status in _OUTAGE_STATUS:
            return errors.unreachable(what, said, self._source)
        return errors.not_clickhouse(what, said, self._source)

    def _broken(self, what: str, error: Exception) -> CalveError:
        if isinstance(error, http.client.BadStatusLine) or not isinstance(error, http.client.HTTPException):
            return errors.unreachable(what, _cause(error), self._source)
        return errors.cut_off(what, type(error).__name__)


def _wait_until(connection: http.client.HTTPConnection, until: float) -> None:
    """What is sent has the time that is left; what is read is timed by itself."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.sock.settimeout(left)


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "connecting took too long"
    if isinstance(error, socket.gaierror):
        return f"its name is unknown ({error.strerror})"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed the connection without an answer"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _tls(ca_file: str, source: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the ca_file of source {source} ({ca_file}) cannot be used: {error}",
            code="source_ca_file",
            hint="give a file of certificates in PEM form",
        ) from None
