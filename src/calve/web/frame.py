"""What all pages have in common: who asks, what a template is given, headers, and errors that are pages.

Nothing in a page comes from elsewhere or is a script or a style inside of it: the policy forbids both. A page is not
stored: the back button of one who signed out shows nothing.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from calve import __version__
from calve.app.access import LOCAL_READER
from calve.app.commands import command
from calve.http.identity import given_cookie, given_token
from calve.http.problem import RETRY_SECONDS, HttpError, status_of
from calve.http.server import Shared
from calve.model.access import Caller
from calve.model.errors import CalveError, TemporaryError
from calve.web.assets import PACKED, Assets, packed, takes_gzip
from calve.web.documents import is_store_down
from calve.web.links import Links, target, texts
from calve.web.prints import KEY, NAME, Prints, filled, token_blank
from calve.web.template import Templates
from calve.web.words import cut

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types calve"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser's own forms say `Origin: null`, and are refused
    "X-Calve-Version": __version__,
}
TITLES = {
    400: "Invalid request",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Timed out",
    409: "Not done",
    413: "Too large",
    421: "Wrong host name",
    429: "Too many requests",
    500: "A bug in Calve",
    502: "Refused by another service",
    503: "Not now",
}
_FOR_PROGRAMS = ("/v1/", "/metrics", "/healthz", "/readyz")
_REFUSALS = 64
_REQUEST = "{request}"
NAME_LENGTH = 24  # of who is signed in, as the frame shows it
NAVIGATION = ("attention", "tables", "policies", "page", "vault", "system")
Handler = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger("calve.web")


@dataclass(frozen=True, kw_only=True)
class Who:
    """For templates."""

    name: str
    role: str
    signed_in: bool


NOBODY = Who(name="", role="", signed_in=False)


class Frame:
    """`paths` and `titles`: of pages, by name. `may` and `needs`: the right to an action, and the role for it; set by
    the forms."""

    def __init__(self, shared: Shared, *, paths: Mapping[str, str], titles: Mapping[str, str]) -> None:
        self.shared = shared
        self.paths = paths
        self.assets = Assets()
        self.may: Callable[[Caller, str, Mapping[str, Any]], bool] = lambda *_: False
        self.needs: Callable[[str, Mapping[str, Any]], str] = lambda *_: ""
        self._titles = titles
        self._templates = Templates()
        self._refusals: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        shared.told.append(self.refusal)

    async def caller(self, request: Request) -> Caller:
        return await self.shared.service.caller(request)

    async def known(self, request: Request) -> Caller:
        """As `caller`, for documents that a browser may ask for: it must not ask for a password."""
        try:
            return await self.caller(request)
        except HttpError as error:
            error.headers.pop("WWW-Authenticate", None)
            raise

    async def visitor(self, request: Request) -> Caller | Response | None:
        """Who opens a page; or where he is sent to say so; or None for one who was known before the store went down."""
        try:
            return await self.caller(request)
        except HttpError as error:
            if error.status != 401:
                raise
        except TemporaryError:
            if not self.shared.service.remembers(request):
                raise
            return None
        headers = request.scope["headers_by_name"]
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if elsewhere and not given_cookie(headers, self.shared.cookie):
            # A link from elsewhere comes without the cookie, which is strict. What this page loads again has it.
            return await self.page(request, "again.html", refresh=0)
        query = f"?{request.url.query}" if request.url.query else ""
        return self.go(request, target("sign-in", {"next": f"{request.scope['path'].lstrip('/')}{query}"}))

    def secret(self, request: Request) -> str:
        """Of the session that the request comes with; "" for a token in a header, or for none."""
        headers = request.scope["headers_by_name"]
        return "" if given_token(headers) else given_cookie(headers, self.shared.cookie)

    def who(self, request: Request, caller: Caller) -> Who:
        return Who(name=caller.name, role=caller.role.value, signed_in=bool(self.secret(request)))

    def links(self, request: Request) -> Links:
        return Links(request.scope["path"], self.paths)

    def form_token(self, request: Request, action: str) -> str:
        """New in each page, and good on every server: it hangs on the session alone."""
        nonce = secrets.token_urlsafe(12)
        return f"{nonce}.{_sealed(self.secret(request), nonce, action)}"

    def is_form_token(self, request: Request, action: str, text: str) -> bool:
        nonce, _, seal = text.partition(".")
        return hmac.compare_digest(seal.encode(), _sealed(self.secret(request), nonce, action).encode())

    async def page(
        self,
        request: Request,
        template: str,
        *,
        caller: Caller | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        store_seconds: float = 0.0,
        prints: Prints | None = None,
        **context: Any,
    ) -> Response:
        """`prints`: of the document that it shows, if all else that it shows follows from the address and the role."""
        links, who = self.links(request), self.who(request, caller) if caller else NOBODY
        given = {
            "page": {"name": "", "title": "", "path": request.scope["path"]},
            "doc": {},
            "given": {},
            "address": "",
            "wants": "{}",
            "now": None,
            "stale": None,
            "refresh": None,
            "part": request.headers.get("x-calve-part") == "main",
            "who": replace(who, name=who.name if who.name in ("", LOCAL_READER) else NAME),
            "open_reading": self.shared.open_reading,
            "navigation": [(name, self._titles[name]) for name in NAVIGATION if name in self.paths],
            "link": links.to,
            "goto": links.goto,
            "at": links.at,
            "asset": lambda name: links.at(self.assets.target(name)),
            "may": lambda action, **arguments: caller is not None and self.may(caller, action, arguments),
            "role_for": lambda action, **arguments: self.needs(action, arguments),
            "fields": fields,
            "form_token": token_blank,
            "form_key": lambda: KEY,
            "form_url": lambda action: links.at(f"do/{action}"),
            "confirm_url": lambda action, **arguments: links.at(target(f"confirm/{action}", arguments)),
            "sign_in_url": lambda back="": links.at(target("sign-in", {"next": back})),
            "command": command,
            "version": __version__,
        } | context
        started = time.perf_counter()

        def make() -> bytes:
            return self._templates.render(template, **given)

        seen = (template, request.scope["path"], request.url.query, given["part"], given["who"])
        page = await (prints or Prints()).get(seen, make)
        packs = takes_gzip(request)
        data = await asyncio.to_thread(self._filled, request, page, who, packs)
        seconds = time.perf_counter() - started
        timing = f"store;dur={store_seconds * 1000:.1f}, page;dur={seconds * 1000:.1f}"
        return Response(
            data,
            status_code=status,
            media_type="text/html; charset=utf-8",
            headers={**HEADERS, **(PACKED if packs else {}), "Server-Timing": timing, **(headers or {})},
        )

    def _filled(self, request: Request, page: bytes, who: Who, packs: bool) -> bytes:
        data = filled(
            page,
            name=cut(who.name, NAME_LENGTH),
            key=form_key,
            token=lambda action: self.form_token(request, action),
        )
        return packed(data) if packs else data

    def go(self, request: Request, below_root: str, *, status: int = 303) -> Response:
        """Relative, as every URL."""
        made = RedirectResponse("", status_code=status)
        made.headers["location"] = self.links(request).at(below_root)
        return made

    def handler(self, answer: Handler) -> Handler:
        """Errors as pages, with the status that the API gives them."""

        async def handled(request: Request) -> Response:
            try:
                return await answer(request)
            except CalveError as error:
                return await self.error(request, error)
            except Exception:  # noqa: BLE001 - a defect; the person is told where to look
                request_id = request.state.request_id
                _log.exception("request %s failed", request_id)
                wrong = HttpError(500, "This is a bug in Calve", code="internal", hint="please report it")
                # It may be one of what all pages are made with.
                return self.refusal(request.scope, wrong) or await self.error(request, wrong)

        return handled

    async def error(self, request: Request, error: CalveError, **context: Any) -> Response:
        status, headers = status_of(error), _told_headers(error)
        path = request.scope["path"].lstrip("/")
        query = f"?{request.url.query}" if request.url.query else ""
        return await self.page(
            request,
            context.pop("template", "error.html"),
            caller=context.pop("caller", None),
            status=status,
            headers=headers,
            error=_told(error, request.state.request_id),
            refresh=RETRY_SECONDS if is_store_down(error) and request.method == "GET" else None,
            **{"address": f"{path}{query}" if request.method == "GET" else "", **context},
        )

    def refusal(self, scope: Mapping[str, Any], error: CalveError) -> Response | None:
        """What the guard refuses, as a page for a browser: without anything that asks the server again, since that may be
        refused too. Rendered once for each kind of refusal: many of them must stay cheap."""
        wants = scope.get("headers_by_name", {}).get("accept", "")
        if "text/html" not in wants or scope["path"].startswith(_FOR_PROGRAMS):
            return None
        status, links = status_of(error), Links(scope["path"], self.paths)
        key = (status, error.code, error.message, error.hint, links.at(""))
        if key not in self._refusals:
            while len(self._refusals) >= _REFUSALS:
                self._refusals.popitem(last=False)
            self._refusals[key] = self._templates.render(
                "refused.html", error=_told(error, _REQUEST), again=scope["method"] == "GET" and status != 421,
                home=links.at("") if status != 421 else "", style=links.at(self.assets.target("calve.css")),
            )  # fmt: skip
        request_id = scope["state"]["request_id"]
        return Response(
            self._refusals[key].replace(_REQUEST.encode(), request_id.encode()),
            status_code=status,
            media_type="text/html; charset=utf-8",
            headers={**HEADERS, **_told_headers(error)},
        )


def _told(error: CalveError, request_id: str) -> dict[str, Any]:
    status = status_of(error)
    title = TITLES.get(status, "That did not work")
    return {**error.info.to_json(), "status": status, "title": title, "request_id": request_id}


def _told_headers(error: CalveError) -> dict[str, str]:
    headers = dict(error.headers) if isinstance(error, HttpError) else {}
    headers.pop("WWW-Authenticate", None)  # a browser would ask for a password
    if status_of(error) in (429, 503):
        headers.setdefault("Retry-After", str(getattr(error, "retry_seconds", RETRY_SECONDS)))
    return headers


def fields(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """As a form sends them."""
    return [(name, text) for name, value in arguments.items() for text in texts(value)]


def form_key() -> str:
    """The Idempotency-Key of a form: made with the page, so sending it twice does it once."""
    return secrets.token_urlsafe(16)


def _sealed(secret: str, nonce: str, action: str) -> str:
    text = f"calve-form\0{nonce}\0{action}"
    return hmac.new(
        secret.encode("utf-8", "replace"), text.encode("utf-8", "replace"), hashlib.sha256
    ).hexdigest()
