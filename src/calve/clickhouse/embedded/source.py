"""An embedded source: one ClickHouse data folder (`chdb://path`), opened briefly by a child process.

This program never imports the engine: Spark's driver and worker fork, and a fork after that
import hangs (W10). The child holds the folder's lock for as long as a visit lasts, so while
inside, nobody else changes a part, a freeze or a table there. Merges are stopped first:
looking at a source changes nothing in it.
"""

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calve.clickhouse import errors, tables
from calve.clickhouse.embedded.base import EngineSession, EngineSource
from calve.clickhouse.embedded.host import Answer, Gate, HostDied, HostProcess, HostTimeout, gate_of, spare
from calve.clickhouse.engine.engine import NO_SETTINGS, SETTINGS, decode
from calve.clickhouse.errors import SourceBusyError
from calve.clickhouse.pins import pin, shadow
from calve.clickhouse.source import Disk
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, PermanentError, TemporaryError, UsageError

SCHEME = "chdb://"
_POLL_SECONDS = 0.1
_FUNCTIONS = "user_defined"
_STATUS = "status"  # the file that the engine locks
_PID = re.compile(r"PID: (\d+)")
# Another server instance in same directory: the engine says so only where it prints.
_LOCKED = "Cannot lock file"
_NOT_CONFIGURED = re.compile(r"UNKNOWN_POLICY|UNKNOWN_DISK")
# Each visit would compile the questions about parts anew, 60 ms of CPU for answers of a few rows.
_INTERPRETED = {
    "compile_expressions": "0",
    "compile_aggregate_expressions": "0",
    "compile_sort_description": "0",
}


def folder_of(url: str) -> Path:
    """The folder that a `chdb://` URL names."""
    path = url.removeprefix(SCHEME)
    if path == url or not path:
        raise UsageError(
            f"invalid embedded source {url!r}",
            code="source_url",
            hint='give the folder as url = "chdb:///path/to/folder"',
        )
    return Path(path)


