"""What executors run in place of a task's own function, where a gate is in the way."""

import importlib
import json
from pathlib import Path

from gate import wait_at


def before(payload: str) -> str:
    """Waits, then does the task."""
    order = json.loads(payload)
    wait_at(Path(order["gate"]))
    return _run(order)


def after(payload: str) -> str:
    """Does the task, its receipt included, and then does not come back for a while."""
    order = json.loads(payload)
    answer = _run(order)
    wait_at(Path(order["gate"]))
    return answer


def _run(order: dict[str, str]) -> str:
    module, name = order["function"].split(":")
    answer: str = getattr(importlib.import_module(module), name)(order["payload"])
    return answer
