"""One database: its engine, its clock, and the two ways to run a piece of work.

`read` takes no lock and blocks no writer. `write` runs the work in one transaction, all or
nothing, and distinguishes an error before the commit from an error of the commit.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import URL, ColumnElement, Connection, Engine, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from calve.model.errors import StoreError
from calve.store.clock import database_clock
from calve.store.failures import may_run_again, translate

T = TypeVar("T")
WRITES = "calve_writes"  # the execution option by which SQLite's BEGIN becomes IMMEDIATE
_RUNS = 3  # of one transaction that was rolled back by a rival or a lost connection


class Database:
    def __init__(
        self, engine: Engine, *, call_seconds: float, clock_offset_seconds: Callable[[], float] | None = None
    ) -> None:
        self.engine = engine
        self.clock: ColumnElement[int] = database_clock(clock_offset_seconds)
        self._call_seconds = call_seconds
        self._is_sqlite = engine.dialect.name == "sqlite"
        # SQLite polls for its lock with sleeps; threads of one program queue here instead.
        self._writer = threading.Lock() if self._is_sqlite else None
        self._reading = engine if self._is_sqlite else engine.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def url(self) -> URL:
        return self.engine.url

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def now_us(self, connection: Connection) -> int:
        return connection.execute(select(self.clock)).scalar_one()

    def read(self, work: Callable[[Connection], T]) -> T:
        """One statement is one snapshot; work of several must not need them to agree."""
        for run in range(1, _RUNS + 1):
            try:
                with self._reading.connect() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                if run == _RUNS or not may_run_again(error):
                    raise translate(error, self.url) from error
        raise AssertionError("unreachable")

    def write(self, work: Callable[[Connection], T]) -> T:
        """`work` may run again after a rollback, so it must touch nothing but the database."""
        with self._one_writer():
            for run in range(1, _RUNS + 1):
                try:
                    return self._transaction(work)
                except SQLAlchemyError as error:
                    if run == _RUNS or not may_run_again(error):
                        raise translate(error, self.url) from error
        raise AssertionError("unreachable")

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        with self.engine.connect().execution_options(**{WRITES: True}) as connection:
            transaction = connection.begin()
            try:
                answer = work(connection)
            except BaseException:
                if transaction.is_active:
                    transaction.rollback()
                raise
            # If we die here, the database rolls back; if it dies here, the outcome is unknown: read back.
            try:
                transaction.commit()
            except IntegrityError:  # a deferred constraint: the database answered
                raise
            except SQLAlchemyError as error:
                raise translate(error, self.url, committing=True) from error
            return answer

    @contextmanager
    def _one_writer(self) -> Iterator[None]:
        if self._writer is None:
            yield
            return
        if not self._writer.acquire(timeout=self._call_seconds):
            raise StoreError(
                f"the store {self.url.render_as_string(hide_password=True)} is busy: other threads of this"
                f" program wrote for {self._call_seconds:g} s; nothing was changed",
                code="store_busy",
                hint="calve doctor",
            )
        try:
            yield
        finally:
            self._writer.release()

    def close(self) -> None:
        self.engine.dispose()
