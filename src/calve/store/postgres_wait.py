"""A connection to PostgreSQL that waits for an answer no longer than its limit, even if nobody says anything.

The server bounds its statements, and the kernel notices a peer that vanished. Neither helps against a peer that lives and
says nothing: a pooler or a proxy that lost its server, or an answer on the way.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

_MORE_SECONDS = 2.0  # than the server's own bound, whose answer says more


class BoundedConnection(psycopg.Connection[Any]):
    answer_seconds: float = float("inf")

    def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
        return super().wait(self._bounded(gen), *given, **named)

    def _bounded(self, gen: Any) -> Any:
        """The same steps. psycopg asks several times a second whether there is anything to do."""
        until = time.monotonic() + self.answer_seconds + _MORE_SECONDS
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= until:
                    self.pgconn.finish()  # what may still come is an answer to nobody
                    raise psycopg.OperationalError(f"no answer within {self.answer_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            return ended.value


@contextmanager
def patient(connection: Any, seconds: float) -> Iterator[None]:
    """For statements that may take longer than a call. A connection of another kind is left alone."""
    if not isinstance(connection, BoundedConnection):
        yield
        return
    before, connection.answer_seconds = connection.answer_seconds, seconds
    try:
        yield
    finally:
        connection.answer_seconds = before
