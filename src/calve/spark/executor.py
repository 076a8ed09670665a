"""What runs on an executor: call one order's function and bring back its result as data.

Errors come back as rows, never as exceptions: an exception would fail the whole wave, and
some cannot be unpickled on the driver (P21). This module imports nothing heavy, because the
Python daemon that forks workers imports it (W10).

No attempt runs twice (D4). Spark's own retries are off, but it runs a task again, under the same attempt of ours,
after a loss that it does not count as a failure: of a host, of a heartbeat, of an executor that is decommissioned or
taken back. The first run may still be writing; the second does nothing, and the control plane makes another attempt.

What an executor met outside of that function reaches the driver only as the text of a failed job: a module
that its Python lacks, a program that cannot be run, a full disk (T18).
"""

import gc
import importlib
import json
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import calve
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import (
    STALLED,
    CalveError,
    ErrorInfo,
    PermanentError,
    TemporaryError,
    UnknownOutcomeError,
)
from calve.objects.errors import as_full_disk, is_full

_log = logging.getLogger("calve.spark")


def is_repeat() -> bool:
    """Whether Spark ran this task of its job before. A wave has one stage, which reads no shuffle, so Spark never
    makes a second attempt at the whole stage; PySpark would not tell of one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return bool(context.attemptNumber() > 0)


def refuse_repeat(order: TaskOrder, *, counts: bool) -> dict[str, Any]:
    """Instead of `execute`. The first run may have left its receipt: its outcome is unknown."""
    error = UnknownOutcomeError(
        "the executor that ran the attempt was lost; Calve looks for what it left",
        code="executor_lost",
        hint="it is retried automatically",
    )
    return {
        "error": error.info.to_json(), "free": not counts, "number": order.number, "attempt": order.attempt
    }  # fmt: skip


@cache
def libraries() -> dict[str, str]:
    """What this Python has of the libraries that must be the driver's, by version."""
    from importlib import metadata

    found = {}
    for name in _SAME_EVERYWHERE:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def refuse_other_libraries(order: TaskOrder, theirs: Mapping[str, str]) -> dict[str, Any] | None:
    """Instead of `execute`, where the driver has other versions: before anything is done. Each Python worker is
    asked, since executors come and go."""
    for name, version in theirs.items():
        if (found := libraries().get(name)) != version:
            has = f"has {name} {found}" if found else f"lacks {name}"
            error = _wrong_python(f"{_ours()} {has}, and the driver has {version}")
            return {"error": error.info.to_json(), "number": order.number, "attempt": order.attempt}
    return None


def execute(order: TaskOrder, *given: Any, version: str = calve.__version__) -> dict[str, Any]:
    """Run one attempt. The function takes and returns JSON: `{"receipt", "rows", "files",
    "bytes", "spent"}` or `{"error": {...}}`. On the driver it is given the driver as well. `version` is the
    driver's: another one on the executor may read the payload differently."""
    if version != calve.__version__:
        error = _wrong_python(f"{_ours()} has Calve {calve.__version__}, and the driver has {version}")
        return {"error": error.info.to_json(), "number": order.number, "attempt": order.attempt}
    try:
        module, name = order.function.split(":")
        function = getattr(importlib.import_module(module), name)
        answer: dict[str, Any] = json.loads(function(order.payload, *given))
    except CalveError as error:
        answer = {"error": error.info.to_json()}
    except Exception as error:  # noqa: BLE001 - the border of the executor: anything becomes data
        if not given:  # the program that is the driver shows what it met in its own way
            _log.warning("the task crashed", exc_info=True)
        answer = {"error": _unexpected(error).to_json()}
    if not given:
        _settle(order.function)
        if answer.get("error", {}).get("code") == STALLED:
            _end_after_the_answer()
    return answer | {"number": order.number, "attempt": order.attempt}


def prepare(function: str) -> None:
    """Import what tasks need, before there is one."""
    module, name = function.split(":")
    with suppress(Exception):  # the first task meets it too, and there it is data
        getattr(importlib.import_module(module), name)()


_settled: set[str] = set()


def _settle(function: str) -> None:
    """What makes the next task of this Python worker cheap. After each task Spark collects garbage, which
    looks at every object of every module; and before each it invalidates the import caches, so that Python
    reads the tables of contents of PySpark's archives anew. Both cost 0.1 s of CPU: what was imported is
    taken out of the collector's sight once, and the archives are forgotten."""
    if function not in _settled:
        _settled.add(function)
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


_END_SECONDS = 10.0


def _end_after_the_answer() -> None:
    """A statement that was given up keeps its core for as long as this process lives. Spark's daemon collects
    garbage once the task's answer is sent, and with Python's own collector off nothing does so before: there
    the process ends, and Spark starts another for its next task."""
    gc.disable()
    gc.callbacks.append(lambda *_: os._exit(1))
    timer = threading.Timer(_END_SECONDS, os._exit, (1,))  # where there is no such daemon
    timer.daemon = True
    timer.start()


