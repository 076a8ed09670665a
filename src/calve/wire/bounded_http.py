"""HTTP by `requests`, every call bounded as a whole: connecting, waiting, and reading to the last byte.

`requests` bounds the silence between two bytes, not the call: a server that sends a byte now and
then would hold its caller for ever.

A server that answers 429 or 503 with `Retry-After` is left alone for that long, a minute at most: calls
until then fail here, and nothing is sent.

`TimedAnswer` is read, headers and body, by a deadline, or not at all.
"""

import http.client
import io
import socket
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.utils import prepend_scheme_if_needed, select_proxy
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util import Retry


class TimedAnswer(http.client.HTTPResponse):
    """Reads raise TimeoutError after `until`, a moment of `time.monotonic`."""

    def __init__(self, sock: socket.socket, *given: Any, until: float, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_TimedStream(self.fp.detach(), sock, until))


class _TimedStream(io.RawIOBase):
    """The bytes of a socket; each wait ends at the deadline."""

    def __init__(self, stream: io.RawIOBase, sock: socket.socket, until: float) -> None:
        super().__init__()
        self._stream = stream
        self._sock = sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._sock.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


_CHUNK_BYTES = 1 << 16
_MOST_REDIRECTS = 5  # each is a call of its own
_MOST_WAIT_SECONDS = 60.0  # that a server may ask for
# Hosts that asked for time: until when, after which status. Of the program: each look at a catalog's
# configuration is a session of its own.
_left_alone: dict[str, tuple[float, int]] = {}
_this_call = threading.local()  # `until`: when the call that this thread makes must be over


def bound(session: Session, *, connect_seconds: float, call_seconds: float, ca_file: str = "") -> None:
    """Wrap what the session sends with. Wrapped, not replaced: request signing (SigV4) is an adapter
    too. What is bounded already stays as it is."""
    session.max_redirects = _MOST_REDIRECTS
    for prefix, adapter in list(session.adapters.items()):
        if isinstance(adapter, HTTPAdapter):
            session.mount(prefix, BoundedAdapter(adapter, connect_seconds, call_seconds, ca_file))


class BoundedAdapter(BaseAdapter):
    """Every request has its time, and no more; none is repeated."""

    def __init__(
        self, inner: HTTPAdapter, connect_seconds: float, call_seconds: float, ca_file: str = ""
    ) -> None:
        super().__init__()
        inner.max_retries = Retry(0, read=False)
        _read_in_time(inner.poolmanager)
        self._inner = inner
        self._ca_file = ca_file
        self._connect_seconds = min(connect_seconds, call_seconds)
        self._call_seconds = call_seconds

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        _refuse_early(request)
        self._prepare_proxy(request, proxies)
        _this_call.until = time.monotonic() + self._call_seconds
        try:
            response = self._inner.send(
                request,
                stream=True,
                timeout=timeout or (self._connect_seconds, self._call_seconds),
                # Not the session's: REQUESTS_CA_BUNDLE of the environment would win over it.
                verify=self._ca_file or verify,
                cert=cert,
                proxies=None if proxies is None else dict(proxies),
            )
            if not stream:
                _read(response)
        except requests.ReadTimeout as cause:
            raise self._too_slow(request) from cause
        except ReadTimeoutError as cause:  # urllib3's, which `requests` turns into its own only at times
            raise self._too_slow(request) from cause
        except HTTPError as cause:
            raise requests.ConnectionError(str(cause), request=request) from cause
        if response.status_code in (429, 503) and (seconds := _asked_to_wait(response)):
            _left_alone[_host(request)] = (time.monotonic() + seconds, response.status_code)
        return response

    def _prepare_proxy(self, request: PreparedRequest, proxies: Mapping[str, str] | None) -> None:
        """A proxy has connections of its own. Those through SOCKS are left as they are."""
        proxy = select_proxy(request.url or "", dict(proxies or {}))
        if proxy and not proxy.lower().startswith("socks"):
            _read_in_time(self._inner.proxy_manager_for(prepend_scheme_if_needed(proxy, "http")))

    def _too_slow(self, request: PreparedRequest) -> requests.ReadTimeout:
        seconds = self._call_seconds
        return requests.ReadTimeout(f"the answer was not complete after {seconds:g} s", request=request)

    def close(self) -> None:
        self._inner.close()


def _refuse_early(request: PreparedRequest) -> None:
    until, status = _left_alone.get(_host(request), (0.0, 0))
    left = until - time.monotonic()
    if left > 0:
        raise requests.ConnectionError(
            f"{_host(request)} answered {status} and asked for {left:.0f} s more without calls (Retry-After)",
            request=request,
        )


def _host(request: PreparedRequest) -> str:
    return urlsplit(request.url or "").netloc


def _asked_to_wait(response: Response) -> float:
    """Seconds; 0 if it asked for none that can be read. A date is compared with the server's own clock."""
    given = response.headers.get("Retry-After", "").strip()
    try:
        seconds = float(given)
    except ValueError:
        try:
            sent = parsedate_to_datetime(response.headers["Date"])
            seconds = (parsedate_to_datetime(given) - sent).total_seconds()
        except (KeyError, TypeError, ValueError):
            return 0.0
    return min(max(seconds, 0.0), _MOST_WAIT_SECONDS) if seconds == seconds else 0.0  # not NaN


def _read(response: Response) -> None:
    """The whole answer, here, while the call's time is known."""
    try:
        # Not `iter_content`: it waits until a whole chunk is there.
        pieces = iter(lambda: response.raw.read1(_CHUNK_BYTES, decode_content=True), b"")
        response._content = b"".join(pieces)
        response._content_consumed = True  # so that closing it keeps the connection
    finally:
        response.close()


# A connection's answers are read by the end of the call that is made on it. A proxy answers already while
# connecting.


class _Http(HTTPConnection):
    def connect(self) -> None:
        self.response_class = _answer_of_this_call()
        super().connect()

    def getresponse(self) -> Any:
        self.response_class = _answer_of_this_call()
        return super().getresponse()


class _Https(_Http, HTTPSConnection):
    """The same over TLS."""


def _answer_of_this_call() -> Any:
    return partial(TimedAnswer, until=_this_call.until)


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


def _read_in_time(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
