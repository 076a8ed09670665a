"""One database: its engine, its clock, and the two ways to run a piece of work.

`read` takes no lock and blocks no writer. `write` runs the work in one transaction, all or
nothing, and distinguishes an error before the commit from an error of the commit.

The database's clock as an SQL expression, in microseconds since 1970.

Engines for the two databases, each call bounded.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Table,
    bindparam,
    create_engine,
    event,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from calve.model.errors import StoreError, UsageError
from calve.store.failures import may_run_again, translate

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def from_us(us: int | None) -> datetime | None:
    return None if us is None else _EPOCH + timedelta(microseconds=us)


def time_from_us(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def seconds_to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)


class _DatabaseClock(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True


@compiles(_DatabaseClock, "sqlite")
def _sqlite(*_: Any, **__: Any) -> str:
    # Milliseconds is all that SQLite has; `unixepoch(…, 'subsec')` would need 3.42.
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"


@compiles(_DatabaseClock, "postgresql")
def _postgresql(*_: Any, **__: Any) -> str:
    # statement_timestamp(), not clock_timestamp(): stable within a statement, so an index can
    # serve a comparison with it; not now(): that one stands still for the whole transaction.
    return "(CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT))"


def database_clock(offset_seconds: Callable[[], float] | None) -> ColumnElement[int]:
    """`offset_seconds` moves the clock in tests; it is asked at each execution."""
    if offset_seconds is None:
        return _DatabaseClock()
    moved = offset_seconds

    def offset_us() -> int:
        return seconds_to_us(moved())

    return _DatabaseClock() + bindparam("clock_offset_us", callable_=offset_us, type_=BigInteger)


def inserting(dialect: str, table: Table) -> Any:
    """An INSERT that may say ON CONFLICT. Not at the top: PostgreSQL's dialect is twenty modules, and a command
    that only looks at SQLite would take a tenth longer."""
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)


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


_HINT = 'set [store] url to "sqlite:///calve.db" or "postgresql://user@host/database"'
_POOL = 5
_POOL_OVERFLOW = 15


def make_engine(url: str, *, connect_seconds: float, call_seconds: float) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError("invalid store URL", code="store_url", hint=_HINT) from None
    match parsed.get_backend_name():
        case "sqlite":
            return _sqlite_engine(parsed, call_seconds)
        case "postgresql" | "postgres":
            return _postgresql_engine(parsed, connect_seconds, call_seconds)
        case other:
            raise UsageError(f"unsupported store database {other!r}", code="store_url", hint=_HINT)


def _sqlite_engine(url: URL, call_seconds: float) -> Engine:
    if not url.database or url.database == ":memory:":
        raise UsageError(
            "a store needs a file: one in memory would be lost with the program",
            code="store_url",
            hint=_HINT,
        )
    folder = Path(url.database).parent
    if not url.database.startswith("file:") and not folder.is_dir():
        raise UsageError(
            f"the store's folder {str(folder)!r} does not exist",
            code="store_folder",
            hint=f"mkdir -p {folder}",
        )
    if not url.database.startswith("file:"):
        _made_private(Path(url.database))
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        connect_args={"timeout": call_seconds, "check_same_thread": False},
        pool_size=_POOL,
        max_overflow=_POOL_OVERFLOW,
        pool_timeout=call_seconds,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        _use_wal(connection, call_seconds)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Several programs may be the first to open a file at once. SQLite refuses the change of mode to all but
    one of them without waiting, so we wait here as its own timeout does elsewhere."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _made_private(file: Path) -> None:
    """A new file is for its owner alone; SQLite gives its journals the same mode. What is there stays as
    it is, and one that cannot be made is an error of the first connection."""
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _postgresql_engine(url: URL, connect_seconds: float, call_seconds: float) -> Engine:
    try:
        import psycopg  # noqa: F401 - of an extra
    except ModuleNotFoundError:
        raise UsageError(
            "a store in PostgreSQL needs psycopg, which is not installed",
            code="postgres_not_installed",
            hint="pip install 'calve[postgres]'",
        ) from None
    call_ms = round(call_seconds * 1000)
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": max(round(connect_seconds), 2),  # libpq knows no less
            "application_name": "calve",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": call_ms,  # a peer that vanished is noticed within a call
        },
        pool_size=_POOL,
        max_overflow=_POOL_OVERFLOW,
        pool_timeout=call_seconds,
        pool_use_lifo=True,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, given: Any, named: Any) -> Any:
        from calve.store.postgres_wait import BoundedConnection

        connection = BoundedConnection.connect(*given, **named)
        connection.answer_seconds = call_seconds
        return connection

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # A worker that is stopped in a transaction must not hold a row for ever: the server ends it.
        with connection.cursor() as cursor:
            cursor.execute(
                f"SET statement_timeout = {call_ms};"
                f" SET lock_timeout = {call_ms};"
                f" SET idle_in_transaction_session_timeout = {2 * call_ms}"
            )
        connection.commit()

    return engine
