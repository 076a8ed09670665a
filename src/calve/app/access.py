"""Who is who: tokens are made, listed and revoked here, and a token or a session becomes a `Caller`.

The store has only SHA-256 of a token or of a session's secret: their 256 bits are random, so nothing slower is needed.
Comparisons take the same time for every wrong one. A session is never more than its token: it has at most its role, and
ends with it. So a browser keeps no token, and a copy of the store signs nobody in.
"""

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from calve.app.token_file import LOCAL, make_token, token_id
from calve.app.view import Json, time_json
from calve.control.registry import Registry
from calve.model.access import AccessToken, Asked, Caller, Role
from calve.model.errors import UsageError
from calve.model.refusals import no_such_token
from calve.model.seen import WebSession

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
LOCAL_READER = "local-reader"  # who reads on the server's own host without a token
_RESERVED = frozenset({LOCAL, LOCAL_READER})
_REMEMBER_SECONDS = 3600.0
_KEEP_SECONDS = 5.0
_REMEMBER_SESSION_SECONDS = 300.0
_KEPT = 1000
SESSION_SECONDS = 12 * 3600.0
_NOBODY = hashlib.sha256(b"").hexdigest()


def token_new(
    registry: Registry, role: Role, asked: Asked, *, now: datetime, name: str = "", expires: timedelta | None = None
) -> Json:  # fmt: skip
    """The token's document with its text, which is nowhere else and is never shown again."""
    made, text = make_token()
    name = name or f"{role.value}-{made}"
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UsageError(
            f"invalid name {name!r}",
            code="token_name",
            hint="use up to 64 letters, digits, '.', '_', '@' and '-'",
        )
    token = AccessToken(
        id=made,
        name=name,
        role=role,
        hash=_hash(text),
        created_by=asked.who,
        expires_at=now + expires if expires else None,
    )
    # If we die here, there is a token whose text nobody has: it is listed, and can be revoked.
    registry.put_token(token, replace(asked, subject=name))
    return token_json(replace(token, created_at=now), now) | {"token": text}


def token_list(registry: Registry, now: datetime) -> list[Json]:
    return [token_json(token, now) for token in registry.tokens()]


def token_revoke(registry: Registry, names: tuple[str, ...], asked: Asked, now: datetime) -> list[Json]:
    """By name or id; all of them are known, or none is revoked."""
    known = registry.tokens()
    found: list[AccessToken] = []
    for name in dict.fromkeys(names):
        one = next((token for token in known if name in (token.name, token.id)), None)
        if one is None:
            raise no_such_token(name)
        found.append(one)
    # If we die here, some are revoked; asked again, the rest are.
    return [
        token_json(registry.revoke_token(token.id, replace(asked, subject=token.name)), now)
        for token in found
    ]


def token_json(token: AccessToken, now: datetime) -> Json:
    """Without the hash: nobody needs it."""
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "valid": token.valid(now),
        "created_at": time_json(token.created_at),
        "created_by": token.created_by,
        "expires_at": time_json(token.expires_at),
        "revoked_at": time_json(token.revoked_at),
    }


