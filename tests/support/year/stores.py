"""The store of an installation, whose yesterday can be brought back: the SQL store as `support.simulator` has it, or the store in memory,
which keeps the same promises ten times as fast."""

import copy
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from calve.store.store import SqlStore
from calve.testing.memory_store import MemoryStore
from support.simulator.schedule import Schedule
from support.simulator.store import sql_store

_STATE = ("rows", "_kept", "_seen", "_tiers")


class ScheduledClock:
    """`calve.testing.clock.Clock` of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now(self) -> datetime:
        return self._schedule.clock()


class RememberedStore:
    """Either store, and copies of it."""

    def __init__(self, store: SqlStore | MemoryStore) -> None:
        self.store = cast(SqlStore, store)
        self._memory = store if isinstance(store, MemoryStore) else None

    @classmethod
    @contextmanager
    def opened(cls, schedule: Schedule, *, sql: bool) -> Iterator["RememberedStore"]:
        if not sql:
            yield cls(MemoryStore(ScheduledClock(schedule)))
            return
        with sql_store(schedule) as store:
            yield cls(store)

    @property
    def _file(self) -> Path:
        return Path(str(self.store.database.engine.url.database))

    def copy(self) -> Any:
        if self._memory is not None:
            return copy.deepcopy({name: getattr(self._memory, name) for name in _STATE})
        with sqlite3.connect(self._file) as source:
            return source.serialize()

    def restore(self, made: Any) -> None:
        """Nobody uses it meanwhile."""
        if self._memory is not None:
            for name, state in copy.deepcopy(made).items():
                setattr(self._memory, name, state)
            return
        self.store.database.close()
        for more in ("-wal", "-shm"):
            self._file.with_name(self._file.name + more).unlink(missing_ok=True)
        self._file.write_bytes(made)
