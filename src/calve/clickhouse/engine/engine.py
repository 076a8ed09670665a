"""The engine of a Python worker process: one chdb session, opened once, never reopened (W9).

A session that is closed leaves threads, handles and memory behind, so it lives as long as
its process. Its folder is scratch, held by a file lock for the life of the process; folders
whose lock nobody holds are swept when the next engine starts, because Spark ends its Python
workers without running exit handlers.

This is the only module that imports chdb, and only when a session is opened (W10). Rows come out of it exact:
see `JSONCompactEachRowWithNamesAndTypes` and its decoding.

No statement holds a task for ever. On a wrong checksum ClickHouse tries every single bit flip of the block, minutes
of CPU that no signal and no KILL QUERY ends; so statements run in a thread of their own, and one that neither
reads nor writes for `stall_seconds` is given up. The engine is then of no more use: its process has to end.
"""

import atexit
import contextlib
import decimal
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from calve.clickhouse import errors
from calve.clickhouse.engine import folders
from calve.clickhouse.engine.folders import make, sweep_scratch
from calve.clickhouse.sql import tokens, types
from calve.model.errors import CalveError, PermanentError
from calve.model.limits import Limits

FORMAT = "JSONCompactEachRowWithNamesAndTypes"
# Without it NaN and infinities are written as null.
SETTINGS = {"output_format_json_quote_denormals": "1"}

Convert = Callable[[Any], Any]


def decode(data: bytes) -> list[dict[str, Any]]:
    """The rows of one answer, each a dict by column name. No data: a statement without rows."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    if len(lines) < 2 or not lines[0]:
        return []
    names: list[str] = json.loads(lines[0])
    converts = [_convert(types.parse(text)) for text in json.loads(lines[1])]
    return [
        {
            name: convert(value) if convert is not None else value
            for name, convert, value in zip(names, converts, _row(line), strict=True)
        }
        for line in lines[2:]
        if line
    ]


def _row(line: str) -> list[Any]:
    row: list[Any] = json.loads(line, parse_float=decimal.Decimal, parse_int=_integer)
    return row


def _integer(text: str) -> int | decimal.Decimal:
    """The engine writes a float of -0.0 as `-0`, and no integer has that sign."""
    return decimal.Decimal(text) if text == "-0" else int(text)


def _convert(kind: types.Type) -> Convert | None:
    """None where JSON's own value is the right one already."""
    match kind:
        case types.Nullable(inner) | types.LowCardinality(inner) | types.SimpleAggregateFunction(_, inner):
            return _or_null(_convert(inner))
        case types.Simple(name) if name in types.INTEGERS:
            return int
        case types.Simple(name) if name in types.FLOATS:
            return float
        case types.Decimal():
            return _decimal
        case types.Array(inner):
            convert = _convert(inner)
            return None if convert is None else lambda values: [convert(value) for value in values]
        case types.Tuple(elements):
            return _tuple(elements)
        case types.Map(key, value):
            return _map(_convert(key), _convert(value))
        case _:
            return None


