"""The real SQL store, in a file in memory, on the virtual clock; and how one program reaches it.

SQLite asks the system for the time in one function of its own; here that function is another.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import create_engine, event

from calve.control.registry import ServedStore
from calve.model.errors import StoreError, StoreUnknownError
from calve.model.process import Event, Pin, Process, ProcessId, ProcessQuery
from calve.model.states import PinState
from calve.store import open_store
from calve.store.store import SqlStore
from calve.testing.faults import REGISTRY_CALLS, STORE_CALLS
from support.simulator.schedule import BEGIN, Schedule
from support.simulator.weather import Weather

SERVICE = "store"
_WRITES = STORE_CALLS | REGISTRY_CALLS
_MEMORY = Path("/dev/shm")
_UNIX_EPOCH_DAY = 2440587.5  # as a Julian day


@contextmanager
def sql_store(schedule: Schedule) -> Iterator[SqlStore]:
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="calve-sim-", dir=where) as folder:
        file = Path(folder) / "calve.db"
        shutil.copyfile(_empty(), file)
        store = open_store(f"sqlite:///{file}")
        store.database.close()  # the next connections are ours

        # One thread: nobody writes while something is read, so a read needs no transaction of its own.
        reader = create_engine(store.database.url, isolation_level="AUTOCOMMIT")

        @event.listens_for(reader, "connect")
        @event.listens_for(store.database.engine, "connect")
        def _ours(connection: sqlite3.Connection, _record: Any) -> None:
            connection.execute("PRAGMA synchronous = OFF")
            connection.create_function(
                "julianday", 1, lambda _: (BEGIN.timestamp() + schedule.now) / 86400.0 + _UNIX_EPOCH_DAY
            )

        _quickened(store, schedule)
        try:
            with reader.connect() as reading:
                database: Any = store.database
                database.read = lambda work: work(reading)
                yield store
        finally:
            reader.dispose()
            store.close()


def _quickened(store: SqlStore, schedule: Schedule) -> None:
    """The same answers with less making of statements: it was most of what a history cost."""
    database: Any = store.database
    write, writes = database.write, [0]

    def counted(work: Any) -> Any:
        writes[0] += 1
        return write(work)

    database.write, database.writes = counted, writes
    quick: Any = store
    quick.now = schedule.clock
    quick.needs_statement = cache(store.needs_statement)
    choose = lru_cache(maxsize=64)(store.choose_statement)

    def chosen(worker: Any, needs: Any, *rest: Any) -> Any:
        return choose(worker, tuple(needs), *rest)

    quick.choose_statement = chosen


def writes_of(store: SqlStore) -> Callable[[], int]:
    """How many transactions there have been: what was read since the last one is still true."""
    database: Any = store.database
    return lambda: int(database.writes[0])


@cache
def _empty() -> Path:
    """The schema, made once."""
    file = Path(tempfile.mkdtemp(prefix="calve-sim-")) / "empty.db"
    store = open_store(f"sqlite:///{file}")
    store.close()
    return file


class AllStores:
    """One store or two, as one who looks at all of them sees it. A catalog is shared by stores that do not know each
    other."""

    def __init__(self, stores: Sequence[SqlStore]) -> None:
        self.stores = tuple(stores)
        self._writes = [writes_of(store) for store in stores]
        self._of: dict[ProcessId, SqlStore] = {}
        self._rows: tuple[int, list[Process]] = -1, []

    def written(self) -> int:
        return sum(count() for count in self._writes)

    def processes(self) -> list[Process]:
        """Read anew only where something was written."""
        if self._rows[0] != self.written():
            found = {store: store.processes(ProcessQuery(limit=1000)) for store in self.stores}
            self._of |= {row.id: store for store, rows in found.items() for row in rows}
            self._rows = self.written(), [row for rows in found.values() for row in rows]
        return self._rows[1]

    def of(self, process_id: ProcessId) -> SqlStore:
        if process_id not in self._of:
            self.processes()
        return self._of[process_id]

    def changed(self, store: SqlStore) -> None:
        """What was read of it is not true any more."""
        database: Any = store.database
        database.writes[0] += 1

    def plan(self, process_id: ProcessId) -> str | None:
        return self.of(process_id).plan(process_id)

    def events(self, process_id: ProcessId) -> list[Event]:
        return self.of(process_id).events(process_id, limit=10_000)

    def pins(self, states: frozenset[PinState] = frozenset(PinState)) -> list[Pin]:
        return [pin for store in self.stores for pin in store.pins(states=states)]


class Reached:
    """Reads wait for nobody; each write is an instant in which the program may die."""

    def __init__(self, store: SqlStore, weather: Weather) -> None:
        self.store = store
        self.weather = weather

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if name in _WRITES:
            return lambda *args, **kwargs: self.weather.call(
                "store.write",
                lambda: attribute(*args, **kwargs),
                failed=_failed,
                lost=_lost,
                latency=0.001,
                service=SERVICE,
            )
        if not callable(attribute):
            return attribute
        return lambda *args, **kwargs: self.weather.call(
            "store.read", lambda: attribute(*args, **kwargs), failed=_failed, service=SERVICE
        )


def _failed() -> StoreError:
    return StoreError("the store does not answer", code="store_unreachable")


def _lost() -> StoreUnknownError:
    return StoreUnknownError("the store did not acknowledge", code="store_unknown")


def reached(store: SqlStore, weather: Weather) -> ServedStore:
    return cast(ServedStore, Reached(store, weather))
