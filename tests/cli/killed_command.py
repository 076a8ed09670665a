"""The command line with a runner of child programs in place of Spark, that hangs at a named point.

Its arguments are the point and those of `calve`. It writes the file `hangs` there and waits to be killed.
"""

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calve.app.wiring import App
from calve.cli.main import run
from calve.export.kind import ExportKind
from calve.store.submissions import Submissions
from support.local_runner import LocalRunner


def hang(*_: object) -> None:
    Path("hangs").touch()
    time.sleep(600)


def before(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def hanging(*given: Any, **named: Any) -> Any:
        hang()
        return call(*given, **named)

    return hanging


def after(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def hanging(*given: Any, **named: Any) -> Any:
        answer = call(*given, **named)
        hang()
        return answer

    return hanging


POINTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "submitted": (Submissions, "submit", after),
    "pinned": (ExportKind, "take", after),
    "planned": (LocalRunner, "run", before),
    "written": (ExportKind, "publish", before),
    "published": (ExportKind, "publish", after),
    "releasing": (ExportKind, "release", before),
}


def program() -> int:
    point, *arguments = sys.argv[1:]
    if point in POINTS:
        owner, name, around = POINTS[point]
        setattr(owner, name, around(getattr(owner, name)))
    App.runner = LocalRunner(slots=1)  # type: ignore[assignment]
    return run(arguments)
