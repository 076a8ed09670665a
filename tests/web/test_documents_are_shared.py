"""A hundred viewers of one page cost as one, and nobody is shown less than he has seen."""

import asyncio
import json
from typing import Any

import pytest

from calve.model.errors import StoreError
from calve.web.documents import MOST, Documents, position
from calve.web.prints import KEY, NAME, Prints, filled, token_blank


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


def test_equal_pages_are_printed_once() -> None:
    async def run() -> None:
        prints, made = Prints(), list[str]()

        def printed(role: str) -> bytes:
            made.append(role)
            return role.encode()

        roles = ["viewer", "admin"] * 10
        found = await asyncio.gather(*(prints.get(role, lambda role=role: printed(role)) for role in roles))  # type: ignore[misc]
        assert [one.decode() for one in found] == roles and sorted(made) == ["admin", "viewer"]

    asyncio.run(run())


def test_a_page_that_cannot_be_printed_is_an_error_for_each_who_asked() -> None:
    async def run() -> None:
        prints = Prints()

        def fails() -> bytes:
            raise ValueError("no such key")

        found = await asyncio.gather(*(prints.get("page", fails) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 3

    asyncio.run(run())


def test_each_viewer_has_his_own_name_keys_and_tokens_in_it() -> None:
    keys = iter(("k1", "k2"))
    page = f"<bdi>{NAME}</bdi> {KEY} {KEY} {token_blank('sign-out')} {token_blank('backup_create')}".encode()
    found = filled(page, name="a<b", key=lambda: next(keys), token=lambda action: f"token of {action}")
    assert found == b"<bdi>a&lt;b</bdi> k1 k2 token of sign-out token of backup_create"