def _or_null(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(value)


def _tuple(elements: tuple[types.Element, ...]) -> Convert:
    converts = [_convert(element.type) or (lambda value: value) for element in elements]

    def apply(values: Any) -> Any:
        if isinstance(values, dict):
            return {
                key: convert(value) for convert, (key, value) in zip(converts, values.items(), strict=True)
            }
        return [convert(value) for convert, value in zip(converts, values, strict=True)]

    return apply


def _map(key: Convert | None, value: Convert | None) -> Convert:
    def apply(entries: dict[str, Any]) -> dict[Any, Any]:
        return {
            key(name) if key is not None else name: value(item) if value is not None else item
            for name, item in entries.items()
        }

    return apply


NO_SETTINGS: Mapping[str, str] = {}


class EngineError(Exception):
    """The engine's own message; the caller translates it."""


def load() -> None:
    """The engine's library, which takes longer than opening a folder. Not at the top: a fork after this
    import hangs (W10)."""
    import chdb.session  # noqa: F401


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


_LOOKS = 10  # at the progress of a statement in the time that it may stand still
_PROGRESS = (
    "SELECT read_rows + written_rows + arraySum(mapValues(mapFilter((name, value) -> name LIKE '%Bytes',"
    " ProfileEvents))) AS progress FROM system.processes WHERE query_id != queryID()"
)
_BUSY = 0.3  # of the time: a thread of an engine that only waits runs for a hundredth of it

Name = Callable[[Sequence[Path]], str]


class _Stalled(Exception):
    """A statement made no progress; `busy` is whether it used the CPU meanwhile."""

    def __init__(self, *, busy: bool) -> None:
        super().__init__()
        self.busy = busy


def _ran() -> dict[str, float]:
    """For how many seconds all threads ran, and each ran or was ready to: on a crowded machine, one that computes
    waits for its core."""
    ran = {"": time.process_time()}
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            on_a_core, ready, _ = file.read_text().split()
            ran[file.parent.name] = (int(on_a_core) + int(ready)) / 1e9
    return ran


class _Statements:
    """One statement after another, in a thread that can be left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session = ChdbSession(folder)
        self._watching: ChdbSession | None = None
        self._calls: queue.SimpleQueue[tuple[Callable[[], bytes], Future[bytes]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="engine", daemon=True).start()

    def run(self, sql: str, settings: Mapping[str, str], form: str, stall_seconds: float) -> bytes:
        answer: Future[bytes] = Future()
        self._calls.put((lambda: self._session.run(sql, settings, form), answer))
        seen, since, ran = -1, time.monotonic(), {"": 0.0}
        while True:
            with contextlib.suppress(TimeoutError):
                return answer.result(stall_seconds / _LOOKS)
            if (now := self._progress()) != seen:
                seen, since, ran = now, time.monotonic(), _ran()
            elif (waited := time.monotonic() - since) >= stall_seconds:
                most = max(seconds - ran.get(thread, 0.0) for thread, seconds in _ran().items())
                raise _Stalled(busy=most > waited * _BUSY)

    def _serve(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                answer.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller's, whatever it is
                answer.set_exception(error)

    def _progress(self) -> int:
        """Rows and bytes of what runs now, by another session of the same engine (tried: 1 ms)."""
        if self._watching is None:
            self._watching = ChdbSession(self._folder)
        return sum(row["progress"] for row in decode(self._watching.run(_PROGRESS)))


class Engine:
    """Statements run one at a time, from any thread. `what` names the object in an error."""

    def __init__(self, folder: Path) -> None:
        self.scratch = folder / "files"  # for output files; goes with the process
        self.scratch.mkdir()
        self.stall_seconds = Limits.stall_seconds
        self._folder = folder / "engine"
        self._stalled: CalveError | None = None
        self._name: Name | None = None
        self._naming = threading.Lock()
        self._names = 0
        try:
            self._statements = _Statements(self._folder)
        except EngineError as error:
            raise errors.translate(str(error), f"opening the engine in {folder}") from None

    def execute(self, sql: str, settings: Mapping[str, str] = NO_SETTINGS, what: str = "the engine") -> None:
        """Run a statement for its effect."""
        self._run(sql, settings, what)

    def rows(
        self, sql: str, settings: Mapping[str, str] = NO_SETTINGS, what: str = "the engine"
    ) -> list[dict[str, Any]]:
        """The rows of a query, exact (see `calve.clickhouse.engine.engine`). For small answers."""
        return decode(self._run(sql, {**SETTINGS, **settings}, what))

    def arrow(self, sql: str, settings: Mapping[str, str] = NO_SETTINGS, what: str = "the engine") -> bytes:
        """The rows of a query as an Arrow stream, whole in memory: ask for a bounded number of rows."""
        return self._run(sql, settings, what, form="ArrowStream")

    def new_name(self) -> str:
        """A name that no other table of this session has had."""
        with self._naming:
            self._names += 1
            return f"scratch_{self._names}"

    @contextmanager
    def naming(self, name: Name) -> Iterator[None]:
        """How the error of a statement that stalls names what it read, given the files that are open."""
        self._name = name
        try:
            yield
        finally:
            self._name = None

    def _run(self, sql: str, settings: Mapping[str, str], what: str, form: str = FORMAT) -> bytes:
        if self._stalled is not None:
            raise self._stalled
        try:
            return self._statements.run(sql, settings, form, self.stall_seconds)
        except EngineError as error:
            raise errors.translate(str(error), what) from None
        except _Stalled as stalled:
            named = f"{what}, {self._name(self._open_files())}" if self._name is not None else what
            self._stalled = errors.stalled(named, self.stall_seconds, busy=stalled.busy)
            raise self._stalled from None

    def _open_files(self) -> list[Path]:
        """Of the engine's tables: what a statement is reading."""
        found = []
        for handle in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                file = handle.readlink()
                if file.is_relative_to(self._folder / "store"):
                    found.append(file)
        return sorted(found)


# How long the engine's allocator keeps freed memory. By its own 5 s it has given much of it back before the next task,
# which gets it again by page faults: a tenth of a short task. An idle worker gives it back all the same.
_KEEP_FREED = ("JE_MALLOC_CONF", "dirty_decay_ms:15000")

_engine: Engine | None = None
_engine_pid = 0
_opening = threading.Lock()


def worker_engine(stall_seconds: float = Limits.stall_seconds) -> Engine:
    """The engine of this process, opened at the first call."""
    global _engine, _engine_pid
    with _opening:
        if _engine is not None and _engine_pid != os.getpid():
            raise PermanentError(
                "the engine was opened in a process that then forked; its session cannot be used here",
                code="engine_forked",
                hint="open the engine only in the process that uses it",
            )
        if _engine is None:
            sweep_scratch()
            with contextlib.suppress(CalveError):  # reported to the task that needs the folder
                folders.sweep()
            folder = make()
            # if we die here, the folder's lock is free and the next engine sweeps it
            atexit.register(folder.remove)
            os.environ.setdefault(*_KEEP_FREED)  # read when the library is loaded
            _engine = Engine(folder.path)
            _engine_pid = os.getpid()
        _engine.stall_seconds = stall_seconds
        return _engine


_VARIABLE = "SSL_CERT_FILE"
_given = ""


def trust(ca_file: str, source: str) -> None:
    """Make the engine of this process trust `ca_file`. PermanentError if it trusts another already:
    checking against the wrong authority is never the answer."""
    global _given
    if not ca_file or ca_file == _given:
        return
    if _given:
        raise PermanentError(
            f"source {source} has the ca_file {ca_file}, but this executor's engine was given {_given} first",
            code="source_ca_file",
            hint="put the certificates of all https sources into one file and name it for each of them",
        )
    os.environ[_VARIABLE] = ca_file
    _given = ca_file
