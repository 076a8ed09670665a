"""Work beside requests: a request waits a moment for it, and is told to ask again if that was not enough.

Equal requests share one errand, so a hundred viewers ask a source once. So many run at once, and so many for
each service: one dead source cannot take every thread. An errand cannot be stopped; what it calls is
bounded by `[limits]`.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from calve.app.desk import admitted
from calve.http.problem import DownError, HttpError
from calve.model.errors import CalveError, UnavailableError

KEEP_BYTES = 64 << 20  # of answers that may be fetched again


@dataclass(frozen=True, kw_only=True)
class Pending:
    """It is still under way: the same request again gets its answer."""

    seconds: float  # so far


@dataclass(kw_only=True)
class _Errand:
    done: "asyncio.Future[Any]"
    started: float
    ended: float | None = None
    services: Sequence[str] = field(default=())
    size: int = 0  # of its answer, once there is one
    failed: bool = False  # in a way that may go away


class Errands:
    """Of one event loop."""

    def __init__(
        self,
        *,
        at_once: int,
        per_service: int,
        keep_seconds: float,
        down_seconds: float,
        keep_bytes: int = KEEP_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="errand")
        self._at_once = at_once
        self._per_service = per_service
        self._keep = keep_seconds
        self._down_seconds = down_seconds
        self._keep_bytes = keep_bytes
        self._now = now
        self._errands: dict[str, _Errand] = {}
        self._down: dict[str, tuple[float, UnavailableError]] = {}

    async def result(
        self,
        key: str,
        services: Sequence[str],
        work: Callable[[], Any],
        *,
        wait_seconds: float,
        once: bool = False,
    ) -> Any | Pending:
        """What the work answered, or raised; `Pending` if that takes longer. HttpError 503 if too much is
        under way, UnavailableError at once if one of the services did not answer a moment ago. `once`: an
        answer that was fetched is not kept, so the same change again is a change again."""
        self._forget()
        errand = self._errands.get(key)
        if errand is None:
            self._refuse_what_is_down(services)
            errand = self._start(key, services, work)
        try:
            async with asyncio.timeout(wait_seconds):
                return await asyncio.shield(errand.done)
        except TimeoutError:
            if errand.done.done():  # at the last moment, or the work itself raised it
                return errand.done.result()
            return Pending(seconds=self._now() - errand.started)
        finally:
            if once and errand.done.done() and self._errands.get(key) is errand:
                del self._errands[key]

    def knows(self, key: str) -> bool:
        """Whether it is under way, or its answer is kept."""
        self._forget()
        return key in self._errands

    def running(self) -> Counter[str]:
        """How many are under way for each service."""
        return Counter(
            service for one in self._errands.values() if one.ended is None for service in one.services
        )

    def down(self) -> Counter[str]:
        """Services that did not answer a moment ago."""
        return Counter(service for service, (until, _) in self._down.items() if self._now() < until)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: str, services: Sequence[str], work: Callable[[], Any]) -> _Errand:
        running = [one.services for one in self._errands.values() if one.ended is None]
        if len(running) >= self._at_once or not admitted(running, services, self._per_service):
            raise HttpError(
                503,
                f"too many requests wait for {', '.join(services)}",
                code="server_busy",
                hint="repeat the request in a few seconds",
            )
        done = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)
        errand = _Errand(done=done, started=self._now(), services=tuple(services))
        self._errands[key] = errand
        done.add_done_callback(lambda future: self._ended(errand, future))
        return errand

    def _ended(self, errand: _Errand, future: "asyncio.Future[Any]") -> None:
        errand.ended = self._now()
        error = None if future.cancelled() else future.exception()
        errand.failed = isinstance(error, CalveError) and error.retryable
        if error is None and not future.cancelled() and isinstance(answer := future.result(), bytes):
            errand.size = len(answer)
        self._forget()
        if isinstance(error, UnavailableError):
            known = error.service in errand.services
            for service in (error.service,) if known else errand.services:
                self._down[service] = (self._now() + self._down_seconds, error)

    def _refuse_what_is_down(self, services: Sequence[str]) -> None:
        for service in services:
            until, error = self._down.get(service, (0.0, None))
            if error is not None and self._now() < until:
                left = max(1, math.ceil(until - self._now()))
                raise DownError(error, f"{error.message} (a moment ago)", left)

    def _forget(self) -> None:
        """What is old; what failed, once it may be tried again; and the oldest of too many bytes. Whoever asks for
        one of them again starts it again."""
        now = self._now()
        ended = [(one.ended, key, one) for key, one in self._errands.items() if one.ended is not None]
        ended.sort(key=lambda one: one[0])
        size = sum(one.size for _, _, one in ended)
        for at, key, one in ended:
            kept = min(self._keep, self._down_seconds) if one.failed else self._keep
            if now - at > kept or size > self._keep_bytes:
                del self._errands[key]
                size -= one.size
