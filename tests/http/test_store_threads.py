"""What only the store answers: that it does not answer is said if it does not, and only then."""

import asyncio
import threading

import pytest

from calve.http.store_threads import STORE_THREADS, StoreThreads
from calve.model.errors import StoreError, StoreUnknownError, TemporaryError


def test_a_store_that_hangs_is_said_and_its_threads_are_bounded() -> None:
    async def scene() -> None:
        threads, go = StoreThreads(answer_seconds=0.01), threading.Event()
        with pytest.raises(TemporaryError, match="did not answer within"):
            await threads.run(lambda: go.wait(30))
        with pytest.raises(StoreUnknownError, match="did not answer within"):
            await threads.run(lambda: go.wait(30), changes=True)
        for _ in range(14):
            with pytest.raises(TemporaryError):
                await threads.run(lambda: go.wait(30))
        with pytest.raises(TemporaryError, match="the store is busy"):
            await threads.run(lambda: 1)
        go.set()
        while True:  # the threads end one after the other
            try:
                assert await threads.run(lambda: 1) == 1
                break
            except TemporaryError:
                await asyncio.sleep(0)
        threads.close()

    asyncio.run(scene())


@pytest.mark.parametrize("changes", [False, True])
def test_work_that_is_slow_by_itself_is_waited_for_while_the_store_answers(changes: bool) -> None:
    async def scene() -> None:
        go, asked = threading.Event(), []

        def probe() -> None:
            asked.append(1)
            if len(asked) == 3:
                go.set()

        threads = StoreThreads(answer_seconds=0.01, probe=probe, probe_seconds=30, longest_seconds=300)
        assert await threads.run(lambda: go.wait(30), changes=changes) is True
        assert len(asked) >= 3
        threads.close()

    asyncio.run(scene())


def test_work_is_not_waited_for_longer_than_its_limit() -> None:
    async def scene() -> None:
        go = threading.Event()
        threads = StoreThreads(answer_seconds=0.01, probe=int, probe_seconds=30, longest_seconds=0.05)
        with pytest.raises(TemporaryError, match="did not answer within"):
            await threads.run(lambda: go.wait(30))
        go.set()
        threads.close()

    asyncio.run(scene())


def test_a_store_that_answers_no_question_is_down_and_is_asked_once() -> None:
    async def scene() -> None:
        go, asked = threading.Event(), []

        def hangs() -> None:
            asked.append(1)
            go.wait(30)

        threads = StoreThreads(answer_seconds=0.01, probe=hangs, probe_seconds=0.05)
        found = await asyncio.gather(
            *(threads.run(lambda: go.wait(30)) for _ in range(5)), return_exceptions=True
        )
        assert [type(one) for one in found] == [TemporaryError] * 5
        assert len(asked) == 1, "who waits for the same answer asks no second time"
        go.set()
        threads.close()

    asyncio.run(scene())


def test_a_store_that_refuses_the_question_is_down() -> None:
    async def scene() -> None:
        go = threading.Event()

        def refuses() -> None:
            raise StoreError("no such table", code="store_broken")

        threads = StoreThreads(answer_seconds=0.01, probe=refuses)
        with pytest.raises(TemporaryError, match="did not answer within"):
            await threads.run(lambda: go.wait(30))
        go.set()
        threads.close()

    asyncio.run(scene())


def test_more_than_there_are_threads_wait_while_the_store_answers() -> None:
    async def scene() -> None:
        go = threading.Event()
        threads = StoreThreads(answer_seconds=0.01, probe=int, probe_seconds=30, longest_seconds=300)
        waiting = [asyncio.create_task(threads.run(lambda: go.wait(30))) for _ in range(STORE_THREADS)]
        late = asyncio.create_task(threads.run(lambda: "late"))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*waiting) == [True] * STORE_THREADS
        assert await late == "late"
        threads.close()

    asyncio.run(scene())


def test_what_waits_is_bounded_also_while_the_store_answers() -> None:
    async def scene() -> None:
        go = threading.Event()
        threads = StoreThreads(answer_seconds=0.01, probe=int, probe_seconds=30, longest_seconds=300)
        waiting = [asyncio.create_task(threads.run(lambda: go.wait(30))) for _ in range(200)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        [error] = {str(one.exception()) for one in done}
        assert "the store is busy" in error
        go.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert STORE_THREADS <= sum(one is True for one in found) < 200
        threads.close()

    asyncio.run(scene())
