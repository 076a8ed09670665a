"""A modelled Spark: a wave's attempts run side by side on executors that outlive the worker which sent them.

An attempt succeeds, fails, is lost, succeeds and is not heard of, is reported twice, or answers after everybody has
stopped waiting for it. Cancelled executors stop at their next call, or, as zombies, never notice.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError, ErrorInfo
from support.simulator.schedule import Program, Schedule
from support.simulator.weather import Weather

Task = Callable[[str], str]  # as an executor runs one: JSON in, JSON out


class Ending(StrEnum):
    FAILS = "fails"
    LOST = "lost"
    DONE_BUT_LOST = "done but lost"
    TWICE = "twice"
    LATE = "late"
    SLOW = "slow"


LATE_SECONDS = 50.0


@dataclass
class ModelledCluster:
    """The executors: shared by all workers, and killed with none of them."""

    schedule: Schedule
    weather: Weather
    tasks: Mapping[str, Task]
    rate: float
    driver_tasks: Mapping[str, Task] = field(default_factory=dict)

    def ending(self) -> Ending | None:
        if not self.weather.stormy:
            return None
        name, chance = self.schedule.draw("spark.attempt")
        if chance >= self.rate or not self.weather.keeps(name):
            return None
        found = list(Ending)[int(chance / self.rate * len(Ending))]
        self.schedule.tell(f"an attempt: {found}")
        return found


@dataclass
class ModelledRunner:
    """`control.ports.Runner` of one worker."""

    cluster: ModelledCluster
    slots: int = 4
    cancelled: set[str] = field(default_factory=set)
    executors: list[Program] = field(default_factory=list)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        schedule = self.cluster.schedule
        left = {order.number for order in orders}

        def attempt(order: TaskOrder) -> None:
            try:
                self._attempt(group, order, on_result)
            finally:
                left.discard(order.number)

        for order in orders:
            executor = Program(f"executor of {order.number}-{order.attempt}")
            self.executors.append(executor)
            after = schedule.random(f"start/{group}/{order.number}").uniform(0.05, 1.5)
            schedule.spawn(executor, "task", lambda order=order: attempt(order), after)  # type: ignore[misc]
        schedule.wait(lambda: not left or group in self.cancelled, 3_000.0, step=0.25)

    def _attempt(self, group: str, order: TaskOrder, on_result: Callable[[TaskResult], None]) -> None:
        cluster, schedule = self.cluster, self.cluster.schedule
        ending = cluster.ending()
        if group in self.cancelled or ending is Ending.LOST:
            return
        if ending is Ending.SLOW:
            schedule.sleep(LATE_SECONDS)
        if ending is Ending.FAILS:
            error = ErrorInfo(code="task_failed", message="the task failed", retryable=True)
            on_result(TaskResult(number=order.number, attempt=order.attempt, error=error))
            return
        result = self._worked(order)
        if ending is Ending.DONE_BUT_LOST:
            return
        if ending is Ending.LATE:
            schedule.sleep(LATE_SECONDS)
        on_result(result)
        if ending is Ending.TWICE:
            on_result(result)

    def _worked(self, order: TaskOrder) -> TaskResult:
        try:
            answer = json.loads(self.cluster.tasks[order.function](order.payload))
        except CalveError as error:
            return TaskResult(number=order.number, attempt=order.attempt, error=error.info)
        except OSError as error:  # of the machine: the real runner makes data of it too
            failed = ErrorInfo(code="task_failed", message=str(error), retryable=True)
            return TaskResult(number=order.number, attempt=order.attempt, error=failed)
        return TaskResult(
            number=order.number,
            attempt=order.attempt,
            receipt=answer["receipt"],
            rows=answer["rows"],
            files=answer["files"],
            bytes=answer["bytes"],
            spent=answer["spent"],
        )

    def cancel(self, group: str) -> None:
        self.cancelled.add(group)

    def close(self) -> None:
        """The cluster stays."""