class EmbeddedSource(EngineSource):
    """`[source.<name>]` with a `chdb://` URL."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        configured_id: str | None = None,
        engine_config: str = "",
        busy_seconds: float = 20.0,
        query_seconds: float = 300.0,
        create: bool = False,
    ) -> None:
        self.name = name
        self.folder = folder
        self._configured_id = configured_id
        self._engine_config = engine_config  # ClickHouse's own file: disks, storage policies
        self._busy_seconds = busy_seconds
        self._query_seconds = query_seconds
        self._create = create  # make the folder if it is missing: for a demo, never for a source

    @property
    def has_config(self) -> bool:
        return bool(self._engine_config)

    @contextmanager
    def visit(self) -> Iterator["EmbeddedSession"]:
        """Open the folder, for as long as the block lasts."""
        self._check_folder()
        gate = gate_of(self.folder)
        if not gate.enter(self._query_seconds):
            raise SourceBusyError(
                f"source {self.name} ({self.folder}) was in use by this program for {self._query_seconds:g} s",
                code="source_busy",
            )
        session: EmbeddedSession | None = None
        try:
            session = EmbeddedSession(self, self._enter(gate), self._query_seconds, self._configured_id)
            yield session
        finally:
            gate.leave(session.end() if session is not None else None)

    def establish(self) -> None:
        folder = self.folder
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            # if we die here, an empty data folder is left: the next run uses it
            (folder / "metadata").mkdir(parents=True, exist_ok=True)

    def release(self, name: str, detail: str) -> None:
        """On a disk of files UNFREEZE removes the folder of links and does nothing else, so where the folder is
        free that is done here, without an engine: opening one costs more than all else of a release."""
        roots = {Path(root).resolve() for root in pin.journaled_roots(detail)}
        if roots == {self.folder.resolve()}:  # none are journaled of a pin that was not taken to its end
            with _held(self.folder) as is_held:
                if is_held:
                    # if we die here, some links are left: the next try removes them
                    shadow.remove([self.folder], name)
                    return
        super().release(name, detail)

    def _enter(self, gate: Gate) -> HostProcess:
        host = gate.take_host()
        return host if host is not None else self._open()

    def _open(self) -> HostProcess:
        """A host with the folder open. The lock is looked at before a child is started for nothing,
        and a child that another process was faster than is tried again."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            if not _is_locked(self.folder):
                host = spare.take(fresh=bool(self._engine_config))
                if self._opened(host):
                    return host
            if time.monotonic() >= deadline:
                raise self._busy()
            time.sleep(_POLL_SECONDS)

    def _opened(self, host: HostProcess) -> bool:
        """False when the folder was locked after all. A host that is not returned is ended."""
        try:
            answer = host.open(self.folder, self._engine_config, self._query_seconds)
            if answer.ok:
                answer = host.ask("SYSTEM STOP MERGES", NO_SETTINGS, self._query_seconds)
        except HostTimeout:
            raise TemporaryError(
                f"source {self.name} ({self.folder}) did not open within {self._query_seconds:g} s",
                code="source_timeout",
                hint="raise limits.query_seconds",
            ) from None
        except HostDied as died:
            if host.was_killed:  # by somebody, or for its memory: that says nothing of the folder
                raise TemporaryError(
                    f"the engine was killed while opening source {self.name} ({self.folder})",
                    code="source_died",
                ) from None
            raise PermanentError(
                f"the engine ended while opening source {self.name} ({self.folder}): {died}",
                code="source_unreadable",
            ) from None
        except BaseException:
            host.kill()
            raise
        if answer.ok:
            return True
        complaint = host.complaint()
        host.kill()
        if _LOCKED in complaint:
            return False
        message = complaint or answer.data.decode("utf-8", "replace")
        if _NOT_CONFIGURED.search(message):
            raise self._not_configured(message)
        raise errors.translate(message, f"opening source {self.name} ({self.folder})")

    def _not_configured(self, message: str) -> CalveError:
        told = errors.translate(message, f"opening source {self.name} ({self.folder})").message
        return UsageError(
            told,
            code="source_disks",
            hint=f"name the configuration file that defines its disks: engine_config under [source.{self.name}]",
        )

    def _busy(self) -> CalveError:
        holder = _holder(self.folder)
        return SourceBusyError(
            f"source {self.name} ({self.folder}) is open in another process{holder}, "
            f"for more than {self._busy_seconds:g} s",
            code="source_busy",
            hint="close it there and run the command again; an embedded source has one user at a time",
        )

    def _check_folder(self) -> None:
        """Everything that would otherwise make the engine create or half-create a folder."""
        folder = self.folder
        if self._create:
            # if we die here, an empty folder is left: the next run uses it
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.exists():
            raise self._wrong("source_missing", "does not exist", "check the source's url in calve.toml")
        elif not folder.is_dir():
            raise self._wrong("source_not_folder", "is not a folder", "url names a ClickHouse data folder")
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise self._wrong(
                "source_not_writable",
                "cannot be written by this user",
                "opening a folder, and pinning its parts, needs write access to it",
            )
        elif not any((folder / name).exists() for name in ("metadata", "store", "data", "status")):
            raise self._wrong(
                "source_not_clickhouse",
                "is not a ClickHouse data folder",
                "it has no metadata, store or data folder in it; check the source's url in calve.toml",
            )
        if self._engine_config and not Path(self._engine_config).is_file():
            raise UsageError(
                f"the engine_config of source {self.name}, {self._engine_config}, is not a file",
                code="source_engine_config",
                hint=f"check engine_config under [source.{self.name}]",
            )
        if "?" in str(folder):
            raise self._wrong(
                "source_url", "has a ? in its path", "the engine takes what follows it for options"
            )

    def _wrong(self, code: str, what: str, hint: str) -> UsageError:
        return UsageError(f"the folder of source {self.name}, {self.folder}, {what}", code=code, hint=hint)