def result(answer: dict[str, Any]) -> TaskResult:
    """The driver's side of `execute`."""
    error = answer.get("error")
    return TaskResult(
        number=answer["number"],
        attempt=answer["attempt"],
        receipt=answer.get("receipt", ""),
        rows=answer.get("rows", 0),
        files=answer.get("files", 0),
        bytes=answer.get("bytes", 0),
        error=ErrorInfo.from_json(error) if error else None,
        free=answer.get("free", False),
        spent=answer.get("spent", {}),
    )


def _unexpected(error: Exception) -> ErrorInfo:
    if isinstance(error, OSError) and is_full(error):
        return as_full_disk(error, Path(tempfile.gettempdir())).info
    if isinstance(error, ImportError):
        return _wrong_python(f"{_ours()} cannot import what the task needs: {error}").info
    return ErrorInfo(
        code="task_crashed",
        message=f"the task raised {type(error).__name__}: {error}",
        hint="`calve show` names the attempt; see the executor's log",
        retryable=True,
    )


def _ours() -> str:
    return f"the executors' Python ({sys.executable})"


_SAME_EVERYWHERE = ("chdb-core", "pyarrow")  # what reads and writes the rows
_PYTHON = (
    'set "spark.pyspark.python" in [spark.conf] to a Python, on every executor, that has this version of Calve'
    " and its dependencies installed; or ship this one: calve spark package"
)
_CANCELLED = re.compile(r"\bcancelled\b", re.IGNORECASE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_IMPORT = re.compile(r"^ImportError: (.+)$", re.MULTILINE)
_CANNOT_RUN = re.compile(r'Cannot run program "([^"]*)"[^:]*: (.+)')
_OTHER_VERSION = re.compile(r"PYTHON_VERSION_MISMATCH\]\W*(.+)")
_NO_PYTHON = re.compile(r"^\W*calve: (this machine has no python.+)$", re.MULTILINE)  # `spark.package`
_NO_ROOM = re.compile(r"^.*No space left on device.*$", re.MULTILINE)
_OF_EXECUTOR = re.compile(r"\(TID \d+\) \(([^)]*)\): (.+)", re.DOTALL)
_OF_PYTHON = re.compile(r"Error from python worker:\n(.+?)\nPYTHONPATH was", re.DOTALL)
_PREFIX = re.compile(r"^(?:[\w.$]+(?:Exception|Error|Failure)\b[:\s]*)+")


def job_error(said: str, python: str, log: str) -> CalveError | None:
    """Why a job of task attempts ended early, from what Spark says of it; nothing if it was cancelled."""
    if _CANCELLED.search(said.partition("\n")[0]):
        return None
    theirs = f"the executors' Python ({python})"
    if found := _NO_MODULE.search(said):
        return _wrong_python(f"{theirs} has no module {found[1]}")
    if found := _OTHER_VERSION.search(said):
        return _wrong_python(f"{theirs} does not fit: {_line(found[1])}")
    if found := _IMPORT.search(said):
        return _wrong_python(f"{theirs} fails to import a module: {_line(found[1])}")
    if found := _CANNOT_RUN.search(said):
        return _wrong_python(f"the executors cannot run {found[1]}: {_line(found[2])}")
    if found := _NO_PYTHON.search(said):
        return _wrong_python(f"the executors cannot run {python}: {_line(found[1])}")
    if found := _NO_ROOM.search(said):
        hint = f"make room there, or set spark.local.dir to a larger disk; Spark's log is {log}"
        return TemporaryError(
            f"no room on an executor's disk: {_reason(found[0])}", code="disk_full", hint=hint
        )
    if found := _OF_PYTHON.search(said):
        return TemporaryError(
            f"{theirs} ended: {_line(found[1])}",
            code="attempt_lost",
            hint=f"{_PYTHON}; Spark's log is {log}",
        )
    return TemporaryError(
        f"the attempt ended without an answer: {_reason(said)}",
        code="attempt_lost",
        hint=f"Spark's log is {log}; the executor's own log is kept by its cluster",
    )


def _wrong_python(message: str) -> PermanentError:
    return PermanentError(message, code="executor_python", hint=_PYTHON)


def _reason(said: str) -> str:
    """The part of Spark's sentence that is about the executor, with the executor named."""
    found = _OF_EXECUTOR.search(said)
    if not found:
        return _line(said)
    return f"{_line(_PREFIX.sub('', found[2]) or found[2])} ({found[1]})"


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= 300 else f"{first[:297]}..."


_ARCHIVES = (".zip", ".jar")
_IMPORTED = ("calve.spark.executor", "pyiceberg.schema", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql")


def main() -> None:
    """The Python daemon of executors on this machine: Spark's own, started faster.

    Spark puts archives of PySpark first on the path, from which Python compiles each module anew at every
    start; here the installed package is used, as by the driver. What tasks import is imported once, before
    the workers are forked: only what starts no thread, and never the engine (W10).
    """
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    for name in _IMPORTED:
        importlib.import_module(name)
    from pyspark import daemon

    gc.freeze()  # Spark collects garbage after each task: not among the modules
    daemon.manager()


if __name__ == "__main__":
    main()
