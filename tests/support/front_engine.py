"""The engine behind the front: chdb connections to one folder, several at a time.

One connection runs one statement at a time; a request takes one from the pool and gives it
back as it was. Query ids are chdb's own, so each statement carries a comment by which the
client's id finds it, for KILL QUERY and `system.processes`.
"""

import contextlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from calve.clickhouse.sql import tokens
from support.front_access import EVERYTHING

_WITHOUT_HEADER = frozenset({"Native", "RowBinary", "Values", "LineAsString", "RawBLOB"})
_IN_LINES = ("TabSeparated", "TSV", "CSV", "JSONEachRow", "JSONCompactEachRow", "JSONStringsEachRow")
_STREAMED = re.compile(r"\s*(?:SELECT|WITH|\()", re.IGNORECASE)
_COMMENTS = re.compile(r"\A(?:\s+|--[^\n]*\n|/\*.*?\*/)+", re.DOTALL)
_SESSION_ONLY = re.compile(r"\s*(?:SET\s|CREATE\s+TEMPORARY\s)", re.IGNORECASE)


class EngineError(Exception):
    """The engine's message, `Code: N. DB::Exception: …`."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One request, understood."""

    sql: str
    format: str
    database: str
    query_id: str
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None  # of an INSERT … FORMAT …
    readonly: int = 0
    session: str = ""
    role: str = EVERYTHING


