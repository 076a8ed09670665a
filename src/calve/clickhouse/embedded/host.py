"""The child process that opens an embedded source, and its parent's side: start, ask, and an end that always comes.

`python -m calve.clickhouse.embedded.host` loads the engine, receives the name of a folder to open, and answers
statements over its standard input and output until an empty message; then it closes the folder and waits for the
next. When its input ends it closes the folder and exits. When the input ends in the middle of a statement its parent
is gone or has given up, and it ends at once: nothing that it was doing outlives the visit.

A message between the two is its length, then its bytes. Loading the engine costs four times as much as opening
a folder, so a program that expects visits keeps a child that has loaded it. A closed folder is free for others: no
file of it is open and nothing in it changes any more (tried). Each opening leaves five idle threads and 2 MB behind
(W9), so a child serves only so many visits.
"""

import contextlib
import json
import os
import queue
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from calve.clickhouse.engine.engine import ChdbSession, EngineError, load

_LENGTH = struct.Struct(">Q")
_CLOSE = b""  # the message that ends a visit


@dataclass(frozen=True, kw_only=True)
class Request:
    sql: str
    settings: Mapping[str, str]

    def pack(self) -> bytes:
        return json.dumps({"sql": self.sql, "settings": dict(self.settings)}).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(**json.loads(data))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rows as the engine wrote them, or its error's message."""

    ok: bool
    data: bytes

    def pack(self) -> bytes:
        return (b"+" if self.ok else b"-") + self.data

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        return cls(ok=data[:1] == b"+", data=data[1:])


def header(data: bytes) -> bytes:
    return _LENGTH.pack(len(data))


def length_of(head: bytes) -> int:
    size: int = _LENGTH.unpack(head)[0]
    return size