class EmbeddedSession(EngineSession):
    """A visit to an embedded source."""

    def __init__(
        self, source: EmbeddedSource, host: HostProcess, query_seconds: float, configured_id: str | None
    ) -> None:
        self.source = source.name
        self.folder = source.folder
        self.configured_id = configured_id
        self.host: HostProcess | None = host  # None once it is gone
        self.patience_seconds = query_seconds
        self._has_config = source.has_config
        self._asking = threading.Lock()  # question and answer belong together

    @property
    def is_asking(self) -> bool:
        return self._asking.locked()

    def end(self) -> HostProcess | None:
        """The host, for the next visit, in which this session has no part any more. A thread that is still at a
        statement, because its caller has given it up, would take the answers of that visit: its host is ended."""
        host, self.host = self.host, None
        if host is None:
            return None
        if not self._asking.acquire(blocking=False):
            host.interrupt()
            return None
        self._asking.release()
        return host

    def describe(self, database: str, table: str) -> TableInfo:
        """The engine describes all of its own functions to name those that users defined, 20 ms each time. They
        are files of the folder, or come with a configuration."""
        functions = self._has_config or any((self.folder / _FUNCTIONS).glob("*"))
        return tables.describe(self, database, table, functions=functions)

    def rows(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        return decode(self._ask(sql, {**SETTINGS, **_INTERPRETED, **settings}, what, seconds))

    def execute(
        self,
        sql: str,
        settings: Mapping[str, str] = NO_SETTINGS,
        what: str = "",
        seconds: float | None = None,
        query_id: str = "",
    ) -> None:
        """Nothing outlives a visit here: the engine ends with it, so no id is needed."""
        self._ask(sql, settings, what, seconds)

    def disks(self) -> tuple[Disk, ...]:
        found = self.rows("SELECT name, path FROM system.disks WHERE type = 'Local' ORDER BY name")
        return tuple(Disk(name=row["name"], path=Path(row["path"])) for row in found)

    def _ask(self, sql: str, settings: Mapping[str, str], what: str, seconds: float | None) -> bytes:
        limit = self.patience_seconds if seconds is None else seconds
        place = f"source {self.source}" + (f", {what}" if what else "")
        with self._asking:
            answer = self._answer(sql, settings, place, limit)
        if not answer.ok:
            raise errors.translate(answer.data.decode("utf-8", "replace"), place)
        return answer.data

    def _answer(self, sql: str, settings: Mapping[str, str], place: str, limit: float) -> Answer:
        host = self.host
        if host is None:
            raise TemporaryError(f"{place}: the visit has ended", code="source_closed")
        try:
            return host.ask(sql, settings, limit)
        except HostTimeout:
            self.host = None
            raise TemporaryError(
                f"{place}: a statement took more than {limit:g} s and was ended",
                code="source_timeout",
                hint="raise limits.query_seconds",
            ) from None
        except HostDied as died:
            self.host = None
            raise TemporaryError(
                f"{place}: the engine ended in the middle of a statement ({died})", code="source_died"
            ) from None
        except BaseException:
            # Interrupted between question and answer: the next answer would be the wrong one.
            host.kill()
            self.host = None
            raise


def _is_locked(folder: Path) -> bool:
    """Whether a process holds the folder. The look itself takes the lock for a moment, which is
    less than the open that would otherwise find it out."""
    try:
        descriptor = os.open(folder / _STATUS, os.O_RDWR)
    except OSError:
        return False  # never opened yet, or not ours to look at: the engine will tell
    try:
        return not _flocked(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder of this user's by the lock that the engine itself takes, while the block lasts. False where
    that cannot be. The engine removes its file when it closes the folder; this one stays, because another process
    may have opened it already, and the next engine takes it as it is (tried)."""
    try:
        if folder.stat().st_uid != os.geteuid():
            yield False  # a file of ours could keep the owner out
            return
        descriptor = os.open(folder / _STATUS, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError:
        yield False  # the engine will tell
        return
    try:
        yield _flocked(descriptor) and _is_file(descriptor, folder / _STATUS)
    finally:
        os.close(descriptor)


def _flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(descriptor: int, path: Path) -> bool:
    """Not a file that an engine has removed meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _holder(folder: Path) -> str:
    with contextlib.suppress(OSError):
        found = _PID.search((folder / _STATUS).read_text("utf-8", "replace"))
        if found:
            return f" (process {found.group(1)})"
    return ""
