"""Signing in and out. A cookie is a session of the store, never a token: it ends after twelve hours, with its token, and
has at most the role that was chosen.

The form must come from our own page, so nobody is signed in as somebody else by another site. Every wrong token gets
the same answer, and a peer gets few of them a minute.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from calve.app.access import SESSION_SECONDS
from calve.http.identity import given_cookie, is_loopback
from calve.http.problem import HttpError
from calve.model.access import Role
from calve.web.fields import sent
from calve.web.frame import Frame
from calve.web.links import is_own
from calve.web.pages import PATHS

FAILURES = 5
FAILURE_SECONDS = 60.0
_PEERS = 4096
_PLACES = {**PATHS, "confirm": "/confirm/{action}", "asked": "/asked/{action}/{key}"}


class Sessions:
    def __init__(self, frame: Frame, *, now: Callable[[], float] = time.monotonic) -> None:
        self._frame = frame
        self._shared = frame.shared
        self._failures = _Failures(now)

    def routes(self) -> list[BaseRoute]:
        handler = self._frame.handler
        return [
            Route("/sign-in", handler(self._page), methods=["GET"]),
            Route("/sign-in", handler(self._sign_in), methods=["POST"]),
            Route("/sign-out", handler(self._sign_out), methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        ended = False
        try:
            caller = await self._frame.caller(request)
        except HttpError as error:
            caller, ended = None, error.code == "session_ended"
        made = await self._form(
            request, next=_place(request.query_params.get("next", "")), caller=caller, ended=ended
        )
        if ended:
            made.headers.append("set-cookie", self._cookie(request, "", 0))
        return made

    async def _sign_in(self, request: Request) -> Response:
        self._refuse_others(request)
        given = dict(await sent(request))
        after, peer = _place(given.get("next", "")), request.state.peer
        if wait := self._failures.wait_for(peer):
            error = HttpError(
                429, "too many wrong tokens", code="too_many_requests", hint=f"wait {round(wait)} seconds",
                headers={"Retry-After": str(max(1, round(wait)))},
            )  # fmt: skip
            return await self._form(request, next=after, wrong=error, status=429)
        chosen = given.get("role", "")
        role = Role(chosen) if chosen in list(Role) else Role.OPERATOR
        own = is_loopback(peer) and self._shared.open_reading
        text = given.get("secret", "").strip()
        # If we die here, there is a session whose secret nobody has; it ends by itself.
        found = await self._shared.service.stored(
            partial(self._shared.gate.sign_in, text, role, loopback=own)
        )
        if found is None:
            self._failures.add(peer)
            error = HttpError(
                401, "the token is wrong, revoked or expired", code="token_wrong",
                hint="calve token list shows which there are",
            )  # fmt: skip
            return await self._form(request, next=after, wrong=error, status=401)
        secret, caller = found
        request.state.who = caller.name
        await self._end(request)
        made = self._frame.go(request, after)
        made.headers.append("set-cookie", self._cookie(request, secret, int(SESSION_SECONDS)))
        return made

    async def _sign_out(self, request: Request) -> Response:
        self._refuse_others(request)
        given = dict(await sent(request))
        if self._frame.secret(request) and not self._frame.is_form_token(
            request, "sign-out", given.get("token", "")
        ):
            raise HttpError(
                403, "the form belongs to another session", code="form_token", hint="open the page again"
            )
        await self._end(request)
        made = self._frame.go(request, "" if self._shared.open_reading else "sign-in")
        made.headers.append("set-cookie", self._cookie(request, "", 0))
        return made

    async def _end(self, request: Request) -> None:
        """The session that the browser had, if any: nobody will use it again."""
        secret = given_cookie(request.scope["headers_by_name"], self._shared.cookie)
        if secret:
            await self._shared.service.stored(partial(self._shared.gate.sign_out, secret))

    async def _form(
        self,
        request: Request,
        *,
        next: str,
        wrong: HttpError | None = None,
        status: int = 200,
        **context: object,
    ) -> Response:
        return await self._frame.page(
            request, "sign_in.html", status=status, headers=wrong.headers if wrong else None, next=next,
            error={**wrong.info.to_json(), "status": status} if wrong else None,
            roles=[role.value for role in Role], **{"caller": None, "ended": False, **context},  # type: ignore[arg-type]
        )  # fmt: skip

    def _refuse_others(self, request: Request) -> None:
        """The guard compares an Origin that is there; here it must be there."""
        if "origin" not in request.scope["headers_by_name"]:
            raise HttpError(
                403, "no page asked for this", code="origin", hint="open the server's own address"
            )

    def _cookie(self, request: Request, secret: str, seconds: int) -> str:
        headers = request.scope["headers_by_name"]
        proxied = headers.get("x-forwarded-proto", "") if self._shared.behind_proxy else ""
        tls = (proxied or request.scope["scheme"]).lower() == "https"
        return (
            f"{self._shared.cookie}={secret}; HttpOnly; SameSite=Strict; Path={self._shared.root_path}/; Max-Age={seconds}"
            f"{'; Secure' if tls else ''}"
        )


class _Failures:
    """Wrong tokens of each peer, by time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._peers: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_for(self, peer: str) -> float:
        """Seconds until this peer may try again; 0 if it may."""
        times = self._peers.get(peer, deque())
        while times and times[0] <= self._now() - FAILURE_SECONDS:
            times.popleft()
        return times[0] + FAILURE_SECONDS - self._now() if len(times) >= FAILURES else 0.0

    def add(self, peer: str) -> None:
        self._peers.setdefault(peer, deque(maxlen=FAILURES)).append(self._now())
        self._peers.move_to_end(peer)
        while len(self._peers) > _PEERS:
            self._peers.popitem(last=False)


def _place(text: str) -> str:
    """Where to go on: a page of ours, else the first one."""
    return text if is_own(text, _PLACES) else ""
