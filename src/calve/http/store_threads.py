"""Threads for what only the store answers: a matter of milliseconds, or it is down.

That the store does not answer is said only if it does not: on a machine that is slow itself, a page that loads its code
or counts all work for the first time takes longer, and is waited for as long as the store answers a small question.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from calve.model.errors import CalveError, StoreUnknownError, TemporaryError

STORE_THREADS = 16
_MOST = 4 * STORE_THREADS  # that run or wait for a thread


class StoreThreads:
    """Of one event loop."""

    def __init__(
        self,
        *,
        answer_seconds: float,
        probe: Callable[[], Any] | None = None,
        probe_seconds: float = 1.0,
        longest_seconds: float = 15.0,
    ) -> None:
        """`probe` reads a row of the store, and is answered within its seconds. Without one nothing is waited for longer
        than `answer_seconds`."""
        self._pool = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store")
        self._probes = ThreadPoolExecutor(1, thread_name_prefix="store-probe")
        self._seconds = answer_seconds
        self._probe = probe
        self._probe_seconds = probe_seconds
        self._longest = longest_seconds
        self._probing: asyncio.Future[Any] | None = None
        self._known_at = 0.0  # when it is clear whether that is answered
        self._busy = 0

    async def run(self, work: Callable[[], Any], *, changes: bool = False) -> Any:
        """TemporaryError if the store does not answer, or too many wait for it; for a change StoreUnknownError, as it
        may yet happen."""
        if self._busy >= STORE_THREADS and (not await self._store_answers() or self._busy >= _MOST):
            raise TemporaryError(
                "the store is busy", code="store_slow", hint="repeat the request", service="store"
            )
        self._busy += 1
        loop = asyncio.get_running_loop()
        until = loop.time() + self._longest
        done = loop.run_in_executor(self._pool, copy_context().run, work)
        done.add_done_callback(self._ended)
        while not await _settled(done, self._seconds):
            if loop.time() < until and await self._store_answers():
                continue
            if not done.done():
                raise self._slow(changes)
        return done.result()

    async def _store_answers(self) -> bool:
        """One question at a time, however many wait. Where it hangs the next one knows at once."""
        if self._probe is None:
            return False
        loop = asyncio.get_running_loop()
        if self._probing is None or self._probing.done():
            self._probing = loop.run_in_executor(self._probes, self._probe)
            self._probing.add_done_callback(_seen)
            self._known_at = loop.time() + self._probe_seconds
        probing = self._probing
        if not await _settled(probing, self._known_at - loop.time()):
            return False
        return not probing.cancelled() and probing.exception() is None

    def _slow(self, changes: bool) -> CalveError:
        message = f"the store did not answer within {self._seconds:g} s"
        if changes:
            hint = "repeat the request with the same Idempotency-Key"
            return StoreUnknownError(message, code="store_slow", hint=hint, service="store")
        return TemporaryError(message, code="store_slow", hint="calve doctor", service="store")

    def close(self) -> None:
        for pool in (self._pool, self._probes):
            pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        self._busy -= 1
        _seen(future)


async def _settled(future: "asyncio.Future[Any]", seconds: float) -> bool:
    """Whether it has ended by then, well or not."""
    done, _ = await asyncio.wait({future}, timeout=max(seconds, 0.0))
    return bool(done)


def _seen(future: "asyncio.Future[Any]") -> None:
    """Also where nobody waits for it any more."""
    if not future.cancelled():
        future.exception()
