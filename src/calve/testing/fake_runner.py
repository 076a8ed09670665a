"""A runner without Spark: scripted, single-threaded, deterministic. And one that does nothing, fast."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, ErrorInfo, Outcome
from calve.testing.fake_world import World


class Ends(StrEnum):
    """How one attempt goes."""

    WELL = "well"
    LOST = "lost"  # nothing written, nothing said
    DONE_BUT_LOST = "done_but_lost"  # its receipt is there, its answer is not
    REPEATED = "repeated"  # its executor was lost, and the repeat refused; nothing was written
    TWICE = "twice"  # reported twice


Ending = Ends | ErrorInfo

_REPEATED = ErrorInfo(
    code="executor_lost", message="its executor was lost", retryable=True, outcome=Outcome.UNKNOWN
)


@dataclass
class FakeRunner:
    """Runs orders on the `World`. `script[(process, task)]` lists how its next attempts go."""

    world: World
    slots: int = 4
    script: dict[tuple[str, int], list[Ending]] = field(default_factory=lambda: defaultdict(list))
    always: Ending = Ends.WELL
    raises: list[CalveError] = field(default_factory=list)  # of the next runs
    cancelled: list[str] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)  # name and size of each wave
    most_at_once: int = 0

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        self.groups.append((group, len(orders)))
        self.most_at_once = max(self.most_at_once, len(orders))
        if self.raises:
            raise self.raises.pop(0)
        for order in orders:
            if group in self.cancelled:
                return
            self._one(order, on_result)

    def _one(self, order: TaskOrder, on_result: Callable[[TaskResult], None]) -> None:
        lane = str(json.loads(order.payload).get("lane", ""))
        scripted = self.script.get((order.process_id, order.number))
        ending = scripted.pop(0) if scripted else self.always
        if lane in self.world.down:
            ending = ErrorInfo(
                code="unreachable", message=f"{lane} does not answer", retryable=True, service=lane
            )
        if isinstance(ending, ErrorInfo):
            on_result(TaskResult(number=order.number, attempt=order.attempt, error=ending))
            return
        if ending is Ends.LOST:
            return
        if ending is Ends.REPEATED:
            on_result(TaskResult(number=order.number, attempt=order.attempt, error=_REPEATED, free=True))
            return
        result = self.world.write(order)
        if ending is Ends.DONE_BUT_LOST:
            return
        on_result(result)
        if ending is Ends.TWICE:
            on_result(result)

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)

    def close(self) -> None:
        """Nothing to give back."""


@dataclass
class NoOpRunner:
    """Every attempt succeeds at once: for measuring what the loop itself costs."""

    slots: int = 64

    def run(
        self,
        group: str,
        orders: Sequence[TaskOrder],
        on_result: Callable[[TaskResult], None],
    ) -> None:
        for order in orders:
            on_result(TaskResult(number=order.number, attempt=order.attempt, receipt="{}", rows=1, files=1))

    def cancel(self, group: str) -> None:
        """Everything has ended already."""

    def close(self) -> None:
        """Nothing to give back."""
