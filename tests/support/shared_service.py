"""One source and one set of executors for many worker processes, over a Unix socket.

A worker process is then cheap to start and to kill: the engine's processes, which take seconds to
start, stay. As on a cluster, an attempt whose worker was killed goes on, and leaves its receipt (D4).

    with SharedService(kept_source, local_runner, folder / "socket") as service:
        … in other processes: RemoteSource(service.address), RemoteRunner(service.address)
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calve.clickhouse.embedded.base import EngineSession, EngineSource
from calve.clickhouse.source import Disk, LiveSource, Session
from calve.control.ports import Runner, TaskOrder, TaskResult

_CLOSED = (EOFError, ConnectionError, OSError)


class SharedService:
    """Serves until the block ends."""

    def __init__(self, source: LiveSource, runner: Runner | None, address: Path) -> None:
        self.address = str(address)
        self._source, self._runner = source, runner
        self._visiting = threading.Lock()

    def __enter__(self) -> Self:
        self._listener = Listener(self.address, family="AF_UNIX")
        threading.Thread(target=self._accept, daemon=True, name="shared-service").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Any) -> None:
        with contextlib.suppress(*_CLOSED), connection:
            what, given = connection.recv()
            if what == "visit":
                self._visit(connection)
            elif self._runner is None:
                raise AssertionError("this service has no runner")
            elif what == "run":
                self._run(self._runner, connection, *given)
            else:
                self._runner.cancel(*given)

    def _visit(self, connection: Any) -> None:
        """One visit at a time. A client that was killed ends its visit; its statement is not cut short."""
        with self._visiting, self._source.visit() as session:
            connection.send((session.source, session.configured_id, session.patience_seconds))
            while True:
                name, args, kwargs = connection.recv()
                try:
                    answer: tuple[bool, Any] = (True, getattr(session, name)(*args, **kwargs))
                except Exception as error:  # noqa: BLE001 - it belongs to the client
                    answer = (False, error)
                connection.send(answer)

    def _run(self, runner: Runner, connection: Any, group: str, orders: Sequence[TaskOrder]) -> None:
        def on_result(result: TaskResult) -> None:
            with contextlib.suppress(*_CLOSED):  # the worker was killed: its executor does not know
                connection.send(result)

        runner.run(group, orders, on_result)
        connection.send(None)


class RemoteSource(EngineSource):
    def __init__(self, address: str, name: str = "main") -> None:
        self.name = name
        self._address = address

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(("visit", ()))
            yield RemoteSession(connection, *connection.recv())


class RemoteSession(EngineSession):
    def __init__(
        self, connection: Connection, source: str, configured_id: str | None, patience: float
    ) -> None:
        self._connection = connection
        self.source, self.configured_id, self.patience_seconds = source, configured_id, patience

    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self._ask("rows", sql, dict(settings or {}), what, seconds)
        return answer

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] | None = None,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None:
        self._ask("execute", sql, dict(settings or {}), what, seconds)

    def disks(self) -> tuple[Disk, ...]:
        answer: tuple[Disk, ...] = self._ask("disks")
        return answer

    def _ask(self, name: str, *args: Any) -> Any:
        self._connection.send((name, args, {}))
        ok, answer = self._connection.recv()
        if not ok:
            raise answer
        return answer


class RemoteRunner:
    """`Runner`: the orders run where the service is."""

    def __init__(self, address: str, slots: int = 2) -> None:
        self.slots = slots
        self._address = address

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(("run", (group, list(orders))))
            while (result := connection.recv()) is not None:
                on_result(result)

    def cancel(self, group: str) -> None:
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(("cancel", (group,)))

    def close(self) -> None:
        """The executors belong to the service."""