HEADER_BYTES = _LENGTH.size


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(header(data))
    stream.write(data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream, also in the middle of a frame."""
    head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    size = length_of(head)
    data = stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    requests, answers = take_pipes()
    load()
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    idle = threading.Event()
    idle.set()
    threading.Thread(target=_listen, args=(requests, inbox, idle), daemon=True).start()
    session: ChdbSession | None = None
    while (frame := inbox.get()) is not None:
        answer = Answer(ok=True, data=b"")
        if session is None:
            try:
                session = ChdbSession(*json.loads(frame))
            except EngineError as error:
                write_frame(answers, Answer(ok=False, data=str(error).encode()).pack())
                return
        elif frame == _CLOSE:
            session.close()
            session = None
        else:
            answer = _answer(session, Request.unpack(frame))
        idle.set()
        write_frame(answers, answer.pack())
    if session is not None:
        session.close()


def take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our end of both pipes under numbers of their own: the engine prints to 1 and reads from 0."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


def _listen(requests: BinaryIO, inbox: "queue.SimpleQueue[bytes | None]", idle: threading.Event) -> None:
    while True:
        try:
            frame = read_frame(requests)
        except (OSError, EOFError, struct.error):
            frame = None
        if frame is None:
            if not idle.is_set():
                os._exit(1)
            inbox.put(None)
            return
        idle.clear()
        inbox.put(frame)


def _answer(session: ChdbSession, request: Request) -> Answer:
    try:
        return Answer(ok=True, data=session.run(request.sql, request.settings))
    except EngineError as error:
        return Answer(ok=False, data=str(error).encode())


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the engine's own threads need no farewell


_CLOSE_SECONDS = 10.0
_MOST_VISITS = 20  # of one child
_CHUNK = 1 << 20
_COMPLAINT_LENGTH = 600


class HostDied(Exception):
    """The child ended without an answer; the text is what it printed last."""


class HostTimeout(Exception):
    """The child did not answer in time and was killed."""


class HostProcess:
    """One child, with one folder open at a time. Not for two threads at once."""

    def __init__(self) -> None:
        # Unlinked from the start: it goes with the last process that holds it.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._visits = 0
        self._configured = False
        # if we die from here on, the child's input ends and it ends itself
        self._child = subprocess.Popen(
            # -P: a file in the working folder must not stand in for a library
            [sys.executable, "-P", "-m", "calve.clickhouse.embedded.host"],
            cwd="/",  # the engine's table functions read files below the working folder only
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for the parent, which ends the visit in order
        )

    def open(self, folder: Path, engine_config: str, seconds: float) -> Answer:
        """Open the folder, made if it is missing; the engine may say why it cannot."""
        deadline = time.monotonic() + seconds
        self._visits += 1
        self._configured = bool(engine_config)
        self._send(json.dumps([str(folder.absolute()), engine_config]).encode())
        return self.receive(deadline)

    def ask(self, sql: str, settings: Mapping[str, str], seconds: float) -> Answer:
        """One statement and its answer."""
        deadline = time.monotonic() + seconds
        self._send(Request(sql=sql, settings=settings).pack())
        return self.receive(deadline)

    @property
    def is_fresh(self) -> bool:
        """Whether it has opened no folder yet."""
        return self._visits == 0

    def rest(self) -> bool:
        """End the visit and keep the child: the folder is free when this returns. False if the child is not fit
        for another visit, and is to be closed."""
        if self._configured or self._visits >= _MOST_VISITS:
            return False  # a configuration holds for the whole process
        try:
            self._send(_CLOSE)
            closed = self.receive(time.monotonic() + _CLOSE_SECONDS).ok
        except (HostDied, HostTimeout):
            return False  # it has ended, and the folder is free
        self._complaints.seek(0)
        self._complaints.truncate()  # of the visit that has ended
        return closed

    def close(self) -> None:
        """End the visit in order, and the child: the folder is free when this returns."""
        with contextlib.suppress(OSError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        try:
            self._child.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._tidy()

    def kill(self) -> None:
        """End it now; whatever statement it was at has ended when this returns."""
        self._child.kill()
        self._child.wait()
        self._tidy()

    def interrupt(self) -> None:
        """`kill` while another thread waits for an answer: that thread finds it dead, and tidies up."""
        self._child.kill()
        self._child.wait()

    def complaint(self) -> str:
        """What the engine printed last: its start-up errors come only there."""
        try:
            size = self._complaints.seek(0, os.SEEK_END)
            self._complaints.seek(max(0, size - _COMPLAINT_LENGTH))
            return self._complaints.read().decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return ""

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def was_killed(self) -> bool:
        return self._child.poll() in (-signal.SIGKILL, -signal.SIGTERM)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def _last_words(self) -> str:
        text = self.complaint()
        self.kill()
        code = self._child.returncode
        return f"exit status {code}" + (f": {text}" if text else "")

    def _send(self, data: bytes) -> None:
        stdin = self._child.stdin
        assert stdin is not None
        try:
            stdin.write(header(data) + data)
            stdin.flush()
        except OSError:
            raise HostDied(self._last_words()) from None

    def receive(self, deadline: float) -> Answer:
        head = self._read(HEADER_BYTES, deadline)
        return Answer.unpack(self._read(length_of(head), deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        stdout = self._child.stdout
        assert stdout is not None
        data = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.kill()
                    raise HostTimeout
                chunk = os.read(stdout.fileno(), min(_CHUNK, size - len(data)))
                if not chunk:
                    raise HostDied(self._last_words())
                data += chunk
        return bytes(data)

    def _tidy(self) -> None:
        for stream in (self._child.stdin, self._child.stdout, self._complaints):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class Spare:
    """A host for the next visit, while visits are expected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected = 0
        self._visiting: list[HostProcess] = []
        self.host: HostProcess | None = None

    def expect(self, visits: int) -> None:
        """So many more visits will come, or, negative, will not."""
        with self._lock:
            self._expected = max(0, self._expected + visits)
            if not self._expected and self.host is not None:
                self.host.close()
                self.host = None
        self.refill()

    def take(self, *, fresh: bool = False) -> HostProcess:
        """`fresh` asks for a child that has opened no folder yet."""
        with self._lock:
            self._expected = max(0, self._expected - 1)
            host, self.host = self.host, None
        if host is not None and (not host.alive or (fresh and not host.is_fresh)):
            host.kill()
            host = None
        host = host or HostProcess()
        with self._lock:
            self._visiting.append(host)
        return host

    def keep(self, host: HostProcess) -> None:
        """Called when a visit has ended: its child waits for the next one, if that is expected. In any case the
        folder is free when this returns."""
        with self._lock:
            self._visiting = [one for one in self._visiting if one is not host]
            wanted = self._expected > 0 and self.host is None
        if wanted and host.rest():
            with self._lock:
                if self._expected and self.host is None:
                    self.host = host
                    return
        host.close()
        self.refill()

    def refill(self) -> None:
        """Not while a visit lasts: its child may serve the next, and loading another would compete with it."""
        with self._lock:
            self._visiting = [one for one in self._visiting if one.alive]
            if self._expected and self.host is None and not self._visiting:
                self.host = HostProcess()


spare = Spare()
_HANDED_ON_SECONDS = 5.0


class Gate:
    """The door of one folder."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._waiting = 0
        self._host: HostProcess | None = None
        self._opened_at = 0.0

    def enter(self, seconds: float) -> bool:
        """Wait for the turn; False when it did not come in time."""
        with self._changed:
            self._waiting += 1
            try:
                entered = self._changed.wait_for(lambda: not self._busy, timeout=seconds)
                self._busy = self._busy or entered
            finally:
                self._waiting -= 1
                self._close_if_unwanted()
        return entered

    def take_host(self) -> HostProcess | None:
        """The host that the visit before left open. Only while inside."""
        with self._changed:
            host, self._host = self._host, None
        if host is not None and not host.alive:
            host.kill()
            return None
        if host is None:
            self._opened_at = time.monotonic()
        return host

    def leave(self, host: HostProcess | None) -> None:
        """End the visit. `host` is handed on or closed; None when it is gone already."""
        old = time.monotonic() - self._opened_at > _HANDED_ON_SECONDS
        with self._changed:
            hand_on = host is not None and self._waiting > 0 and not old
        if host is not None and not hand_on:
            spare.keep(host)  # before the next may enter: it finds the folder free
        with self._changed:
            self._host = host if hand_on else None
            self._busy = False
            self._close_if_unwanted()
            self._changed.notify()

    def _close_if_unwanted(self) -> None:
        if self._host is not None and not self._busy and self._waiting == 0:
            self._host.close()
            self._host = None


_gates: dict[Path, Gate] = {}
_lock = threading.Lock()


def gate_of(folder: Path) -> Gate:
    """The same door for every name of one folder."""
    with _lock:
        return _gates.setdefault(folder.resolve(), Gate())
