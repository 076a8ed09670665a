"""Requests never wait for a slow service: what asks one runs beside them, bounded."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from calve.http.errands import Errands, Pending
from calve.http.problem import HttpError
from calve.model.errors import UnavailableError


def made(now: Callable[[], float] = lambda: 0.0, **options: Any) -> Errands:
    given = {"at_once": 8, "per_service": 2, "keep_seconds": 30.0, "down_seconds": 5.0, "now": now, **options}
    return Errands(**given)


def test_a_request_is_told_to_ask_again_and_then_gets_the_one_answer() -> None:
    async def scene() -> None:
        errands, go, calls = made(), threading.Event(), []

        def work() -> str:
            calls.append(1)
            go.wait(30)
            return "answer"

        assert isinstance(await errands.result("k", ["s"], work, wait_seconds=0.01), Pending)
        assert isinstance(await errands.result("k", ["s"], work, wait_seconds=0.01), Pending)
        go.set()
        assert await errands.result("k", ["s"], work, wait_seconds=30) == "answer"
        assert await errands.result("k", ["s"], work, wait_seconds=30) == "answer"
        assert len(calls) == 1
        errands.close()

    asyncio.run(scene())


def test_a_change_whose_answer_was_fetched_is_made_again_when_it_is_asked_again() -> None:
    async def scene() -> None:
        errands, go, calls = made(), threading.Event(), []

        def work() -> int:
            calls.append(1)
            go.wait(30)
            return len(calls)

        assert isinstance(await errands.result("k", ["s"], work, wait_seconds=0.01, once=True), Pending)
        go.set()
        assert await errands.result("k", ["s"], work, wait_seconds=30, once=True) == 1
        assert await errands.result("k", ["s"], work, wait_seconds=30, once=True) == 2
        errands.close()

    asyncio.run(scene())


def test_an_answer_is_forgotten_after_a_while() -> None:
    async def scene() -> None:
        clock, calls = [0.0], []
        errands = made(now=lambda: clock[0])
        work = lambda: calls.append(1) or len(calls)  # noqa: E731
        assert await errands.result("k", ["s"], work, wait_seconds=30) == 1
        clock[0] = 29.0
        assert await errands.result("k", ["s"], work, wait_seconds=30) == 1
        clock[0] = 60.1
        assert await errands.result("k", ["s"], work, wait_seconds=30) == 2
        errands.close()

    asyncio.run(scene())


def test_one_dead_service_takes_no_thread_of_the_others() -> None:
    async def scene() -> None:
        errands, go = made(), threading.Event()
        for key in ("a", "b"):
            assert isinstance(
                await errands.result(key, ["dead"], lambda: go.wait(30), wait_seconds=0.01), Pending
            )
        with pytest.raises(HttpError, match="too many requests wait for dead") as refused:
            await errands.result("c", ["dead"], lambda: 1, wait_seconds=0.01)
        assert (refused.value.status, refused.value.info.retryable) == (503, True)
        assert await errands.result("d", ["alive"], lambda: 1, wait_seconds=30) == 1
        go.set()
        errands.close()

    asyncio.run(scene())


def test_what_waits_for_a_dead_source_leaves_its_catalog_to_others() -> None:
    async def scene() -> None:
        errands, go = made(), threading.Event()

        def work() -> None:
            go.wait(30)
            raise UnavailableError("gone", code="source_unavailable", service="source:dead")

        for key in ("a", "b"):
            found = await errands.result(key, ["source:dead", "catalog:lake"], work, wait_seconds=0.01)
            assert isinstance(found, Pending)
        with pytest.raises(HttpError):
            await errands.result("c", ["source:dead", "catalog:lake"], work, wait_seconds=0.01)
        for key in ("d", "e"):
            found = await errands.result(key, ["source:dead", "catalog:other"], work, wait_seconds=0.01)
            assert isinstance(found, Pending)
        with pytest.raises(HttpError):
            await errands.result("f", ["source:dead", "catalog:third"], work, wait_seconds=0.01)
        assert await errands.result("g", ["source:main", "catalog:lake"], lambda: 1, wait_seconds=30) == 1
        go.set()
        with pytest.raises(UnavailableError):
            await errands.result("a", ["source:dead", "catalog:lake"], work, wait_seconds=30)
        assert await errands.result("h", ["source:main", "catalog:lake"], lambda: 2, wait_seconds=30) == 2
        with pytest.raises(UnavailableError, match="a moment ago"):
            await errands.result("i", ["source:dead", "catalog:lake"], lambda: 3, wait_seconds=30)
        errands.close()

    asyncio.run(scene())


def test_a_service_that_did_not_answer_is_not_asked_again_at_once() -> None:
    async def scene() -> None:
        clock, calls = [0.0], []
        errands = made(now=lambda: clock[0])

        def down() -> None:
            calls.append(1)
            raise UnavailableError(
                "the catalog does not answer", code="catalog_unavailable", service="catalog:lake"
            )

        for key in ("a", "b", "c"):
            with pytest.raises(UnavailableError, match="does not answer"):
                await errands.result(key, ["catalog:lake"], down, wait_seconds=30)
        assert len(calls) == 1
        clock[0] = 5.1
        with pytest.raises(UnavailableError):
            await errands.result("d", ["catalog:lake"], down, wait_seconds=30)
        assert len(calls) == 2
        errands.close()

    asyncio.run(scene())


def test_answers_that_are_kept_are_bounded_by_their_bytes() -> None:
    async def scene() -> None:
        clock, calls = [0.0], []
        errands = made(now=lambda: clock[0], keep_bytes=100)

        def work() -> bytes:
            calls.append(1)
            return b"x" * 60

        for at, key in enumerate(("a", "b", "b", "a")):
            clock[0] = float(at)
            assert len(await errands.result(key, ["s"], work, wait_seconds=30)) == 60
        assert len(calls) == 3  # "a" made room for "b", which was kept, and was looked for again
        errands.close()

    asyncio.run(scene())


def test_what_failed_is_tried_again_once_the_service_may_be_back() -> None:
    async def scene() -> None:
        clock, calls = [0.0], []
        errands = made(now=lambda: clock[0])

        def work() -> str:
            calls.append(1)
            if len(calls) == 1:
                raise UnavailableError("down", code="catalog_unavailable", service="catalog:lake")
            return "up"

        with pytest.raises(UnavailableError):
            await errands.result("k", ["catalog:lake"], work, wait_seconds=30)
        clock[0] = 3.0
        with pytest.raises(UnavailableError) as again:
            await errands.result("other", ["catalog:lake"], work, wait_seconds=30)
        assert getattr(again.value, "retry_seconds", None) == 2
        clock[0] = 5.1
        assert await errands.result("k", ["catalog:lake"], work, wait_seconds=30) == "up"
        errands.close()

    asyncio.run(scene())