class FrontEngine:
    """The folder and its connections."""

    def __init__(self, folder: str, stand_ins: Mapping[str, str], *, roles: bool = False) -> None:
        from chdb import connect  # not at the top: a fork after this import hangs

        self._connect: Callable[[], Any] = lambda: connect(folder)
        self._stand_ins = stand_ins
        self._roles = roles  # whether the engine was configured with any
        self._lock = threading.Lock()
        self._idle: dict[int, list[Any]] = {}
        self._sessions: dict[str, tuple[threading.Lock, Any]] = {}
        self._running: dict[str, str] = {}  # the client's query id -> our mark
        self._first = self._connect()  # keeps the folder open
        self._first.query("CREATE DATABASE IF NOT EXISTS `default`")

    def run(self, statement: Statement) -> Iterator[bytes]:
        """Pieces of the result. Nothing is asked of the engine before the first `next`. Closing the
        iterator early cancels the query."""
        with (
            self._connection(statement) as connection,
            self._settings(connection, statement),
            self._known(statement) as mark,
        ):
            try:
                yield from self._pieces(connection, statement, mark)
            except EngineError as error:
                raise _named(error, statement.role) from None

    def _put_on(self, connection: Any, role: str) -> None:
        if self._roles:
            connection.query(f"SET ROLE {tokens.name(role)}")

    def _pieces(self, connection: Any, statement: Statement, mark: str) -> Iterator[bytes]:
        sql = self._translated(statement.sql)
        if statement.data is not None:
            yield from self._insert(connection, sql, statement)
            return
        marked = f"/* {mark} */ {sql}"
        with _engine_errors():
            header = _header_lines(statement.format)
            if header is None or not _STREAMED.match(_COMMENTS.sub("", sql)):
                yield bytes(
                    connection.query(marked, statement.format, params=dict(statement.parameters)).bytes()
                )
                return
            result = connection.send_query(marked, statement.format, params=dict(statement.parameters))
            try:
                for number, piece in enumerate(result):
                    yield _without_lines(bytes(piece.bytes()), header if number else 0)
            finally:
                with contextlib.suppress(RuntimeError):
                    result.cancel()

    def _insert(self, connection: Any, sql: str, statement: Statement) -> Iterator[bytes]:
        with _engine_errors(), connection.send_insert(sql, statement.format) as target:
            if statement.data:
                target.append(statement.data)
            target.finish()
        yield b""

    def _translated(self, sql: str) -> str:
        """Stand-ins for what the embedded engine has not, and its own ids for the client's."""
        for text, stand_in in self._stand_ins.items():
            sql = sql.replace(text, stand_in)
        with self._lock:
            running = dict(self._running)
        for query_id, mark in running.items():
            literal = tokens.string(query_id)
            if literal in sql:
                sql = sql.replace(literal, tokens.string(self._own_id(mark) or query_id))
        return sql

    def _own_id(self, mark: str) -> str:
        with self._borrowed(0) as connection:
            found = connection.query(
                f"SELECT query_id FROM system.processes WHERE startsWith(query, '/* {mark} */')", "TSVRaw"
            )
            return bytes(found.bytes()).decode().strip()

    @contextmanager
    def _known(self, statement: Statement) -> Iterator[str]:
        mark = f"front-{secrets.token_hex(8)}"
        with self._lock:
            if statement.query_id in self._running:
                raise EngineError(
                    f"Code: 216. DB::Exception: Query with id = {statement.query_id} is already running. "
                    "(QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING)"
                )
            self._running[statement.query_id] = mark
        try:
            yield mark
        finally:
            with self._lock:
                del self._running[statement.query_id]

    @contextmanager
    def _connection(self, statement: Statement) -> Iterator[Any]:
        if not statement.session:
            with self._borrowed(statement.readonly) as connection:
                yield connection
            return
        with self._lock:
            if statement.session not in self._sessions:
                self._sessions[statement.session] = (threading.Lock(), self._new(statement.readonly))
            lock, connection = self._sessions[statement.session]
        if not lock.acquire(blocking=False):
            raise EngineError(
                f"Code: 373. DB::Exception: Session {statement.session} is locked by a concurrent client. "
                "(SESSION_IS_LOCKED)"
            )
        try:
            yield connection
        finally:
            lock.release()

    @contextmanager
    def _borrowed(self, readonly: int) -> Iterator[Any]:
        with self._lock:
            idle = self._idle.setdefault(readonly, [])
            connection = idle.pop() if idle else None
        connection = connection or self._new(readonly)
        try:
            yield connection
        finally:
            with self._lock:
                idle.append(connection)

    def _new(self, readonly: int) -> Any:
        connection = self._connect()
        if readonly:  # cannot be taken back, so such connections are a pool of their own
            connection.query(f"SET readonly = {int(readonly)}")
        return connection

    @contextmanager
    def _settings(self, connection: Any, statement: Statement) -> Iterator[None]:
        with _engine_errors():
            self._put_on(connection, EVERYTHING)  # a server asks no right for the database of a request
            connection.query(f"USE {tokens.name(statement.database)}")
            self._put_on(connection, statement.role)
            if statement.settings:
                pairs = ", ".join(
                    f"{key} = {tokens.string(value)}" for key, value in statement.settings.items()
                )
                connection.query(f"SET {pairs}")
        try:
            yield
        finally:
            if statement.settings and not (statement.session and _SESSION_ONLY.match(statement.sql)):
                connection.query("SET " + ", ".join(f"{key} = DEFAULT" for key in statement.settings))
            self._put_on(connection, EVERYTHING)


def _named(error: EngineError, role: str) -> EngineError:
    """With the account's name in it, where the engine knows but one."""
    return EngineError(str(error).replace("DB::Exception: default: ", f"DB::Exception: {role}: ", 1))


def _header_lines(format_name: str) -> int | None:
    """How many lines each streamed piece begins with again, as if it were an answer of its own; None
    for a format whose pieces cannot be put together."""
    if format_name in _WITHOUT_HEADER:
        return 0
    if format_name.startswith(_IN_LINES):
        return (
            2 if format_name.endswith("WithNamesAndTypes") else 1 if format_name.endswith("WithNames") else 0
        )
    return None


def _without_lines(piece: bytes, lines: int) -> bytes:
    return piece.split(b"\n", lines)[lines] if lines and piece else piece


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # chdb's own root is one too
        text = str(error)
        start = text.find("Code: ")
        raise EngineError(text[start:] if start >= 0 else f"Code: 1000. DB::Exception: {text}") from None
