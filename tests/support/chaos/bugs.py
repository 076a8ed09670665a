"""Mistakes for workers, to show that a run finds them: two of its own, that show in every run, and those that the
simulator plants, which need the right strike at the right moment.

`python -m support.chaos.bugs NAME[,NAME…] …` is `calve …` with them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

from calve.export.kind import ExportKind
from support.simulator import bugs as simulated

publishing = import_module("calve.iceberg.publish.publish")


@contextmanager
def forgotten_pins() -> Iterator[None]:
    """Pins of exports are said to be released, and are not."""
    with patch.object(ExportKind, "release", lambda *_: None):
        yield


@contextmanager
def doubled_files() -> Iterator[None]:
    """Each file of an export is put into the table twice."""
    real: Callable[..., Any] = publishing._stage

    def stage(
        catalog: Any, table: Any, process_id: str, plan: Any, receipts: Any, *rest: Any, **named: Any
    ) -> Any:
        return real(catalog, table, process_id, plan, [*receipts, *receipts], *rest, **named)

    with patch.object(publishing, "_stage", stage):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "forgotten_pins": forgotten_pins,
    "doubled_files": doubled_files,
    **{name: bug.planted for name, bug in simulated.BUGS.items()},
}


def command(bug: str) -> tuple[str, ...]:
    """What starts a worker."""
    if not bug:
        return (sys.executable, "-m", "calve.cli")
    return (sys.executable, "-m", "support.chaos.bugs", bug)


def main() -> None:
    from calve.cli.main import main as calve

    with ExitStack() as stack:
        for name in sys.argv.pop(1).split(","):
            stack.enter_context(BUGS[name]())
        calve()


if __name__ == "__main__":
    main()
