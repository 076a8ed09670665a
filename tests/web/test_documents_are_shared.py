"""A hundred viewers of one page cost as one, and nobody is shown less than he has seen."""

import asyncio
import json
from typing import Any

import pytest

from calve.model.errors import StoreError
from calve.web.documents import MOST, Documents, position


class Store:
    """Answers with a counter, once it may."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()
        self.position = 5
        self.down = False

    async def document(self, caller: Any, verb: str, arguments: Any) -> bytes:
        self.made += 1
        at = self.position
        await self.go.wait()
        if self.down:
            raise StoreError("down", code="store_down")
        return json.dumps({"now": "…", "cursor": f"store.{at}.abc", "made": self.made}).encode()


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def settled() -> None:
    """Everything has gone as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def shared() -> tuple[Documents, Store, Clock]:
    store, clock = Store(), Clock()
    return Documents(store, now=clock), store, clock  # type: ignore[arg-type]


def test_equal_requests_share_one_making_and_its_second() -> None:
    async def run() -> None:
        documents, store, clock = shared()
        asked = [asyncio.create_task(documents.get("tables", {"q": "x"})) for _ in range(100)]
        other = asyncio.create_task(documents.get("tables", {"q": "y"}))
        await settled()
        store.go.set()
        found = await asyncio.gather(*asked)
        await other
        assert store.made == 2 and len({one.data for one in found}) == 1
        clock.seconds = 0.9
        await documents.get("tables", {"q": "x"})
        assert store.made == 2
        clock.seconds = 1.1
        await documents.get("tables", {"q": "x"})
        assert store.made == 3

    asyncio.run(run())


def test_a_document_is_not_older_than_what_the_viewer_has_seen() -> None:
    async def run() -> None:
        documents, store, _ = shared()
        first = asyncio.create_task(documents.get("tables", {}))
        await settled()  # it has read position 5
        store.position = 7
        later = [asyncio.create_task(documents.get("tables", {}, after="store.7.abc")) for _ in range(50)]
        await settled()
        store.go.set()
        assert (await first).position == 5
        assert {one.position for one in await asyncio.gather(*later)} == {7}
        assert store.made == 2
        assert (await documents.get("tables", {}, after="store.7.abc")).position == 7 and store.made == 2
        # A cursor that this store does not reach, of another server: made once, and given.
        assert (await documents.get("tables", {}, after="store.99.abc")).position == 7 and store.made == 3

    asyncio.run(run())


def test_the_last_one_outlives_its_second_and_only_so_many_are_kept() -> None:
    async def run() -> None:
        documents, store, clock = shared()
        store.go.set()
        await documents.get("tables", {})
        clock.seconds = 100.0
        store.down = True
        with pytest.raises(StoreError):
            await documents.get("tables", {})
        last = documents.last("tables", {})
        assert last is not None and last[1] == 100.0
        store.down = False
        for number in range(MOST):
            await documents.get("tables", {"page": number})
        assert documents.last("tables", {}) is None

    asyncio.run(run())


def test_only_what_every_role_may_see_is_shared() -> None:
    documents, _, _ = shared()
    with pytest.raises(AssertionError):
        asyncio.run(documents.get("settings", {}))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "a.-1.c", "a.1", "a.1.b.c", "a.٣.c"])
def test_what_is_no_cursor_is_before_all(text: str) -> None:
    assert position(text) == -1
