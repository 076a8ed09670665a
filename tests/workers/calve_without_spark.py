"""The whole `calve` command, with tasks in child processes in place of Spark; forked, not started.

`SOURCE` is the address of a source that the test keeps open. `GATE` is the folder of a gate; `GATE_AT` says who waits at it: tasks `before` or `after` their work,
or the worker itself right before it `send`s a commit.
"""

import importlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gate import wait_at

from calve.app.wiring import App
from calve.cli.main import main
from calve.control.ports import TaskOrder, TaskResult
from support.local_runner import LocalRunner
from support.shared_service import RemoteSource

SOURCE = os.environ.get("SOURCE", "")
GATE, GATE_AT = os.environ.get("GATE", ""), os.environ.get("GATE_AT", "")


class GatedRunner(LocalRunner):
    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        super().run(group, [_gated(order) for order in orders], on_result)


def _gated(order: TaskOrder) -> TaskOrder:
    if GATE_AT not in ("before", "after"):
        return order
    payload = {"gate": GATE, "function": order.function, "payload": order.payload}
    return replace(order, function=f"gated_tasks:{GATE_AT}", payload=json.dumps(payload))


def _runner(app: App) -> LocalRunner:
    made = GatedRunner()
    app.closing.callback(made.close)
    return made


def _send(*given: Any) -> Any:
    wait_at(Path(GATE))
    return _real_send(*given)


publish = importlib.import_module("calve.iceberg.publish.publish")  # the package has a function of that name
_real_send = publish.send


def program() -> None:
    App.runner = cached_property(_runner)  # type: ignore[assignment]
    App.runner.__set_name__(App, "runner")
    if SOURCE:
        App.source = lambda app, name: RemoteSource(SOURCE, name)  # type: ignore[assignment]
    if GATE_AT == "send":
        publish.send = _send  # type: ignore[attr-defined]
    main()
