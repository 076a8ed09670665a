"""The store as others see it: open one by its URL, close it when done."""

from collections.abc import Callable
from typing import Self

from calve.store.changes import Changes
from calve.store.database import Database, make_engine
from calve.store.history import History
from calve.store.leases import Leases, Workers
from calve.store.migrations.run import migrate
from calve.store.releases import Releases
from calve.store.submissions import Submissions


class SqlStore(Submissions, Leases, Changes, Releases, Workers, History):
    """`control.ports.Store` over SQLite or PostgreSQL. Safe to share between threads."""

    @property
    def database(self) -> Database:
        """For tests and benchmarks that look underneath."""
        return self._database

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(
    url: str,
    *,
    connect_seconds: float = 5.0,
    call_seconds: float = 15.0,
    clock_offset_seconds: Callable[[], float] | None = None,
) -> SqlStore:
    """Open, and make or migrate the schema where needed. `clock_offset_seconds` moves the
    database's clock for this store; tests give it."""
    engine = make_engine(url, connect_seconds=connect_seconds, call_seconds=call_seconds)
    database = Database(engine, call_seconds=call_seconds, clock_offset_seconds=clock_offset_seconds)
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database)
