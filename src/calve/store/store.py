"""The store as others see it: opened by its URL, brought to the schema of this program, closed when done.

Openers may race: one of them migrates. Steps only add, so that older programs go on beside the new schema;
still it is not changed under running ones unless that is asked for.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import resources
from pathlib import PurePath
from typing import Self

from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from calve.model.errors import UsageError
from calve.store.attempts import Attempts
from calve.store.changes import Changes
from calve.store.database import Database, make_engine, seconds_to_us
from calve.store.drain import Releases, SqlHistory
from calve.store.failures import translate
from calve.store.leases import SqlLeases
from calve.store.notices import Notices
from calve.store.sightings import Sightings, SqlSessions
from calve.store.submissions import Submissions
from calve.store.tables import schema_version, servers, workers
from calve.store.tiers import SqlTiers

_SHOWN = 5  # workers
_STEP_SECONDS = 3600  # for one statement of a migration
_ADVISORY_LOCK = 0x63616C7665  # "calve": any constant that no other program is likely to take


def steps(dialect: str) -> list[tuple[int, str]]:
    """Number and SQL of each step, in order. Files are named `0001.<dialect>.sql`."""
    folder = resources.files("calve.store.migrations")
    found = [
        (int(PurePath(item.name).name.split(".")[0]), item.read_text(encoding="utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(f".{dialect}.sql")
    ]
    return sorted(found)


def newest() -> int:
    return steps("sqlite")[-1][0]


def migrate(database: Database, *, upto: int | None = None) -> None:
    """Apply what is missing, one transaction a step."""
    target = newest() if upto is None else upto
    try:
        version = database.read(current_version)
        while version < target:
            version = database.write(lambda connection: _next_step(connection, database.dialect, target))
    except SQLAlchemyError as error:
        raise translate(error, database.url) from error
    if version > newest():
        raise UsageError(
            f"the store {database.url.render_as_string(hide_password=True)} has schema {version};"
            f" this program knows schemas up to {newest()}: a newer Calve has opened it",
            code="store_too_new",
            hint="pip install --upgrade calve",
        )


def check_running(database: Database, seconds: float) -> None:
    """Refuse to change the schema under older workers and servers that were heard of so lately."""
    version = database.read(current_version)
    if not 0 < version < newest():
        return
    running = database.read(lambda connection: _heard_of(connection, database, seconds))
    if running:
        raise UsageError(
            f"the store {database.url.render_as_string(hide_password=True)} has schema {version}, this version"
            f" needs schema {newest()}, and older workers are running: {', '.join(running[:_SHOWN])}"
            f"{', …' if len(running) > _SHOWN else ''}; nothing was changed",
            code="older_workers",
            hint="stop them and wait a minute, or give `calve --migrate` once: they go on beside the new schema",
        )


def _heard_of(connection: Connection, database: Database, seconds: float) -> list[str]:
    """By name; in tables that the older schema may not have."""
    lately = database.clock - seconds_to_us(seconds)
    return [
        str(name)
        for table in (workers, servers)
        if inspect(connection).has_table(table.name)
        for name in connection.execute(
            select(table.c.id).where(table.c.heartbeat_at > lately).order_by(table.c.id)
        ).scalars()
    ]


def current_version(connection: Connection) -> int:
    """0 for an empty database."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    return connection.execute(select(schema_version.c.version)).scalar_one_or_none() or 0


def _next_step(connection: Connection, dialect: str, target: int) -> int:
    """One step under a lock; the version after it. Another program may have made it already."""
    if dialect == "postgresql":  # SQLite's immediate transaction is that lock already
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        # An index of a large table takes longer than a call may; waiting for a lock still may not.
        connection.execute(text(f"SET LOCAL statement_timeout = '{_STEP_SECONDS}s'"))
    version = current_version(connection)
    due = [(number, sql) for number, sql in steps(dialect) if version < number <= target]
    if not due:
        return max(version, target)
    number, sql = due[0]
    # If we die here, the transaction and with it the whole step never were.
    with _patience(connection, dialect):
        for statement in statements(sql):
            connection.exec_driver_sql(statement)
    if version == 0:
        connection.execute(insert(schema_version).values(single=1, version=number))
    else:
        connection.execute(update(schema_version).values(version=number))
    return number


def _patience(connection: Connection, dialect: str) -> AbstractContextManager[None]:
    if dialect != "postgresql":
        return nullcontext()
    from calve.store.postgres_wait import patient

    return patient(connection.connection.dbapi_connection, _STEP_SECONDS)


def statements(sql: str) -> list[str]:
    """Statements end with a semicolon at the end of a line."""
    return [part.strip() for part in sql.split(";\n") if part.strip()]


class SqlStore(
    Submissions, SqlLeases, Changes, Releases, SqlHistory, Notices, Attempts, Sightings, SqlSessions, SqlTiers
):
    """`control.ports.Store` and `control.registry.Registry` over SQLite or PostgreSQL. Safe to share
    between threads."""

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
    migrate_beside_workers: bool = False,
    fresh_seconds: float = 60.0,
    clock_offset_seconds: Callable[[], float] | None = None,
) -> SqlStore:
    """Open, and make or migrate the schema where needed. UsageError (code `older_workers`) if older programs
    use the store, unless `migrate_beside_workers`. `clock_offset_seconds` moves the database's clock for this
    store; tests give it."""
    engine = make_engine(url, connect_seconds=connect_seconds, call_seconds=call_seconds)
    database = Database(engine, call_seconds=call_seconds, clock_offset_seconds=clock_offset_seconds)
    try:
        if not migrate_beside_workers:
            check_running(database, fresh_seconds)
        migrate(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database)
