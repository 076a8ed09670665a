"""Tasks that need the worker's own machine: those of backups and restores, where the source's disks are mounted there and
not on the executors.

Each runs in a program of its own, as on an executor: a cancel ends it in the middle of native code, and so does the end of
the worker. No more at a time than the machine has cores; the rest of a wave waits here.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import ProcessId
from calve.spark import executor

_AGAIN_SECONDS = 0.2


class Near:
    """Thread-safe."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._running: dict[str, set[subprocess.Popen[str]]] = {}  # by group

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        """An order whose program ended without an answer has no result: it is lost, as on an executor."""
        with self._lock:
            self._running[group] = set()
        threads = [
            threading.Thread(target=self._one, args=(group, order, on_result), daemon=True)
            for order in orders
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.cancel(group)

    def cancel(self, group: str) -> None:
        with self._lock:
            for program in self._running.pop(group, ()):
                program.kill()

    def close(self) -> None:
        for group in list(self._running):
            self.cancel(group)

    def _one(self, group: str, order: TaskOrder, on_result: Callable[[TaskResult], None]) -> None:
        while not self._room.acquire(timeout=_AGAIN_SECONDS):
            if group not in self._running:
                return
        try:
            program = self._start(group)
            if program is not None:
                answer = _asked(program, order)
                if answer:
                    on_result(executor.result(json.loads(answer)))
        finally:
            self._room.release()

    def _start(self, group: str) -> "subprocess.Popen[str] | None":
        with self._lock:
            if group not in self._running:
                return None  # cancelled
            # If we die here or later, the program sees its input end, and ends.
            program = subprocess.Popen(
                [sys.executable, "-m", "calve.spark.near"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is the worker's, which drains
            )
            self._running[group].add(program)
            return program


def _asked(program: "subprocess.Popen[str]", order: TaskOrder) -> str:
    assert program.stdin is not None and program.stdout is not None
    shown = {"process": order.process_id, "number": order.number, "attempt": order.attempt}
    answer = ""
    with program, suppress(OSError):  # it was killed meanwhile
        # Through a pipe: the payload may hold secrets (P22).
        program.stdin.write(json.dumps(shown | {"function": order.function, "payload": order.payload}) + "\n")
        program.stdin.flush()
        answer = program.stdout.readline()
    return answer


def main() -> None:
    """One order in, one answer out."""
    order = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    answer = executor.execute(
        TaskOrder(
            process_id=ProcessId(order["process"]),
            number=order["number"],
            attempt=order["attempt"],
            function=order["function"],
            payload=order["payload"],
        )
    )
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)  # engines and uploads have threads that would be waited for


def _end_with_the_worker() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
