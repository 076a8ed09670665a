"""Who asks: the token of a request, in any of the headers that clients use, or else the session of its cookie, becomes a
`Caller`.

A wrong token is refused; it never becomes the reader without a token. An address that sent many wrong ones waits,
unless its token was right before. Tokens in URLs end up in logs of others, so they are taken only where the
configuration says so, and only at routes that old clients call.
"""

import base64
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl

from calve.app.access import LOCAL_READER, Gatekeeper
from calve.app.token_file import LOCAL, token_id
from calve.http.guard import Rates
from calve.http.problem import HttpError, too_many
from calve.model.access import Caller, Role

_FOR_OLD_CLIENTS = ("/backup/", "/v1/tables/", "/v1/actions")
IN_URL = ("user", "pass", "password")  # the names of a login in an address
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="calve", Basic realm="calve"'}


class Identities:
    """`open_reading`: on this host, reading needs no token. `cookie`: the name of a session's; "" for none."""

    def __init__(
        self,
        gate: Gatekeeper,
        *,
        open_reading: bool,
        login_in_urls: bool = False,
        cookie: str = "",
        wrong_tokens_per_minute: int = 10,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._wrong = Rates(wrong_tokens_per_minute / 60, now, burst=wrong_tokens_per_minute)
        self._cookie = cookie
        self._open_reading = open_reading
        self._login_in_urls = login_in_urls

    def caller(
        self,
        headers: Mapping[str, str],
        peer: str,
        *,
        path: str = "",
        query: str = "",
        method: str = "GET",
        ask: bool = True,
    ) -> Caller:
        """Asks the store, unless it knows the token; LookupError instead without `ask`. HttpError 401 for nobody."""
        text = given_token(headers) or self._in_url(path, query)
        local = is_loopback(peer)
        if not text and (secret := given_cookie(headers, self._cookie)):
            return self._of_session(secret, headers, peer, method, ask=ask)
        if not text:
            if self._open_reading and local:
                return Caller(name=LOCAL_READER, role=Role.VIEWER, origin=peer)
            raise HttpError(
                401,
                "a token is needed",
                code="token_missing",
                hint="send one as Authorization: Bearer TOKEN; calve token new makes one",
                headers=_CHALLENGE,
            )
        if (wait := self._wrong.wait_for(peer, take=False)) and not self._gate.remembers(text):
            raise too_many("wrong tokens", wait, hint="wait; then send a token that calve token list shows")
        # Behind a proxy everybody seems to be on this host, so its own token does not count there.
        found = self._gate.caller(text, origin=peer, loopback=local and self._open_reading, ask=ask)
        if found is None:
            self._wrong.wait_for(peer)
        if found is None and token_id(text) == LOCAL and not self._open_reading:
            raise HttpError(
                401,
                "the token of this host does not count: the server is behind a proxy, or other hosts reach it",
                code="token_wrong",
                hint="calve token new --role operator; give it with --token-file",
                headers=_CHALLENGE,
            )
        if found is None:
            raise HttpError(
                401,
                "the token is wrong, revoked or expired",
                code="token_wrong",
                hint="calve token list shows which there are",
                headers=_CHALLENGE,
            )
        return found

    def _of_session(
        self, secret: str, headers: Mapping[str, str], peer: str, method: str, *, ask: bool
    ) -> Caller:
        if method not in ("GET", "HEAD") and "origin" not in headers:
            # A browser sends cookies by itself, so a change by cookie must say which page asks for it.
            raise HttpError(
                403,
                "no page asked for this",
                code="origin",
                hint="send Origin, or a token in place of a cookie",
            )
        own = is_loopback(peer) and self._open_reading
        found = self._gate.signed_in(secret, origin=peer, loopback=own, ask=ask)
        if found is None:
            raise HttpError(401, "the session has ended", code="session_ended", hint="sign in again")
        return found

    def remembers(self, headers: Mapping[str, str]) -> bool:
        """Whether who asks was known before the store went down."""
        text = given_token(headers)
        secret = "" if text else given_cookie(headers, self._cookie)
        return self._gate.remembers(text) or bool(secret and self._gate.remembers_session(secret))

    def _in_url(self, path: str, query: str) -> str:
        """The password of `?user=&pass=` or `?user=&password=`; "" for none."""
        if not path.startswith(_FOR_OLD_CLIENTS):
            return ""
        given = dict(parse_qsl(query))
        text = given.get("pass") or given.get("password") or ""
        if text and not self._login_in_urls:
            raise HttpError(
                400,
                "the address has a token in it",
                code="token_in_url",
                hint="send it as a header, or set login_in_urls in [serve]; make a new one, as logs may have this one",
            )
        return text


def given_token(headers: Mapping[str, str]) -> str:
    """From `Authorization` (Bearer, or the password of Basic) or ClickHouse's own headers; "" for none."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "":
            return headers.get("x-clickhouse-key", "")
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                return base64.b64decode(rest, validate=True).decode().partition(":")[2]
            except ValueError:  # not base64, not ASCII, or not UTF-8 inside
                pass
    raise HttpError(
        401,
        "the Authorization header cannot be read",
        code="token_wrong",
        hint="send Authorization: Bearer TOKEN",
        headers=_CHALLENGE,
    )


def given_cookie(headers: Mapping[str, str], name: str) -> str:
    """Its value; "" for none. Of two the first: another program on this host may have set one for a wider path."""
    for part in headers.get("cookie", "").split(";") if name else ():
        found, _, value = part.strip().partition("=")
        if found == name:
            return value
    return ""


def is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
