"""A caged engine, its parent's side: start, load, ask, and kill at the limit.

The child has an empty folder, no environment and no secret; after its start it can open no file, no socket and no
program (`seccomp`). What comes back is bytes of a bounded size, which this side does not interpret.

Statements of people run here. What they may say is decided before (`calve.sql.allowance`); the cage holds where
that is wrong.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from calve.clickhouse import errors
from calve.clickhouse.embedded import host
from calve.clickhouse.embedded.host import Answer
from calve.clickhouse.engine.engine import FORMAT, NO_SETTINGS, EngineError
from calve.model.errors import RefusedError, TemporaryError

_MODULE = "calve.clickhouse.embedded.cage_child"
_FLAGS = ["-I"]  # nothing of the folder, the user or the environment stands in for a library
_START_SECONDS = 60.0
_PARSE_SECONDS = 10.0
_LARGEST = 128 << 20  # an answer above it comes from a child that is not ours any more
_MEMORY = frozenset({173, 241})  # ClickHouse's codes
_NOTHING: Mapping[str, Iterable[bytes]] = {}


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """A table that statements may read; `name` with its database, columns as (name, ClickHouse type)."""

    name: str
    columns: tuple[tuple[str, str], ...]


class CageTimeout(Exception):
    """The statement did not end in time and its child was killed."""


class CageDied(Exception):
    """The child ended in the middle of a statement: memory, as a rule."""


class Cage:
    """One child. Not for two threads at once."""

    def __init__(self, *, tables: Sequence[TableSchema], memory_mb: int, required: bool = True) -> None:
        """`required`: RefusedError where this machine cannot cage; else `uncaged` says why."""
        self.statements = 0
        self._folder = tempfile.mkdtemp(prefix="calve-cage-")
        # if we die from here on, the child's input ends and it ends itself; until it is caged its folder stays
        self._child = subprocess.Popen(
            [sys.executable, *_FLAGS, "-m", _MODULE],
            cwd=self._folder,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent
        )
        given = {"tables": [[one.name, one.columns] for one in tables], "memory_mb": memory_mb}
        with self._limited(_START_SECONDS):
            self._send(json.dumps(given).encode())
            answer = self._receive()
        self.uncaged = answer.data.decode("utf-8", "replace")
        if not answer.ok:
            self.kill()
            raise EngineError(self.uncaged)
        if self.uncaged and required:
            self.kill()
            raise RefusedError(
                f"SELECT needs a child process without files and network, and here {self.uncaged}",
                code="no_cage",
                hint="run the server on Linux (x86-64 or aarch64) where seccomp filters are allowed",
            )
        if not self.uncaged:
            shutil.rmtree(self._folder, ignore_errors=True)  # it can open nothing there any more

    def run(self, sql: str, form: str, rows: Mapping[str, Iterable[bytes]], seconds: float) -> bytes:
        """Fill the tables with rows (pieces of JSONEachRow), run one statement, empty them. EngineError with
        the engine's own message; CageTimeout, CageDied and a lack of memory end the child."""
        answer = self._ask(sql, NO_SETTINGS, form, rows, seconds)
        if not answer.ok:
            message = answer.data.decode("utf-8", "replace")
            if errors.code_of(message) in _MEMORY or "std::bad_alloc" in message:
                self.kill()  # what is left of its memory may be too little for the next statement
            raise EngineError(message)
        return answer.data

    def ask(self, sql: str, settings: Mapping[str, str], seconds: float) -> Answer:
        """A statement of ours over no rows: what `parser.Parser` needs."""
        return self._ask(sql, settings, FORMAT, _NOTHING, min(seconds, _PARSE_SECONDS))

    def stop(self) -> None:
        """End it now, from any thread: a caller waiting for its answer gets CageDied."""
        self._child.kill()

    def kill(self) -> None:
        """End it now, and remove its folder."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._child.pid

    def _ask(
        self,
        sql: str,
        settings: Mapping[str, str],
        form: str,
        rows: Mapping[str, Iterable[bytes]],
        seconds: float,
    ) -> Answer:
        self.statements += 1
        request = {
            "sql": sql,
            "settings": dict(settings),
            "form": form,
            "loads": list(rows),
            "seconds": seconds,
        }
        with self._limited(seconds):
            self._send(json.dumps(request).encode())
            for pieces in rows.values():
                for piece in pieces:
                    if piece:  # an empty one ends the table
                        self._send(piece)
                self._send(b"")
            return self._receive()

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """Killed at the limit, whatever this side waits for then."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._child.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except OSError:
            self.kill()
            raise (CageTimeout if late.is_set() else CageDied) from None
        except BaseException:
            self.kill()  # the pipe is in the middle of something
            raise
        finally:
            timer.cancel()

    def _send(self, data: bytes) -> None:
        stdin = self._child.stdin
        assert stdin is not None
        stdin.write(host.header(data) + data)
        stdin.flush()

    def _receive(self) -> Answer:
        stdout = self._child.stdout
        assert stdout is not None
        head = stdout.read(host.HEADER_BYTES)
        if len(head) < host.HEADER_BYTES or host.length_of(head) > _LARGEST:
            raise BrokenPipeError
        data = stdout.read(host.length_of(head))
        if len(data) < host.length_of(head):
            raise BrokenPipeError
        return Answer.unpack(data)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TZ": "UTC"}


