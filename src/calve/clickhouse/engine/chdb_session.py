"""One chdb session: the only file that imports chdb, and only when a session is opened (W10)."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from calve.clickhouse.sql import tokens
from calve.clickhouse.sql.rows import FORMAT

NO_SETTINGS: Mapping[str, str] = {}


class EngineError(Exception):
    """The engine's own message; the caller translates it."""


class ChdbSession:
    """A session over one folder, made if it is missing. One statement at a time, from any thread."""

    def __init__(self, folder: Path, config: str = "") -> None:
        """`config` is a configuration file of ClickHouse's own."""
        from chdb.session import Session  # not at the top: a fork after this import hangs

        self._lock = threading.RLock()
        try:
            self._session = Session(
                f"{folder}?{urlencode({'config-file': config})}" if config else str(folder)
            )
        except RuntimeError as error:
            raise EngineError(str(error)) from None

    def run(self, sql: str, settings: Mapping[str, str] = NO_SETTINGS, form: str = FORMAT) -> bytes:
        """Run one statement; its rows in a format, by default the one that `rows.decode` reads."""
        with self._lock, self._with_settings(settings):
            return self._query(sql, form)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _with_settings(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Settings for one statement. SET and back, since a SETTINGS clause cannot be added to a
        statement that has one already, and does not reach every part of an INSERT … SELECT."""
        if not settings:
            yield
            return
        self._query("SET " + ", ".join(f"{key} = {tokens.string(value)}" for key, value in settings.items()))
        try:
            yield
        finally:
            self._query("SET " + ", ".join(f"{key} = DEFAULT" for key in settings))

    def _query(self, sql: str, form: str = FORMAT) -> bytes:
        try:
            return bytes(self._session.query(sql, form).bytes())
        except RuntimeError as error:  # the root of chdb's own errors too
            raise EngineError(str(error)) from None
