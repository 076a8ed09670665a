"""What a request must be before anybody looks at what it asks: from an address and a page that may ask, of a
size and at a rate that can be served, over this host's name.

Outermost of the program, and plain ASGI: whatever goes wrong inside, an answer leaves here with its id, its
headers and its line in the log. The line has the path, never the query: that may hold a secret.
"""

import asyncio
import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from calve.http.problem import HttpError, defect, problem, too_many
from calve.model.errors import CalveError
from calve.wire import logs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Told = Callable[[Scope, CalveError], Response | None]  # a refusal as a page; None for who does not want one

BURST = 4  # seconds of the rate that a peer may use at once
PEERS = 4096  # whose rate is remembered
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_log = logging.getLogger("calve.http")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """`hosts`: the names under which this server is called, without a port."""

    hosts: frozenset[str]
    root_path: str = ""
    behind_proxy: bool = False
    request_kb: int = 1024
    requests_per_second: int = 50
    body_seconds: float = 20.0


class Guard:
    """`answered` is called for every request: route, method, status, seconds. Who refuses may do so in pages: `told`."""

    def __init__(
        self,
        app: App,
        rules: Rules,
        *,
        now: Callable[[], float] = time.monotonic,
        answered: Callable[[str, str, int, float], None] = lambda *_: None,
        told: Sequence[Told] = (),
    ) -> None:
        self._app = app
        self._rules = rules
        self._answered = answered
        self._told = told
        self._rates = Rates(rules.requests_per_second, now, burst=BURST * rules.requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        with logs.bound(request=request_id):
            await self._guarded(scope, receive, send, request_id)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        answer = _Answer(send, request_id)
        started = time.monotonic()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        try:
            self._enter(scope)
            headers = _headers(scope)
            scope["headers_by_name"] = headers
            state["peer"] = self._peer(scope, headers)
            refused = self._refusal(scope, headers, state["peer"])
            # Read in any case: closing on what is still on its way would take the answer with it.
            body = await self._body(scope, headers, receive)
            if refused:
                raise refused
            await self._app(scope, _replayed(body, receive), answer)
        except CalveError as error:
            await answer.instead(scope, receive, self._refused(scope, error) or problem(error, request_id))
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a defect; the peer is told where to look
            _log.exception("request %s failed", request_id)
            wrong = HttpError(500, "this is a bug in Calve", code="internal", hint="please report it")
            await answer.instead(scope, receive, self._refused(scope, wrong) or defect(request_id))
        finally:
            seconds = time.monotonic() - started
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._answered(_route(scope), method, answer.status, seconds)
            _log.info(
                "%s %s %s %d ms from %s by %s, request %s",
                scope["method"],
                _path(scope),
                answer.status or "gone",
                round(seconds * 1000),
                state.get("peer", "-"),
                state.get("who", "-"),
                request_id,
            )

    def _refused(self, scope: Scope, error: CalveError) -> Response | None:
        return next((page for told in self._told if (page := told(scope, error))), None)

    def _peer(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """The address that asks. Behind a proxy, what the proxy itself added: the last one."""
        own = scope["client"][0] if scope.get("client") else ""
        if self._rules.behind_proxy:
            return headers.get("x-forwarded-for", own).rpartition(",")[2].strip()[:64] or own
        if any(name == "forwarded" or name.startswith("x-forwarded-") for name in headers):
            raise HttpError(
                403,
                "the request came through a proxy, and this server does not expect one",
                code="proxy_not_declared",
                hint="start it with --behind-proxy",
            )
        return str(own)

    def _refusal(self, scope: Scope, headers: Mapping[str, str], peer: str) -> CalveError | None:
        try:
            self._check(scope, headers, peer)
        except CalveError as error:
            return error
        return None

    def _check(self, scope: Scope, headers: Mapping[str, str], peer: str) -> None:
        # Files of the program cost nothing, and a first page needs several.
        wait = 0.0 if scope["path"].startswith("/assets/") else self._rates.wait_for(peer)
        if wait:
            raise too_many("requests", wait, hint="ask less often")
        host = _name_of(headers.get("host", ""))
        if host not in self._rules.hosts:
            raise HttpError(
                421,
                "this server does not go by that name",
                code="host",
                hint="name it with --allow-host, or in [serve] hosts",
            )
        _refuse_other_pages(scope, headers, behind_proxy=self._rules.behind_proxy)
        if scope["method"] not in _METHODS:
            raise HttpError(
                405,
                f"{scope['method'][:20]} is not served",
                code="method",
                headers={"Allow": ", ".join(_METHODS)},
            )
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError(415, "compressed bodies are not read", code="encoding", hint="send it as it is")
        charset = re.search(r"charset=[\"']?([\w-]+)", headers.get("content-type", ""), re.IGNORECASE)
        if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
            raise HttpError(415, "only UTF-8 is read", code="encoding", hint="send UTF-8")

    def _enter(self, scope: Scope) -> None:
        """Under the root path and without it: some proxies take it off, others do not."""
        root, path = self._rules.root_path, scope["path"]
        if root and (path == root or path.startswith(root + "/")):
            scope["path"] = path[len(root) :] or "/"
            scope["raw_path"] = scope["path"].encode()
            scope["state"]["bare_root"] = path == root  # links of a page would lead out of it

    async def _body(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> bytes:
        most = self._rules.request_kb * 1024
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise _too_large(most)
        read = bytearray()
        try:
            async with asyncio.timeout(self._rules.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise HttpError(400, "the peer has gone", code="peer_gone")
                    read += message.get("body", b"")
                    if len(read) > most:
                        raise _too_large(most)
                    if not message.get("more_body"):
                        return bytes(read)
        except TimeoutError:
            raise HttpError(408, "the body did not arrive in time", code="slow_body") from None


class _Answer:
    """Adds the headers that every answer has; knows whether one was begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message["headers"]}
            for name, value in {**HEADERS, "X-Request-Id": self._id}.items():
                if name.lower().encode() not in given:
                    message["headers"].append((name.lower().encode(), value.encode()))
        await self._send(message)

    async def instead(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Nothing, if an answer has begun: the connection then ends in the middle, which a client sees."""
        if not self.status:
            response.headers["Connection"] = "close"  # the rest of a body may still be on its way
            await response(scope, receive, self)


class Rates:
    """A bucket for each peer: so many a second, and a burst. May be shared by threads."""

    def __init__(self, per_second: float, now: Callable[[], float], *, burst: float) -> None:
        self._rate = per_second
        self._burst = burst
        self._now = now
        self._lock = threading.Lock()
        self._peers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_for(self, peer: str, *, take: bool = True) -> float:
        """Seconds until this peer has one left; 0 if it has, and it is taken."""
        with self._lock:
            now = self._now()
            left, at = self._peers.pop(peer, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._rate)
            while len(self._peers) >= PEERS:
                self._peers.popitem(last=False)
            self._peers[peer] = (left - 1 if take and left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._rate


def _headers(scope: Scope) -> dict[str, str]:
    """By lower-case name. One that decides who asks, or for whom, must not be there twice."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        text = name.decode("latin-1").lower()
        if text in found and text in (
            "host",
            "authorization",
            "origin",
            "content-length",
            "x-clickhouse-key",
        ):
            raise HttpError(400, f"the header {text} is given twice", code="header_twice")
        between = "; " if text == "cookie" else ", "  # HTTP/2 may split cookies
        found[text] = (
            f"{found[text]}{between}{value.decode('latin-1')}" if text in found else value.decode("latin-1")
        )
    if "content-length" in found and "transfer-encoding" in found:
        # Two ends that disagree about which counts read two different requests.
        raise HttpError(400, "the length of the body is given twice", code="header_twice")
    return found


def _name_of(host: str) -> str:
    """Without the port; `[::1]:8180` is `::1`."""
    found = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([^\[\]:/\s]+)(?::\d+)?", host.strip())
    return (found[1] or found[2]).lower().rstrip(".") if found else ""


def _refuse_other_pages(scope: Scope, headers: Mapping[str, str], *, behind_proxy: bool) -> None:
    """A browser says which page asks; only our own may. Other clients say nothing."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    scheme = headers.get("x-forwarded-proto", scope["scheme"]) if behind_proxy else scope["scheme"]
    own = f"{scheme}://{headers.get('host', '')}".lower()
    # Another port of this host is "same-site", and not ours. A link that a person follows is a plain GET, which
    # changes nothing, and its answer goes to the person, not to the page that has the link.
    followed = (
        site in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
        and scope["method"] == "GET"
    )
    if (origin is not None and origin.lower() != own) or not (site in ("same-origin", "none") or followed):
        raise HttpError(
            403, "another web page asked for this", code="origin", hint="open the server's own address"
        )


def _too_large(most: int) -> HttpError:
    return HttpError(413, f"the body is larger than {most // 1024} KB", code="too_large", hint="send less")


def _path(scope: Scope) -> str:
    """For the log: one line, of a bounded length."""
    return re.sub(r"[^\x21-\x7e]", "?", scope["path"])[:200]


def _route(scope: Scope) -> str:
    """The template of the path, of which there are few; "other" for what no route has."""
    route = scope.get("route")
    if route is not None:
        return str(getattr(route, "path", "other"))
    found = "endpoint" in scope and not scope.get("path_params")  # a plain route: its path is its template
    return str(scope["path"]) if found else "other"


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read; then what the peer does."""
    given = False

    async def replay() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
