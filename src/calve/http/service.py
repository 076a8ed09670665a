"""The verbs of the desk for callers over HTTP: who calls, which threads do it, and the bytes of the answer.

What asks outside is an errand: it goes on after its request has ended, and the same request finds its answer.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from calve.app.desk import Desk
from calve.app.verbs.roles import VERBS, Reach
from calve.http.errands import Errands, Pending
from calve.http.identity import Identities
from calve.http.problem import HttpError
from calve.http.store_threads import StoreThreads
from calve.model.access import Caller, Role
from calve.model.errors import TemporaryError, UsageError

_MOST_BYTES = 32 << 20
_PROBE = Caller(name="readyz", role=Role.VIEWER)


class VerbService:
    """Carries verbs out beside the event loop."""

    def __init__(
        self,
        desk: Desk,
        identities: Identities,
        threads: StoreThreads,
        errands: Errands,
        *,
        answer_seconds: float,
        unknown: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`unknown` is called for each caller who is refused, with the reason."""
        self.desk = desk
        self._unknown = unknown
        self._identities = identities
        self._threads = threads
        self._errands = errands
        self._answer_seconds = answer_seconds

    async def caller(self, request: Request) -> Caller:
        headers, peer = request.scope["headers_by_name"], request.state.peer
        known = partial(
            self._identities.caller,
            headers,
            peer,
            path=request.scope["path"],
            query=request.url.query,
            method=request.method,
        )
        try:
            try:
                found: Caller = known(ask=False)  # also while the store is down: of metrics, for one
            except LookupError:
                found = await self._threads.run(known)
        except HttpError as error:
            self._unknown(error.code)
            raise
        request.state.who = found.name
        return found

    async def ready(self) -> None:
        """TemporaryError if the store does not answer in time."""
        await self._threads.run(lambda: self.desk.perform(_PROBE, "now", {}))

    async def reader(self, request: Request) -> None:
        """Refuse callers who may not read. While the store is down, callers known before may."""
        try:
            await self.caller(request)
        except TemporaryError:
            if not self.remembers(request):
                raise

    def remembers(self, request: Request) -> bool:
        """Whether who asks was known before the store went down."""
        return self._identities.remembers(request.scope["headers_by_name"])

    async def stored(self, work: Callable[[], Any]) -> Any:
        """What the store alone answers, beside the event loop."""
        return await self._threads.run(work)

    async def answer(self, request: Request, name: str, arguments: Mapping[str, Any]) -> Response:
        caller = await self.caller(request)
        verb = self.desk.check(caller, name, arguments)
        key = request.headers.get("idempotency-key", "")
        if len(key) > 200:
            raise UsageError(
                "the Idempotency-Key is too long", code="bad_key", hint="use up to 200 characters"
            )
        work = _Work(self.desk, caller, name, arguments, key)
        if verb.reach is Reach.STORE:
            return _whole(await self._threads.run(work, changes=verb.changes))
        if key and verb.changes:
            first = await self.replayed(caller, name, arguments, key)
            if first is not None:
                return answered(first)
        services = self.desk.services(name, arguments)
        made = await self._errands.result(
            work.key, services, work, wait_seconds=self._answer_seconds, once=verb.changes
        )
        if isinstance(made, Pending):
            body = {"status": "running", "seconds": round(made.seconds, 1), "hint": "repeat this request"}
            return JSONResponse(body, status_code=202, headers={"Retry-After": "1"})
        return _whole(made)

    async def document(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a verb that only the store answers, and that changes nothing."""
        verb = self.desk.check(caller, name, arguments)
        assert verb.reach is Reach.STORE and not verb.changes, name
        return await self._threads.run(_Work(self.desk, caller, name, arguments, ""))

    async def change(self, caller: Caller, name: str, arguments: Mapping[str, Any], key: str) -> Any:
        """The answer of a verb that changes the store, and asks nobody else."""
        verb = self.desk.check(caller, name, arguments)
        assert verb.reach is Reach.STORE and verb.changes, name
        return json.loads(
            await self._threads.run(_Work(self.desk, caller, name, arguments, key), changes=True)
        )

    async def errand(
        self, caller: Caller, name: str, arguments: Mapping[str, Any], key: str = "", *, start: bool = True
    ) -> Any | Pending:
        """What became of a verb that asks outside: started, if it is not under way; never waited for. Without `start`
        LookupError, if this server does not know of it."""
        self.desk.check(caller, name, arguments)
        work = _Work(self.desk, caller, name, arguments, key)
        if not start and not self._errands.knows(work.key):
            raise LookupError(key)
        services = self.desk.services(name, arguments)
        return await self._errands.result(work.key, services, work, wait_seconds=0.0)

    async def replayed(self, caller: Caller, name: str, arguments: Mapping[str, Any], key: str) -> Any | None:
        """What the store knows of an earlier request with this key; None if nothing."""
        return await self._threads.run(lambda: self.desk.replay(caller, name, arguments, key))

    async def waited(self, caller: Caller, name: str, arguments: Mapping[str, Any], *, seconds: float) -> Any:
        """The answer of a verb that reads outside, for clients that do not ask again. TemporaryError if it takes
        longer."""
        self.desk.check(caller, name, arguments)
        work = _Work(self.desk, caller, name, arguments, "")
        services = self.desk.services(name, arguments)
        made = await self._errands.result(work.key, services, work, wait_seconds=seconds)
        if isinstance(made, Pending):
            raise TemporaryError(
                f"{name} takes longer than {seconds:g} s", code="server_slow", hint="ask again"
            )
        return json.loads(made)


class _Work:
    """One call of the desk, and what makes another one the same: who may see its answer, and what it asks."""

    def __init__(self, desk: Desk, caller: Caller, verb: str, arguments: Mapping[str, Any], key: str) -> None:
        who = caller.name if VERBS[verb].changes else caller.role.value
        text = json.dumps([who, verb, arguments, key], sort_keys=True)
        self.key = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self._call: Callable[[], Any] = lambda: desk.perform(caller, verb, arguments, key=key)

    def __call__(self) -> bytes:
        """The answer as it is sent: made in the thread, and its size is known."""
        return _encoded(self._call())


def answered(document: Any) -> Response:
    return _whole(_encoded(document))


def _whole(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _encoded(document: Any) -> bytes:
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
    if len(data) > _MOST_BYTES:
        raise HttpError(
            413,
            f"the answer is larger than {_MOST_BYTES >> 20} MB",
            code="answer_too_large",
            hint="ask for less at once",
        )
    return data
