"""What a server tells of itself at `/metrics`: its requests, errands, streams and SELECTs, and the facts of its store.

Who may read may read these, as every other route. A scrape never waits long for the store.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calve.app.calve import Calve
from calve.http.errands import Errands
from calve.http.stream import PATH as STREAM
from calve.http.stream import Streams
from calve.metrics.collector import StoreFacts
from calve.metrics.meters import CONTENT_TYPE, Meters
from calve.metrics.names import Told
from calve.metrics.wrappers import MeteredStore


class ServerMeters:
    def __init__(self) -> None:
        self._meters = Meters(Told.SERVER)
        self._facts: StoreFacts | None = None

    def around_store(self, store: Any) -> MeteredStore:
        return MeteredStore(store, self._meters)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._meters.count("calve_http_requests_total", route=route, method=method, status=str(status))
        if route != STREAM:  # which lasts as long as its reader likes
            self._meters.observe("calve_http_request_seconds", seconds, route=route)

    def unknown(self, reason: str) -> None:
        """A caller was refused."""
        self._meters.count("calve_auth_failures_total", reason=reason)

    def selected(self, outcome: str, seconds: float) -> None:
        self._meters.observe("calve_select_seconds", seconds, outcome=outcome)

    def route(
        self,
        calve: Calve,
        identify: Callable[[Request], Awaitable[None]],
        errands: Errands,
        streams: Streams,
    ) -> Route:
        config = calve.config
        self._facts = StoreFacts(
            lambda: calve.registry,
            expected=[(one.kind, one.table) for one in config.expect],
            lease_seconds=config.limits.lease_seconds,
        )
        self._meters.collect_also(self._facts)
        self._meters.follow("calve_streams", streams.count)

        async def answer(request: Request) -> Response:
            await identify(request)
            self._count_errands(errands)  # here: they belong to the event loop
            return Response(await asyncio.to_thread(self._meters.text), media_type=CONTENT_TYPE)

        return Route("/metrics", answer, methods=["GET"])

    def close(self) -> None:
        if self._facts is not None:
            self._facts.close()

    def _count_errands(self, errands: Errands) -> None:
        counted: Counter[tuple[str, str]] = Counter()
        for state, services in (("running", errands.running()), ("down", errands.down())):
            for service, count in services.items():
                counted[service.partition(":")[0], state] += count
        self._meters.replace(
            "calve_errands",
            [({"service_type": type, "state": state}, count) for (type, state), count in counted.items()],
        )
