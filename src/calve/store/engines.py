"""Engines for the two databases, each call bounded.

SQLite serves workers on one host: WAL, so that readers and the one writer do not wait for
each other; immediate transactions, so that a writer waits at its start and never half-way;
`synchronous=FULL`, because a pin or a publish that is journaled must still be journaled
after a power cut (NORMAL may forget the last commits in WAL mode, and with them a FREEZE).
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from calve.model.errors import UsageError
from calve.store.database import WRITES

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
            return _sqlite(parsed, call_seconds)
        case "postgresql" | "postgres":
            return _postgresql(parsed, connect_seconds, call_seconds)
        case other:
            raise UsageError(f"unsupported store database {other!r}", code="store_url", hint=_HINT)


def _sqlite(url: URL, call_seconds: float) -> Engine:
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
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _made_private(file: Path) -> None:
    """A new file is for its owner alone; SQLite gives its journals the same mode. What is there stays as
    it is, and one that cannot be made is an error of the first connection."""
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _postgresql(url: URL, connect_seconds: float, call_seconds: float) -> Engine:
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