class Busy(TemporaryError):
    """All cages are taken, or the caller has one already."""


@dataclass(kw_only=True)
class _Taken:
    caller: str
    key: str
    cage: Cage | None = None
    left: bool = False


class Cages:
    """At most `at_once` statements at a time, one for each caller; children are used again, not for ever."""

    def __init__(
        self,
        *,
        tables: Sequence[TableSchema],
        memory_mb: int,
        at_once: int = 2,
        required: bool = True,
        rest_seconds: float = 60.0,
        statements: int = 200,
    ) -> None:
        self._tables = tables
        self._memory_mb = memory_mb
        self._at_once = at_once
        self._required = required
        self._rest_seconds = rest_seconds
        self._statements = statements
        self._lock = threading.Lock()
        self.taken: list[_Taken] = []
        self._idle: list[tuple[float, Cage]] = []
        self._sweeper: threading.Timer | None = None

    @contextmanager
    def take(self, caller: str, key: str = "") -> Iterator[Cage]:
        """Busy at once where none is free. A child that was killed inside is replaced by the next call. `key` is for
        `leave`."""
        taken = _Taken(caller=caller, key=key)
        with self._lock:
            callers = [one.caller for one in self.taken]
            if caller in callers or len(callers) >= self._at_once:
                raise Busy(
                    "a SELECT of yours is running already"
                    if caller in callers
                    else f"{self._at_once} SELECTs are running, and no more run at once",
                    code="select_busy",
                    hint="retry when it has ended",
                )
            self.taken.append(taken)
            cage = self._idle.pop()[1] if self._idle else None
        try:
            if cage is None or not cage.alive:
                cage = Cage(tables=self._tables, memory_mb=self._memory_mb, required=self._required)
            with self._lock:
                taken.cage = cage
                if taken.left:
                    cage.stop()
            yield cage
        finally:
            with self._lock:
                self.taken.remove(taken)
                if cage is not None:
                    self._rest(cage)

    def leave(self, key: str) -> None:
        """Whoever asked under this key has gone: what runs for it ends now."""
        with self._lock:
            for taken in self.taken:
                if taken.key == key:
                    taken.left = True
                    if taken.cage is not None:
                        taken.cage.stop()

    def close(self) -> None:
        with self._lock:
            for _, cage in self._idle:
                cage.kill()
            self._idle = []
            if self._sweeper is not None:
                self._sweeper.cancel()

    def _rest(self, cage: Cage) -> None:
        if not cage.alive or cage.statements >= self._statements:
            cage.kill()
            return
        self._idle.append((time.monotonic(), cage))
        if self._sweeper is None:
            self._start_sweeper()

    def _start_sweeper(self) -> None:
        self._sweeper = threading.Timer(self._rest_seconds, self._sweep)
        self._sweeper.daemon = True
        self._sweeper.start()

    def _sweep(self) -> None:
        with self._lock:
            old = time.monotonic() - self._rest_seconds
            for since, cage in self._idle:
                if since <= old:
                    cage.kill()
            self._idle = [(since, cage) for since, cage in self._idle if since > old]
            self._sweeper = None
            if self._idle:
                self._start_sweeper()
