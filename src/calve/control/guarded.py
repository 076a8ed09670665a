"""Decorators around the ports: an exception that is not ours is a defect, and becomes an error of ours.

So the steps handle one family of errors, defects use budgets like any other error, and nothing
that one process does can stop the loop (L10).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from calve.control.ports import (
    AdoptedWork,
    Fenced,
    Kind,
    NothingToDo,
    Planned,
    ProbesForAProcess,
    Published,
    ReleasesEarly,
    Runner,
    TakesTogether,
    TaskOrder,
    TaskResult,
)
from calve.model.change import NewPin, PinChange
from calve.model.errors import CalveError, TemporaryError
from calve.model.process import Pin, Process, Task

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


class GuardedKind:
    """A kind that raises only our errors."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.name = kind.name

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        return ours(f"naming pins of {process.id}", lambda: self._kind.pins(process, attempt))

    def take(self, process: Process, pin: Pin) -> PinChange:
        return ours(f"taking pin {pin.name}", lambda: self._kind.take(process, pin))

    def take_all(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        """In one go where the kind can, otherwise one after another."""
        kind: object = self._kind
        if isinstance(kind, TakesTogether):
            together = kind
            return ours(f"taking pins of {process.id}", lambda: together.take_all(process, pins))
        return [self.take(process, pin) for pin in pins]

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        kind: object = self._kind
        if isinstance(kind, ReleasesEarly):
            early = kind
            return ours(f"looking at pins of {process.id}", lambda: early.pin_tasks(process, plan, number))
        return None

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        return ours(f"planning {process.id}", lambda: self._kind.plan(process, pins, adopted))

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        doing = f"preparing task {task.number} of {process.id}"
        return ours(doing, lambda: self._kind.order(process, plan, task, attempt))

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        doing = f"looking for the receipt of task {task.number} of {process.id}"
        return ours(doing, lambda: self._kind.find_receipt(process, plan, task))

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        return ours(f"publishing {process.id}", lambda: self._kind.publish(process, plan, receipts, note))

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        return ours(f"fencing {process.id}", lambda: self._kind.fence(process, plan))

    def undo(self, process: Process, plan: str, receipts: Sequence[str]) -> str:
        return ours(f"undoing {process.id}", lambda: self._kind.undo(process, plan, receipts))

    def release(self, pin: Pin) -> None:
        ours(f"releasing pin {pin.name}", lambda: self._kind.release(pin))

    def probe(self, lane: str) -> None:
        ours(f"probing {lane}", lambda: self._kind.probe(lane))

    def probe_for(self, lane: str, process: Process) -> None:
        kind = self._kind
        if isinstance(kind, ProbesForAProcess):
            ours(f"probing {lane}", lambda: kind.probe_for(lane, process))
        else:
            self.probe(lane)


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