class Gatekeeper:
    """Turns the text of a token into a caller. An answer is kept for five seconds, also "nobody": so long a
    revoked token still works, and so seldom a flood of wrong ones reaches the store. May be shared by threads."""

    def __init__(
        self,
        registry: Registry,
        *,
        local_token: str = "",
        now: Callable[[], datetime],
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._local = local_token
        self._now = now
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, AccessToken | None]] = {}
        self._signed_in: dict[str, tuple[float, WebSession | None, AccessToken | None]] = {}

    def caller(
        self, text: str, *, origin: str = "", loopback: bool = False, ask: bool = True
    ) -> Caller | None:
        """Who has this token; None for a wrong, revoked or expired one. The host's own token counts only if
        the peer is on this host. Without `ask` the store is not asked: LookupError if it would have to be."""
        given = token_id(text)
        if given == LOCAL:
            same = hmac.compare_digest(_hash(text), _hash(self._local))
            return (
                Caller(name=LOCAL, role=Role.ADMIN, origin=origin)
                if same and self._local and loopback
                else None
            )
        token = self._found(text, given or "", ask)
        return Caller(name=token.name, role=token.role, origin=origin) if token else None

    def remembers(self, text: str) -> bool:
        """Whether this token was right when the store last said so, within an hour, or is the host's own. It may not be
        right any more: for what must be answered while the store is down and changes nothing, and to tell those who
        guess from those who do not."""
        if token_id(text) == LOCAL:
            return hmac.compare_digest(_hash(text), _hash(self._local))
        with self._lock:
            until, token = self._known.get(_hash(text), (0.0, None))
        return token is not None and self._seconds() < until + _REMEMBER_SECONDS

    def _found(self, text: str, given: str, ask: bool) -> AccessToken | None:
        key = _hash(text)
        with self._lock:
            until, token = self._known.get(key, (0.0, None))
        if self._seconds() < until:
            return token
        if not ask:
            raise LookupError(given)
        token = self._registry.token(given) if given else None
        same = hmac.compare_digest(key, token.hash if token else _NOBODY)
        if token is not None and not (same and token.valid(self._now())):
            token = None
        with self._lock:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = (self._seconds() + _KEEP_SECONDS, token)
        return token

    def sign_in(self, text: str, role: Role, *, loopback: bool = False) -> tuple[str, Caller] | None:
        """The secret of a new session, and whose it is; None for a wrong token. Its role is at most the token's."""
        caller = self.caller(text, loopback=loopback)
        if caller is None:
            return None
        secret = secrets.token_urlsafe(32)
        least = role if caller.role.may(role) else caller.role
        session = WebSession(
            hash=_hash(secret), token_id=token_id(text) or "", token_hash=_hash(text), role=least
        )
        # If we die here, there is a session whose secret nobody has; it ends by itself.
        self._registry.put_session(session, seconds=SESSION_SECONDS)
        return secret, replace(caller, role=least)

    def signed_in(
        self, secret: str, *, origin: str = "", loopback: bool = False, ask: bool = True
    ) -> Caller | None:
        """Whose session this is; None once it has ended, or its token has. `ask` as for `caller`."""
        key = _hash(secret)
        session, token = self._session(key, ask)
        if session is None:
            return None
        if session.token_id == LOCAL:
            same = hmac.compare_digest(session.token_hash, _hash(self._local))
            valid = same and bool(self._local) and loopback
            return Caller(name=LOCAL, role=session.role, origin=origin) if valid else None
        if token is None:
            return None
        role = session.role if token.role.may(session.role) else token.role
        return Caller(name=token.name, role=role, origin=origin)

    def remembers_session(self, secret: str) -> bool:
        """As `remembers`, and within five minutes."""
        with self._lock:
            until, session, token = self._signed_in.get(_hash(secret), (0.0, None, None))
        known = session is not None and (token is not None or session.token_id == LOCAL)
        return known and self._seconds() < until + _REMEMBER_SESSION_SECONDS

    def sign_out(self, secret: str) -> None:
        key = _hash(secret)
        # If we die here, the session may go on until it ends by itself.
        self._registry.forget_session(key)
        with self._lock:
            self._signed_in.pop(key, None)

    def _session(self, key: str, ask: bool) -> tuple[WebSession | None, AccessToken | None]:
        """The session, and its token if that is still the one it was made with."""
        with self._lock:
            until, session, token = self._signed_in.get(key, (0.0, None, None))
        if self._seconds() < until:
            return session, token
        if not ask:
            raise LookupError(key)
        session = self._registry.session(key)
        token = self._registry.token(session.token_id) if session and session.token_id != LOCAL else None
        if session is not None and token is not None:
            same = hmac.compare_digest(session.token_hash, token.hash)
            token = token if same and token.valid(self._now()) else None
        with self._lock:
            while len(self._signed_in) >= _KEPT:
                del self._signed_in[next(iter(self._signed_in))]
            self._signed_in[key] = (self._seconds() + _KEEP_SECONDS, session, token)
        return session, token


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
