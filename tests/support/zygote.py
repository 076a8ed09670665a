"""Programs that are forked from one that has imported what they need, in place of starting Python anew.

A start of `calve` costs more than a second of CPU, nearly all of it imports, and the tests start hundreds. A forked
program is a process as any other: with a group, signals and an end of its own. It inherits neither an engine nor a
thread, because the zygote has none: it never imports chdb (W10).

There is one zygote for each test program, started when it is first needed; the programs it forks find it in their
environment. A program that is started holds a connection to it: the program is killed, with its group, when the
connection ends, and its exit code comes over it.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_VARIABLE = "TESTS_ZYGOTE"  # the address; not CALVE_…, which is configuration
_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES = 150_000
_MOST_DESCRIPTORS = 8
# Imported after a fork by those who need them: the engine cannot be forked, and Spark's client is seldom used.
_NOT_IMPORTED = (
    "calve.testing", "calve.spark", "calve.app.demo", "calve.data_source",
    "calve.iceberg.catalogs.glue", "calve.iceberg.catalogs.hive",  # extras that are not installed
)  # fmt: skip
_ALSO = ("calve.spark.executor", "pyiceberg.catalog.sql", "sqlalchemy.dialects.sqlite")


class Forked:
    """A program that was forked; of `subprocess.Popen`, what `support.programs` uses."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.stdout: IO[bytes] | None = None
        self.stdin = self  # whose end is the program's
        self.returncode: int | None = None
        self.pid: int = _received(connection)["pid"]

    def close(self) -> None:
        """SIGKILL to the program and its group."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                self._connection.settimeout(timeout)
                try:
                    self.returncode = _received(self._connection)["code"]
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired("a forked program", timeout or 0) from None
                self._connection.close()
        assert self.returncode is not None
        return self.returncode


def start(
    target: str,
    arguments: Sequence[str] = (),
    *,
    stdout: int = 1,
    stderr: int = 2,
    given: Sequence[int] = (),
    cwd: str = "",
    environment: Mapping[str, str] | None = None,
    in_this_group: bool = False,
) -> Forked:
    """A program that calls `target`, a `module:function`. The descriptors that are `given` come after its arguments."""
    address = _address()
    request = {
        "target": target,
        "arguments": list(arguments),
        "cwd": cwd or str(Path.cwd()),
        "environment": {**os.environ, **(environment or {})},
        "path": sys.path,
        "group": os.getpgid(0) if in_this_group else 0,
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    socket.send_fds(connection, [json.dumps(request).encode()], [stdout, stderr, *given])
    return Forked(connection)


@functools.cache
def _own() -> subprocess.Popen[bytes]:
    address = f"{tempfile.mkdtemp(prefix='calve-zygote-')}/socket"
    # if we die here or later, its input ends, and it ends with all that it forked
    zygote = subprocess.Popen(
        [sys.executable, "-m", "support.zygote", address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert zygote.stdin is not None and zygote.stdout is not None
    if not zygote.stdout.readline():
        raise RuntimeError("the zygote ended before it was ready")
    os.environ[_VARIABLE] = address
    atexit.register(zygote.wait)
    atexit.register(zygote.stdin.close)
    return zygote


_starting = threading.Lock()


def _address() -> str:
    with _starting:
        if _VARIABLE not in os.environ:
            _own()
    return os.environ[_VARIABLE]


def _received(connection: socket.socket) -> Any:
    data = connection.recv(_MESSAGE_BYTES)
    return json.loads(data) if data else {"code": 128 + signal.SIGKILL}  # the zygote is gone, and all with it


# -- the zygote itself --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Child:
    pid: int
    ended: int
    group: int
    connection: socket.socket


@dataclass(frozen=True, kw_only=True)
class _Program:
    """What a fork is to become."""

    target: str
    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    path: list[str]
    group: int
    descriptors: list[int]

    def take_over(self) -> None:
        """Of this process, everything that a program has of its own."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, descriptor in ((1, self.descriptors[0]), (2, self.descriptors[1])):
            os.dup2(descriptor, number)
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.environment)
        tempfile.tempdir = None
        time.tzset()
        sys.path[:] = self.path
        sys.argv = [self.target, *self.arguments, *map(str, self.descriptors[2:])]

    def run(self) -> object:
        module, name = self.target.split(":")
        return getattr(importlib.import_module(module), name)()


class _Zygote:
    def __init__(self, address: str) -> None:
        self._ready = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen(64)
        self._ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
        self._ready.register(self._listener, selectors.EVENT_READ)

    def serve(self) -> _Program | None:
        """Until the owner's end: None. In a fork: the program that it is to become."""
        while True:
            for key, _ in self._ready.select():
                if key.fd == sys.stdin.fileno():
                    return None
                if key.fileobj is self._listener:
                    self._ready.register(self._listener.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.data, _Child):
                    self._look_at(key.data, ended=key.fd == key.data.ended)
                elif isinstance(key.fileobj, socket.socket) and (program := self._asked(key.fileobj)):
                    return program

    def _asked(self, connection: socket.socket) -> _Program | None:
        data, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        self._ready.unregister(connection)
        if not data:
            connection.close()
            return None
        program = _Program(**json.loads(data), descriptors=descriptors)
        pid = os.fork()
        with contextlib.suppress(OSError):  # both sides: whoever signals the group next finds it
            os.setpgid(pid, program.group)
        if pid == 0:
            for key in list(self._ready.get_map().values()):
                if key.fd != sys.stdin.fileno():
                    os.close(key.fd)
            connection.close()
            self._ready.close()
            return program
        for descriptor in descriptors:
            os.close(descriptor)
        child = _Child(pid=pid, ended=os.pidfd_open(pid), group=program.group or pid, connection=connection)
        self._ready.register(connection, selectors.EVENT_READ, child)
        self._ready.register(child.ended, selectors.EVENT_READ, child)
        connection.send(json.dumps({"pid": pid}).encode())
        return None

    def _look_at(self, child: _Child, ended: bool) -> None:
        """It ended, or its owner did or wants it gone."""
        if child.connection.fileno() < 0:
            return  # both at once, and the other came first
        with contextlib.suppress(ProcessLookupError):
            if child.group == child.pid:
                os.killpg(child.pid, signal.SIGKILL)  # its children too, also where it ended by itself
            elif not ended:
                os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            child.connection.send(json.dumps({"code": code if code >= 0 else 128 - code}).encode())
        self._ready.unregister(child.connection)
        self._ready.unregister(child.ended)
        os.close(child.ended)
        child.connection.close()


def _import_everything() -> None:
    import calve

    for found in pkgutil.walk_packages(calve.__path__, "calve."):
        if not found.name.startswith(_NOT_IMPORTED) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in _ALSO:
        importlib.import_module(name)
    assert "chdb" not in sys.modules
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    # Arrow's allocator starts its own thread again in a fork, as it does below Spark's daemon.
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1, threads
    # Or the collections of each fork's end walk through all of it, and copy it: 0.6 s of CPU.
    gc.freeze()


if __name__ == "__main__":
    _import_everything()
    zygote = _Zygote(sys.argv[1])
    print("ready", flush=True)
    program = zygote.serve()
    if program is not None:
        program.take_over()
        sys.exit(program.run())  # type: ignore[arg-type]
    shutil.rmtree(Path(sys.argv[1]).parent)
