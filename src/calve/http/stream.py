"""Events as they happen (`GET /v1/events/stream`): one reader of the store for all who watch, and no event lost.

One task reads the feed and gives each event to every subscriber. Who comes with a cursor, or falls behind, reads
pages of the store until it stands where that task stands, and only then joins: so between the two nothing is
missed, and a slow peer costs no memory. Each event carries the cursor after it.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calve.app.desk import Desk
from calve.app.feed import START
from calve.app.verbs.roles import KINDS
from calve.app.view import Json
from calve.http.guard import Receive, Scope, Send
from calve.http.messages import (
    Filter,
    StreamMessage,
    StreamPage,
    block,
    event_message,
    position,
    reset,
    standing,
)
from calve.http.problem import HttpError
from calve.model.access import Caller, Role
from calve.model.errors import CalveError, TemporaryError

PAGE = 200  # events read at once
QUEUE = 256  # messages that wait for one peer; above it the peer reads from the store again
REPLAYED = 50_000  # events that one stream reads again; above it it is told to look at the lists
OF_A_PEER = 20
PROGRESS_SHARE = 20  # all processes are read for a twentieth of the time at most
READERS = 3  # threads for those who read again
_PROGRESS = ("id", "kind", "state", "tasks", "running_tasks", "rows", "bytes")
_JUST = timedelta(seconds=30)
_MEDIA_TYPE = "text/event-stream; charset=utf-8"
_READER = Caller(name="stream", role=Role.VIEWER)
PATH = "/v1/events/stream"
_log = logging.getLogger("calve.http")
Identify = Callable[[Request], Awaitable[Caller]]


@dataclass(frozen=True, kw_only=True)
class Times:
    """In seconds. `check`: how often it is asked whether the token still counts."""

    look: float = 0.5
    ping: float = 15.0
    check: float = 10.0
    life: float = 3600.0
    send: float = 30.0  # for a peer that does not read
    again: float = 1.0  # after the store failed


@dataclass(eq=False, kw_only=True)
class _Subscriber:
    wanted: Filter
    cursor: str
    pings: bool = False  # as events: a browser's EventSource does not show comments
    joined: bool = False
    ending: str = ""
    waiting: deque[StreamMessage] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Streams:
    """Of one event loop."""

    def __init__(
        self, desk: Desk, identify: Identify, *, most: int, answer_seconds: float, times: Times
    ) -> None:
        self._desk = desk
        self._identify = identify
        self._most = most
        self._answer_seconds = answer_seconds
        self.times = times
        self._peers: Counter[str] = Counter()
        self._joined: set[_Subscriber] = set()
        self._open: set[_Subscriber] = set()
        self._cursor = ""  # where the tailer stands; what it has read it has given to all who have joined
        self._tailer: asyncio.Task[None] | None = None
        self._live: dict[str, tuple[Any, ...]] = {}
        self._tried = ""  # the time up to which sightings were told
        self._down: tuple[str, ...] | None = None  # as it was last told
        self.noticed: list[
            Callable[[], None]
        ] = []  # called before a message that has no place in the feed is sent
        self._tail_thread = ThreadPoolExecutor(1, "stream")
        self._page_threads = ThreadPoolExecutor(READERS, "stream-page")

    def route(self) -> Route:
        made = Route(PATH, self.answer, methods=["GET"])
        made.methods = {"GET"}  # not HEAD: it would never end
        return made

    async def answer(self, request: Request) -> Response:
        """The stream; a problem if it cannot begin."""
        caller = await self._identify(request)
        self._desk.check(caller, "feed", {})
        peer = request.state.peer
        if self._peers.total() >= self._most or self._peers[peer] >= OF_A_PEER:
            raise HttpError(
                503,
                "too many streams are open",
                code="too_many_streams",
                hint="close one, or read /v1/events from time to time",
            )
        self._peers[peer] += 1
        try:
            wanted = await self._wanted(request)
            after = request.headers.get("last-event-id") or request.query_params.get("after", "")
            seen = await self._page(after)
        except BaseException:
            self._left(peer)
            raise
        cursor = seen.cursor if seen.reset else after or seen.cursor
        one = _Subscriber(wanted=wanted, cursor=cursor, pings=bool(request.query_params.get("pings")))
        return _Answer(self, request, one, seen, peer)

    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def end(self) -> None:
        """Every stream says bye, and ends."""
        _end(self._open, "shutdown")

    def close(self) -> None:
        """Once all have ended."""
        for pool in (self._tail_thread, self._page_threads):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _wanted(self, request: Request) -> Filter:
        kind = request.query_params.get("kind", "")
        unknown = set(request.query_params) - {"after", "process", "kind", "pings"}
        if unknown or kind not in ("", *KINDS):
            raise HttpError(
                400,
                f"invalid {min(unknown, default='kind')}",
                code="bad_option",
                hint=f"give after, process, kind or pings; kinds are {', '.join(KINDS)}",
            )
        named = request.query_params.getlist("process")
        found = await self._beside(lambda: self._ask("find", ids=named)) if named else []
        return Filter(ids=frozenset(one["id"] for one in found), kind=kind)

    # -- reading ------------------------------------------------------------------------------------

    def _ask(self, verb: str, **given: Any) -> Any:
        return self._desk.perform(_READER, verb, given)

    async def _beside(self, work: Callable[[], Any]) -> Any:
        """In a thread. TemporaryError if the store does not answer in time."""
        done = asyncio.get_running_loop().run_in_executor(self._page_threads, work)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await done
        except TimeoutError:
            raise TemporaryError(
                "the store does not answer", code="store_slow", hint="calve doctor"
            ) from None

    async def _page(self, cursor: str) -> StreamPage:
        seen: StreamPage = await self._beside(lambda: self._look(cursor))
        return seen

    def _look(self, cursor: str, *, at_all: bool = False) -> StreamPage:
        """Blocks. Processes are read after the events, so none is older than its event. `at_all`: also those
        of which nothing was said."""
        page = self._ask("feed", after=cursor, limit=PAGE)
        live = {one["id"]: one for one in self._ask("processes", limit=1000)} if at_all else None
        known = live or {}
        other = list(dict.fromkeys(one["process"] for one in page["events"] if one["process"] not in known))
        processes = known | {one["id"]: one for one in (self._ask("find", ids=other) if other else ())}
        return StreamPage(
            cursor=page["cursor"],
            reset=page["reset"] or "",
            events=tuple(event_message(one, processes[one["process"]]) for one in page["events"]),
            live=live,
        )

    def _look_on(self, cursor: str, *, at_all: bool) -> StreamPage:
        """`_look`, and what was found outside since the look before."""
        seen = self._look(cursor, at_all=at_all)
        found = self._ask("seen", **({"after": self._tried} if self._tried else {}))
        told, self._tried = bool(self._tried), found["upto"]
        breakers = self._ask("breakers")
        down = tuple(sorted(one["service"] for one in breakers))
        if self._down is None:  # a page that was loaded a moment ago may not show the newest
            now = datetime.fromisoformat(self._ask("now")["now"]) if breakers else None
            self._down = tuple(
                one["service"]
                for one in breakers
                if now and datetime.fromisoformat(one["opened_at"]) < now - _JUST
            )
        return replace(seen, sightings=tuple(found["sightings"]) if told else (), down=down)

    # -- one reader for all -------------------------------------------------------------------------

    def _join(self, one: _Subscriber) -> bool:
        """Whether it stands where the tailer stands, or further; then it gets what comes. No `await` in here:
        nothing happens between the look and the joining."""
        if self._tailer is None or self._tailer.done():
            self._cursor, self._live, self._tried, self._down = one.cursor, {}, "", None
            self._tailer = asyncio.get_running_loop().create_task(self._tail())
        elif position(one.cursor) < position(self._cursor):
            return False
        one.joined = True
        self._joined.add(one)
        return True

    async def _tail(self) -> None:
        stalled = False
        due = 0.0  # when progress is looked at again: the more there is to read, the less often
        while self._joined:
            began = time.monotonic()
            work = partial(self._look_on, self._cursor, at_all=began >= due)
            look = asyncio.get_running_loop().run_in_executor(self._tail_thread, work)
            try:
                done, _ = await asyncio.wait({look}, timeout=self._answer_seconds)
                if not done and not stalled:
                    stalled = True
                    self._give([StreamMessage(text=block("stalled", {"code": "store_slow"}))])
                seen = await look
            except CalveError as error:
                if not stalled:
                    self._give([StreamMessage(text=block("stalled", {"code": error.code}))])
                stalled = True
                await asyncio.sleep(self.times.again)
                continue
            except Exception:  # noqa: BLE001 - a defect; those who watch come back
                _log.exception("the event stream failed")
                _end(self._joined, "error")
                return
            if stalled:
                stalled = False
                self._give([StreamMessage(text=block("resumed", {}))])
            self._told(seen)
            if seen.live is not None:
                due = began + PROGRESS_SHARE * (time.monotonic() - began)
            if len(seen.events) < PAGE:
                await asyncio.sleep(self.times.look)

    def _told(self, seen: StreamPage) -> None:
        """Give what was seen to all, and stand after it."""
        messages = list(seen.events)
        if seen.reset:
            messages = [StreamMessage(text=reset(seen.reset, seen.cursor), cursor=seen.cursor)]
        if seen.live is not None:
            messages += self._progress(seen.live)
        beside = [StreamMessage(text=block("seen", one)) for one in seen.sightings]
        if self._down is not None and set(seen.down or ()) != set(self._down):
            beside.append(StreamMessage(text=block("down", {"services": seen.down})))
        self._down = seen.down
        for tell in self.noticed if beside else ():
            tell()
        self._give([*messages, *beside])
        self._cursor = seen.cursor

    def _progress(self, live: Mapping[str, Json]) -> list[StreamMessage]:
        """What moved since the last look at all processes."""
        shown = {name: tuple(str(one[key]) for key in _PROGRESS) for name, one in live.items()}
        before, self._live = self._live, shown
        moved = tuple(
            {key: live[name][key] for key in _PROGRESS}
            for name in shown
            if name in before and before[name] != shown[name]
        )
        return (
            [StreamMessage(text=block("progress", {"processes": list(moved)}), progress=moved)]
            if moved
            else []
        )

    def _give(self, messages: Iterable[StreamMessage]) -> None:
        messages = list(messages)
        for one in list(self._joined) if messages else ():
            if len(one.waiting) > QUEUE:
                one.waiting.clear()
                self._leave(one)  # it reads from the store again
            else:
                one.waiting.extend(messages)
            one.woken.set()

    def _leave(self, one: _Subscriber) -> None:
        one.joined = False
        self._joined.discard(one)

    def _left(self, peer: str) -> None:
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


class _Answer(Response):
    """One stream, until its peer goes, its token ends, its hour is over, or the server stops."""

    def __init__(
        self, streams: Streams, request: Request, one: _Subscriber, first: StreamPage, peer: str
    ) -> None:
        super().__init__(media_type=_MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._times = streams.times
        self._request = request
        self._one = one
        self._first: StreamPage | None = first
        self._peer = peer
        self._replayed = 0
        self._stalled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._streams._open.add(self._one)
        gone = asyncio.create_task(_until_gone(receive))
        run = asyncio.create_task(self._run())
        try:
            await asyncio.wait({gone, run}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, run):
                task.cancel()
            self._streams._open.discard(self._one)
            self._streams._leave(self._one)
            self._streams._left(self._peer)
            with suppress(asyncio.CancelledError, TimeoutError):  # the peer has gone, or does not read
                await run

    async def _run(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # A cursor at once: who is cut off before the first event misses none.
        await self._put(b"retry: 1000\n" + standing(self._one.cursor if self._one.cursor != START else ""))
        now = time.monotonic()
        ends, checked, pinged = now + self._times.life, now, now
        while True:
            now = time.monotonic()
            if now >= ends:
                self._one.ending = "time"
            if now >= checked + self._times.check:
                checked = now
                await self._check()
            if self._one.ending:
                await self._put(block("bye", {"reason": self._one.ending}), last=True)
                return
            if not self._one.joined and not self._one.waiting:
                await self._catch_up()
                continue
            if not self._one.waiting and now >= pinged + self._times.ping:
                pinged = now
                # With the cursor: events that were not wanted need not be read again.
                ping = block("ping", {}, self._one.cursor) if self._one.pings else b": ping\n"
                await self._put(ping if self._one.pings else ping + standing(self._one.cursor))
            await self._wait(min(pinged + self._times.ping, checked + self._times.check, ends) - now)
            await self._pass_on()

    async def _wait(self, seconds: float) -> None:
        if not self._one.waiting and not self._one.ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._one.woken.wait()
        self._one.woken.clear()

    async def _pass_on(self) -> None:
        """All that waits, in one piece."""
        text = bytearray()
        while self._one.waiting:
            text += self._passed(self._one.waiting.popleft())
        if text:
            await self._put(bytes(text))

    def _passed(self, message: StreamMessage) -> bytes:
        if message.cursor:
            again = position(message.cursor) <= position(self._one.cursor)
            if message.process is not None and again:
                return b""  # it was read from the store before this one joined
            self._one.cursor = message.cursor
        return message.of(self._one.wanted)

    async def _catch_up(self) -> None:
        """One page from the store; joins where there is no more."""
        seen, self._first = self._first, None
        try:
            if self._replayed > REPLAYED:
                seen = await self._streams._page("")
                self._replayed = 0
                self._one.cursor = seen.cursor
                await self._put(reset("behind", seen.cursor))
            seen = seen or await self._streams._page(self._one.cursor)
        except CalveError as error:
            if not self._stalled:
                await self._put(block("stalled", {"code": error.code}))
            self._stalled = True
            await asyncio.sleep(self._times.again)
            return
        if self._stalled:
            self._stalled = False
            await self._put(block("resumed", {}))
        if seen.reset:
            self._one.cursor = seen.cursor
            await self._put(reset(seen.reset, seen.cursor))
            return
        self._replayed += len(seen.events)
        text = b"".join(self._passed(message) for message in seen.events)
        self._one.cursor = seen.cursor
        if text:
            await self._put(text)
        if len(seen.events) < PAGE and self._streams._join(self._one):
            self._replayed = 0

    async def _check(self) -> None:
        """Whether this caller may still read."""
        try:
            await self._streams._identify(self._request)
        except HttpError as error:
            if error.status == 401:
                self._one.ending = "token"
        except CalveError:
            pass  # the store does not answer: asked again soon

    async def _put(self, text: bytes, *, last: bool = False) -> None:
        """TimeoutError if the peer does not read."""
        async with asyncio.timeout(self._times.send):
            await self._send({"type": "http.response.body", "body": text, "more_body": not last})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end(subscribers: Iterable[_Subscriber], reason: str) -> None:
    for one in subscribers:
        one.ending = reason
        one.woken.set()
