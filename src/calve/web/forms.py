"""What buttons do: `POST /do/ACTION` becomes a verb with its arguments, and then a redirect, so no reload repeats it.

It decides no right: that is the desk's. A form carries a token of its session and action, and an idempotency key that
was made with the page: sent twice, from two tabs or to two servers, it is done once. What asks outside is not waited
for: `/asked/ACTION/KEY` says what became of it, also on another server, and starts nothing.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from calve.app.commands import command
from calve.app.pages.sightings import pair
from calve.app.support import zipped
from calve.app.verbs.roles import SUBMITS, VERBS, Reach
from calve.app.view import Json
from calve.http.errands import Pending
from calve.http.problem import HttpError
from calve.model.access import Caller, Role
from calve.model.errors import CalveError, NotFoundError, Outcome, RefusedError, TemporaryError, UsageError
from calve.web.actions import ACTIONS, Ask, FormAction, consequence
from calve.web.fields import parsed, refuse_tokens, sent
from calve.web.frame import Frame, fields, form_key
from calve.web.links import LONGEST, is_own, target, texts
from calve.web.pages import PATHS
from calve.web.plans import again

_OWN = ("token", "key", "back", "typed")  # fields that are not the verb's
_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")
_BUNDLES = 8  # of some hundred KB
_KEPT = 100  # of at most `request_kb` each
Given = Mapping[str, Any]


class Forms:
    def __init__(self, frame: Frame, *, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when something was done."""
        self._frame = frame
        self._changed = changed
        self._service = frame.shared.service
        self._long: OrderedDict[str, Json] = OrderedDict()  # arguments that no address has room for
        self._bundles: OrderedDict[str, bytes] = (
            OrderedDict()
        )  # an errand's answer is gone before it is downloaded
        frame.may, frame.needs = self.may, self.needs

    def may(self, caller: Caller, name: str, arguments: Given) -> bool:
        """For what is shown; the desk decides when it is done."""
        return caller.role.may(_needed(name, arguments))

    def needs(self, name: str, arguments: Given) -> str:
        return _needed(name, arguments).value

    def routes(self) -> list[BaseRoute]:
        handler = self._frame.handler
        return [
            Route("/do/{action}", handler(self._do), methods=["POST"]),
            Route("/confirm/{action}", handler(self._confirm), methods=["GET"]),
            Route("/asked/{action}/{key}", handler(self._asked), methods=["GET"]),
            Route("/system/support/{key}.zip", handler(self._bundle), methods=["GET"]),
        ]

    async def _do(self, request: Request) -> Response:
        name, action = _action(request)
        pairs = await sent(request)
        refuse_tokens(pairs)
        own = {key: text for key, text in pairs if key in _OWN}
        arguments = self._arguments(action, pairs)
        key, back = _key(own.get("key", "")), _back(own.get("back", ""))
        try:
            caller = await self._frame.caller(request)
        except HttpError as error:
            if error.status != 401:
                raise
            again = target(f"confirm/{name}", {**arguments, "key": key, "back": back})
            return self._frame.go(
                request, target("sign-in", {"next": again if len(again) <= LONGEST else ""})
            )
        try:
            self._refuse_forged(request, name, own.get("token", ""))
            if (wanted := action.typed(arguments)) and own.get("typed", "") != wanted:
                raise RefusedError(f"type {wanted!r} to confirm", code="not_typed", hint="nothing was done")
            return await self._done(request, caller, name, action, arguments, key, back)
        except CalveError as error:
            return await self._refused(request, caller, name, arguments, key, back, error)

    async def _done(
        self,
        request: Request,
        caller: Caller,
        name: str,
        action: FormAction,
        arguments: Json,
        key: str,
        back: str,
    ) -> Response:
        if name == "look":
            self._look(caller, arguments)
            return self._frame.go(request, back or action.to(arguments))
        if VERBS[action.verb].reach is Reach.STORE:
            answer = await self._service.change(caller, action.verb, arguments, key)
            _refuse_late(answer)
            return await self._arrived(request, caller, name, arguments, answer, back)
        if action.verb not in SUBMITS or not await self._service.replayed(
            caller, action.verb, arguments, key
        ):
            await self._service.errand(caller, action.verb, {**arguments, **action.always}, key)
        return self._frame.go(request, self._address(caller, name, arguments, key, back))

    def _look(self, caller: Caller, arguments: Json) -> None:
        """Both ends of a pair are looked at next, beside the request: the page says when it was seen."""
        self._service.desk.check(caller, "partitions", arguments)
        source, to = arguments.get("table"), arguments.get("to")
        if not source or not to:
            raise UsageError("both ends are needed", code="missing_option", hint="open the table's page")
        self._frame.shared.lookout.press("pair", pair(source, to))
        self._frame.shared.lookout.press("health", to)

    async def _asked(self, request: Request) -> Response:
        caller = await self._visitor(request)
        if isinstance(caller, Response):
            return caller
        name, action = _action(request)
        key = _key(request.path_params["key"])
        pairs = request.query_params.multi_items()
        refuse_tokens(pairs)
        kept = self._long.get(f"{caller.name}/{key}", {})
        arguments = {**kept, **self._arguments(action, pairs)}
        back = _back(request.query_params.get("back", ""))
        try:
            answer = await self._became(caller, action, arguments, key)
        except LookupError:
            return await self._form(
                request, caller, name, arguments, key=key, back=back, unknown=True, status=404
            )
        except CalveError as error:
            return await self._refused(request, caller, name, arguments, key, back, error)
        if isinstance(answer, Pending):
            subject = [str(arguments[one]) for one in ("table", "to", "name") if arguments.get(one)]
            return await self._frame.page(
                request, "asked.html", caller=caller, outcome="running", subject=subject,
                seconds=answer.seconds, refresh=1, answer=None, title=action.title,
            )  # fmt: skip
        if name == "support":
            await self._keep_bundle(key, answer)
            return await self._frame.page(
                request, "asked.html", caller=caller, outcome="bundle", subject=[], seconds=0, title=action.title,
                answer=sorted(answer), back=back or action.to(arguments), file=f"system/support/{key}.zip",
            )  # fmt: skip
        return await self._arrived(request, caller, name, arguments, answer, back)

    async def _bundle(self, request: Request) -> Response:
        """The file that `calve support` writes, of what was collected under this key."""
        caller = await self._visitor(request)
        if isinstance(caller, Response):
            return caller
        self._service.desk.check(caller, "support", {})
        made = self._bundles.get(request.path_params["key"])
        if made is None:
            raise NotFoundError(
                "this server no longer has that bundle",
                code="no_bundle",
                hint="make it again, on System",
            )
        name = f"calve-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip"
        return Response(
            made,
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    async def _keep_bundle(self, key: str, found: Json) -> None:
        if key not in self._bundles:
            while len(self._bundles) >= _BUNDLES:
                self._bundles.popitem(last=False)
            self._bundles[key] = await asyncio.to_thread(zipped, found)

    async def _refused(
        self,
        request: Request,
        caller: Caller,
        name: str,
        arguments: Json,
        key: str,
        back: str,
        error: CalveError,
    ) -> Response:
        """The form again, filled in; of a plan that changed, both plans."""
        plan = again(name, arguments, back) if error.code == "plan_changed" else ""
        if plan and len(plan) <= LONGEST:
            return self._frame.go(request, plan)
        if error.code == "plan_changed":  # with its hash it would be refused for ever
            arguments = {one: value for one, value in arguments.items() if one != "plan_hash"}
        fresh = _next_key(key, error)
        return await self._form(request, caller, name, arguments, key=fresh, back=back, error=error)

    async def _became(self, caller: Caller, action: FormAction, arguments: Json, key: str) -> Any | Pending:
        """LookupError if nobody here knows. What this server carries out itself says more than the store's row."""
        if VERBS[action.verb].reach is Reach.OUTSIDE:
            with suppress(LookupError):
                given = {**arguments, **action.always}
                made = await self._service.errand(caller, action.verb, given, key, start=False)
                return made if isinstance(made, Pending) else json.loads(made)
        if action.verb in SUBMITS:
            first = await self._service.replayed(caller, action.verb, arguments, key)
            if first is not None:
                return first
        raise LookupError(key)

    async def _arrived(
        self, request: Request, caller: Caller, name: str, arguments: Json, answer: Any, back: str
    ) -> Response:
        """To the page of what came of it; what the answer says beside that is shown first."""
        action = ACTIONS[name]
        self._changed()
        if action.verb in SUBMITS:
            found = _made(answer)
            if found:
                return self._frame.go(request, found)
        elif not action.answer and (where := ("" if action.leads else back) or action.to(arguments)):
            return self._frame.go(request, where)
        return await self._frame.page(
            request, action.answer or "asked.html", caller=caller, outcome="answered", subject=[], seconds=0,
            answer=answer, back=back or action.to(arguments), title=action.title, submitted=action.verb in SUBMITS,
            arguments=arguments, line=_line(action.verb, {**arguments, **action.always}), now=datetime.now(UTC),
        )  # fmt: skip

    async def _confirm(self, request: Request) -> Response:
        """A page with the consequence, the command and the form."""
        caller = await self._visitor(request)
        if isinstance(caller, Response):
            return caller
        name, action = _action(request)
        pairs = request.query_params.multi_items()
        refuse_tokens(pairs)
        key = request.query_params.get("key", "")
        return await self._form(
            request, caller, name, self._arguments(action, pairs),
            key=_key(key) if key else form_key(), back=_back(request.query_params.get("back", "")),
        )  # fmt: skip

    async def _form(
        self,
        request: Request,
        caller: Caller,
        name: str,
        arguments: Json,
        *,
        key: str,
        back: str = "",
        error: CalveError | None = None,
        unknown: bool = False,
        status: int = 200,
    ) -> Response:
        action = ACTIONS[name]
        processes: list[Json] = []
        try:
            processes = await self._processes(caller, arguments.get("ids", ()))
        except CalveError:
            if error is None:  # else what went wrong first is what is said
                raise
        asked = {one.name for one in action.asks}
        if error is None and not set(self._service.desk.required(action.verb)) <= {*arguments, *asked}:
            raise UsageError(
                "nothing is selected", code="missing_option", hint="go back, and select something"
            )
        about = await self._about(caller, action, arguments)
        context: Json = {
            "caller": caller,
            "action": {"name": name, "label": action.label, "title": action.title},
            "consequence": consequence(name, processes),
            "processes": processes,
            "arguments": arguments,
            "hidden": fields({name: value for name, value in arguments.items() if name not in asked}),
            "asks": [_shown(one, arguments) for one in action.asks],
            "typed": action.typed({**arguments, "existing": "replace"}),
            "about": about,
            "now": datetime.fromisoformat(about["now"]) if about else None,
            "allowed": self.may(caller, name, arguments),
            "needs": self.needs(name, arguments),
            "line": _line(action.verb, {**arguments, **action.always}),
            "key": key,
            "back": back,
            "unknown": unknown,
            "address": target(f"confirm/{name}", {**arguments, "back": back}),
        }
        if error is None:
            return await self._frame.page(request, "confirm.html", error=None, status=status, **context)
        return await self._frame.error(request, error, template="confirm.html", **context)

    async def _visitor(self, request: Request) -> Caller | Response:
        found = await self._frame.visitor(request)
        if found is None:
            raise TemporaryError(
                "the store does not answer", code="store_slow", hint="calve doctor", service="store"
            )
        return found

    async def _processes(self, caller: Caller, ids: Sequence[str]) -> list[Json]:
        if not ids:
            return []
        found: list[Json] = json.loads(await self._service.document(caller, "find", {"ids": list(ids)[:200]}))
        return found

    async def _about(self, caller: Caller, action: FormAction, arguments: Json) -> Json | None:
        """The policy's document, where the confirmation shows what is confirmed."""
        if not action.shows_leaving or not arguments.get("name"):
            return None
        given = {"name": arguments["name"]}
        found: Json = json.loads(await self._service.document(caller, "tiering", given))
        return found

    def _arguments(self, action: FormAction, pairs: Sequence[tuple[str, str]]) -> Json:
        options = self._service.desk.options(action.verb)
        return parsed([(name, text) for name, text in pairs if name not in _OWN], options)

    def _refuse_forged(self, request: Request, name: str, token: str) -> None:
        """A session needs the token of its form; without one, the page must at least say that it asks."""
        headers = request.scope["headers_by_name"]
        if self._frame.secret(request):
            if not self._frame.is_form_token(request, name, token):
                raise HttpError(
                    403,
                    "the form belongs to another session",
                    code="form_token",
                    hint="send it again from here",
                )
        elif "origin" not in headers and not headers.get("authorization", "").lower().startswith("bearer "):
            raise HttpError(
                403, "no page asked for this", code="origin", hint="open the server's own address"
            )

    def _address(self, caller: Caller, name: str, arguments: Json, key: str, back: str) -> str:
        """Where it says what becomes of it: with the arguments, so any server can answer. Where they are too long, this
        one keeps them."""
        path = f"asked/{name}/{key}"
        whole = target(path, {**arguments, "back": back})
        if len(whole) <= LONGEST:
            return whole
        while len(self._long) >= _KEPT:
            self._long.popitem(last=False)
        self._long[f"{caller.name}/{key}"] = arguments
        return target(path, {"back": back})


def _action(request: Request) -> tuple[str, FormAction]:
    name = request.path_params["action"]
    if name not in ACTIONS:
        raise HttpError(404, "no such action", code="no_such_route", hint="go back to the page")
    return name, ACTIONS[name]


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise HttpError(400, "the form has no key", code="bad_key", hint="open the page again")
    return text


def _next_key(key: str, error: CalveError) -> str:
    """What was certainly not done, or was another form's, may be asked anew; all else is the same request again."""
    return form_key() if error.outcome is Outcome.NOT_APPLIED else key


def _back(text: str) -> str:
    return text if text and is_own(text, PATHS) else ""


def _refuse_late(answer: Any) -> None:
    """A cancel that came too late is shown, not passed over."""
    if isinstance(answer, list):
        late = [one["message"] for one in answer if one.get("accepted") is False]
        if late:
            raise RefusedError("; ".join(late), code="too_late", hint="the process has its state on its page")


def _made(answer: Json) -> str:
    """The page of what was submitted; "" if there is more to say, or nothing was."""
    if any(answer.get(name) for name in ("joined", "refused", "unreachable", "unchanged", "known")):
        return ""
    ids = [one["id"] for one in answer["processes"]]
    if len(ids) == 1:
        return target(PATHS["sheet"], {"id": ids[0]})
    return target(PATHS["page"], {"batch": answer["batch"]}) if ids and answer["batch"] else ""


def _needed(name: str, arguments: Given) -> Role:
    return VERBS[ACTIONS[name].verb].needs({**arguments, **ACTIONS[name].always})


def _line(verb: str, arguments: Given) -> str:
    try:
        return command(verb, **arguments)
    except KeyError:  # there is no command for it
        return ""


def _shown(ask: Ask, arguments: Given) -> Json:
    found = texts(arguments.get(ask.name))
    return {
        "name": ask.name,
        "label": ask.label,
        "kind": ask.kind,
        "choices": ask.choices,
        "hint": ask.hint,
        "required": ask.required,
        "value": found[0] if found else "",
    }
