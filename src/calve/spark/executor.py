"""What runs on an executor: call one order's function and bring back its result as data.

Errors come back as rows, never as exceptions: an exception would fail the whole wave, and
some cannot be unpickled on the driver (P21). This module imports nothing heavy, because the
Python daemon that forks workers imports it (W10).
"""

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, ErrorInfo
from calve.objects.errors import as_full_disk, is_full


def execute(order: TaskOrder, *given: Any) -> dict[str, Any]:
    """Run one attempt. The function takes and returns JSON: `{"receipt", "rows", "files",
    "bytes"}` or `{"error": {...}}`. On the driver it is given the driver as well."""
    try:
        module, name = order.function.split(":")
        function = getattr(importlib.import_module(module), name)
        answer: dict[str, Any] = json.loads(function(order.payload, *given))
    except CalveError as error:
        answer = {"error": error.info.to_json()}
    except Exception as error:  # noqa: BLE001 - the border of the executor: anything becomes data
        answer = {"error": _unexpected(error).to_json()}
    return answer | {"number": order.number, "attempt": order.attempt}


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
    )


def _unexpected(error: Exception) -> ErrorInfo:
    if isinstance(error, OSError) and is_full(error):
        return as_full_disk(error, Path(tempfile.gettempdir())).info
    return ErrorInfo(
        code="task_crashed",
        message=f"the task raised {type(error).__name__}: {error}",
        hint="`calve show` names the attempt; see the executor's log",
        retryable=True,
    )
