"""Children that run attempts of tasks, one at a time each, with an engine of their own, kept for the next attempt.

They are forked from the zygote before any engine is there, since none survives a fork (W10), and end with the
program that they belong to, however that dies.
"""

import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from support import zygote

_Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class TaskPool:
    """As an executor of `concurrent.futures`: where all children are busy, work waits. One that dies takes
    all of them along."""

    def __init__(self, slots: int = 1, environment: Mapping[str, str] | None = None) -> None:
        self._slots = slots
        self._environment = environment
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._unfinished = 0
        self._children: list[_Child] = []
        self._dead = False

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._dead:
                raise BrokenProcessPool
            self._unfinished += 1
            if len(self._children) < min(self._slots, self._unfinished):
                child = _Child(self._environment)
                self._children.append(child)
                threading.Thread(target=self._serve, args=(child,), daemon=True).start()
            self._waiting.put((future, function, given))
        return future

    @property
    def pids(self) -> list[int]:
        return [child.process.pid for child in self._children]

    def kill(self) -> None:
        """SIGKILL to every child. What they were at is broken; what waited is cancelled."""
        with self._lock:
            self._dead = True
        for child in self._children:
            child.process.close()
        while not self._waiting.empty():
            if (work := self._waiting.get()) is not None:
                work[0].cancel()
                work[0].set_running_or_notify_cancel()
        for _ in self._children:
            self._waiting.put(None)

    def _serve(self, child: "_Child") -> None:
        while (work := self._waiting.get()) is not None:
            future, function, given = work
            future.set_running_or_notify_cancel()
            try:
                child.pipe.send((function, given))
                answer = child.pipe.recv()
            except (EOFError, OSError):
                self.kill()
                future.set_exception(BrokenProcessPool())
                return
            with self._lock:
                self._unfinished -= 1
            future.set_result(answer)


class _Child:
    def __init__(self, environment: Mapping[str, str] | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # if we die here or later, the zygote kills it
            self.process = zygote.start(
                "support.task_pool:child",
                given=[theirs.fileno()],
                cwd=str(Path(__file__).parent),  # not a test's own folder, which goes before the child does
                environment=environment,
                in_this_group=True,
            )
        self.pipe: Connection[Any, Any] = Connection(ours.detach())


def child() -> None:
    """The child's side: functions and what they are given come in, answers go out."""
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError, KeyboardInterrupt):  # whoever asks is gone, or both got a Ctrl-C
        while True:
            function, given = pipe.recv()
            pipe.send(function(*given))
