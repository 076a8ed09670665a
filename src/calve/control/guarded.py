"""Wrappers around the ports: an exception that is not ours is a defect, and becomes an error of ours.

So the steps handle one family of errors, defects use budgets like any other error, and nothing
that one process does can stop the loop (L10).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from calve.control.kind import WrappedKind
from calve.control.ports import Runner, TaskOrder, TaskResult
from calve.model.errors import CalveError, TemporaryError

T = TypeVar("T")


def ours(doing: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except CalveError:
        raise
    except Exception as error:
        raise TemporaryError(
            f"{doing}: {type(error).__name__}: {error}",
            code="internal",
            hint="this is a defect in Calve; please report it with the worker's log",
        ) from error


class GuardedKind(WrappedKind):
    """A kind that raises only our errors."""

    def around(self, call: str, of: str, work: Callable[[], T]) -> T:
        return ours(f"{call} of {of}", work)


class GuardedRunner:
    """A runner that raises only our errors."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.slots = runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        ours(f"running {group}", lambda: self._runner.run(group, orders, on_result))

    def cancel(self, group: str) -> None:
        ours(f"stopping {group}", lambda: self._runner.cancel(group))

    def close(self) -> None:
        self._runner.close()
