"""When a stream ends by itself, and what a slow peer and a store that fails do to it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Router

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.http import stream
from calve.http.guard import Guard, Rules
from calve.http.problem import HttpError
from calve.http.stream import Streams, Times
from calve.model.access import Caller, Role
from calve.model.errors import UnavailableError
from calve.model.process import NewProcess, new_process_id
from calve.model.seen import Sighting

QUICK = Times(look=0.01, ping=0.05, check=0.02, life=60.0, again=0.01)


@pytest.fixture
def facade(tmp_path: Path) -> Iterator[Calve]:
    (tmp_path / "calve.toml").write_text("")
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as made:
        yield made


def submit(facade: Calve, count: int = 1) -> list[str]:
    made = [
        NewProcess(id=new_process_id(), kind="export", source="main:db.t", destination="lake.ns.t", lane="x", needs=(), request="{}")
        for _ in range(count)
    ]  # fmt: skip
    return [one.id for one in facade.registry.submit(made)]


class FailingDesk(Desk):
    failing = False

    def perform(self, *given: Any, **named: Any) -> Any:
        if self.failing:
            raise UnavailableError("the store is down", code="store_unavailable", service="store")
        return super().perform(*given, **named)


class Peer:
    """One request, driven by hand: it reads when the test says so."""

    def __init__(self, app: Any, query: str = "") -> None:
        self.text = ""
        self.reads = asyncio.Event()
        self.reads.set()
        self._came = asyncio.Event()
        self._asked = False
        scope = {
            "type": "http", "method": "GET", "path": "/v1/events/stream", "raw_path": b"/v1/events/stream",
            "query_string": query.encode(), "headers": [(b"host", b"here")], "client": ("127.0.0.1", 1),
            "scheme": "http", "http_version": "1.1", "server": ("here", 80), "root_path": "",
        }  # fmt: skip
        self.done = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        self.text += message.get("body", b"").decode()
        self._came.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in self.text:
                self._came.clear()
                await self._came.wait()

    @property
    def events(self) -> list[str]:
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        said = [json.loads(line) for line in lines]
        return [one["event"]["process"] for one in said if "event" in one]


async def anybody(_: object) -> Caller:
    return Caller(name="anybody", role=Role.VIEWER)


def served(desk: Desk, identify: Callable[[Any], Awaitable[Caller]] = anybody, times: Times = QUICK) -> Any:
    streams = Streams(desk, identify, most=3, answer_seconds=5.0, times=times)
    return Guard(Router(routes=[streams.route()]), Rules(hosts=frozenset({"here"})))


def test_a_revoked_token_ends_its_stream(facade: Calve) -> None:
    asked = 0

    async def identify(_: object) -> Caller:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise HttpError(401, "the token is revoked", code="token_wrong")
        return Caller(name="alice", role=Role.VIEWER)

    async def scene() -> str:
        peer = Peer(served(Desk(facade), identify))
        await asyncio.wait_for(peer.done, 20)
        return peer.text

    assert asyncio.run(scene()).endswith('event: bye\ndata: {"reason":"token"}\n\n')
    assert asked == 4


def test_a_stream_has_a_life_and_pings_carry_the_cursor(facade: Calve) -> None:
    async def scene() -> str:
        peer = Peer(served(Desk(facade), times=Times(look=0.01, ping=0.01, life=0.2)))
        await asyncio.wait_for(peer.done, 20)
        return peer.text

    text = asyncio.run(scene())
    assert text.endswith('event: bye\ndata: {"reason":"time"}\n\n')
    cursor = text.split("id: ")[1].split("\n")[0]
    assert f": ping\nid: {cursor}\n\n" in text


def test_pings_are_events_for_whoever_asks_for_them(facade: Calve) -> None:
    async def scene() -> str:
        peer = Peer(served(Desk(facade), times=Times(look=0.01, ping=0.01, life=0.2)), "pings=1")
        await asyncio.wait_for(peer.done, 20)
        return peer.text

    text = asyncio.run(scene())
    assert "event: ping\ndata: {}\n\n" in text and ": ping\n" not in text.replace("event: ping\n", "")


def test_a_look_outside_is_told_to_those_who_watch_and_not_those_before_them(facade: Calve) -> None:
    async def scene() -> str:
        facade.registry.put_sighting(Sighting(subject="before", what="pair"))
        peer = Peer(served(Desk(facade)))
        await peer.until("id: ")
        async with asyncio.timeout(20):
            while "seen" not in peer.text:  # each look at the store may be the first, which tells nothing
                facade.registry.put_sighting(Sighting(subject="main:db.t -> lake.ns.t", what="pair"))
                await asyncio.sleep(0.02)
        peer.done.cancel()
        return peer.text

    text = asyncio.run(scene())
    (said, *_) = [line for line in text.splitlines() if "lake.ns.t" in line and "subject" in line]
    assert json.loads(said.removeprefix("data: "))["what"] == "pair"
    assert '"subject":"before"' not in text


def test_a_peer_that_does_not_read_for_a_while_misses_nothing_and_holds_no_memory(
    facade: Calve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "QUEUE", 5)
    monkeypatch.setattr(stream, "PAGE", 4)

    async def scene() -> tuple[list[str], list[str], list[str]]:
        desk = Desk(facade)
        app = served(desk)
        slow, quick = Peer(app), Peer(app)
        await slow.until("id: ")
        await quick.until("id: ")
        slow.reads.clear()
        ids = submit(facade, 60)
        await quick.until(ids[-1])
        slow.reads.set()
        await slow.until(ids[-1])
        for peer in (slow, quick):
            peer.done.cancel()
        await asyncio.gather(slow.done, quick.done, return_exceptions=True)
        return ids, slow.events, quick.events

    ids, slow, quick = asyncio.run(scene())
    assert quick == ids
    assert slow == ids


def test_a_peer_that_never_reads_is_left(facade: Calve) -> None:
    async def scene() -> None:
        peer = Peer(served(Desk(facade), times=Times(look=0.01, ping=0.01, send=0.05)))
        await peer.until("id: ")
        peer.reads.clear()
        await asyncio.wait_for(peer.done, 20)

    asyncio.run(scene())


def test_a_store_that_fails_is_said_and_the_stream_goes_on_after_it(facade: Calve) -> None:
    async def scene() -> tuple[list[str], list[str], str]:
        desk = FailingDesk(facade)
        app = served(desk)
        peer = Peer(app)
        await peer.until("id: ")
        desk.failing = True
        await peer.until("event: stalled")
        refused = Peer(app)
        await asyncio.gather(refused.done, return_exceptions=True)
        ids = submit(facade, 2)
        desk.failing = False
        await peer.until("event: resumed")
        await peer.until(ids[-1])
        peer.done.cancel()
        await asyncio.gather(peer.done, return_exceptions=True)
        return ids, peer.events, refused.text

    ids, seen, refused = asyncio.run(scene())
    assert seen == ids
    assert json.loads(refused)["status"] == 503


def test_who_is_too_far_behind_is_told_to_look_again(facade: Calve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PAGE", 4)
    monkeypatch.setattr(stream, "REPLAYED", 10)
    submit(facade, 30)

    async def scene() -> tuple[str, list[str], list[str]]:
        peer = Peer(served(Desk(facade)), "after=start")
        await peer.until("event: reset")
        new = submit(facade)
        await peer.until(new[0])
        peer.done.cancel()
        await asyncio.gather(peer.done, return_exceptions=True)
        return peer.text, peer.events, new

    text, seen, new = asyncio.run(scene())
    assert '"reason":"behind"' in text
    assert len(seen) == 12 + 1
    assert seen[-1] == new[0]


def test_progress_of_live_processes_is_said(facade: Calve) -> None:
    async def scene() -> str:
        desk = MovingDesk(facade)
        peer = Peer(served(desk))
        await peer.until("id: ")
        submit(facade)
        await peer.until("event: progress")
        peer.done.cancel()
        await asyncio.gather(peer.done, return_exceptions=True)
        return peer.text

    said = asyncio.run(scene()).split("event: progress\ndata: ")[1].split("\n")[0]
    [moved] = json.loads(said)["processes"]
    assert moved["rows"] > 0
    assert set(moved) == {"id", "kind", "state", "tasks", "running_tasks", "rows", "bytes"}


class MovingDesk(Desk):
    """Rows grow with each look."""

    looks = 0

    def perform(self, caller: Caller, verb: str, arguments: Any, *, key: str = "") -> Any:
        answer = super().perform(caller, verb, arguments, key=key)
        if verb == "processes":
            self.looks += 1
            answer = [one | {"rows": self.looks} for one in answer]
        return answer
