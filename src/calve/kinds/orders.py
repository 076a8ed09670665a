"""What kinds whose tasks run on executors do alike: the order for a task, and what an attempt left."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import NotFoundError
from calve.model.process import Process, Task


class Counted(Protocol):
    """A receipt, as far as progress is measured by it."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


R = TypeVar("R", bound=Counted)


def order_for(process: Process, task: Task, attempt: int, *, function: str, payload: str) -> TaskOrder:
    return TaskOrder(
        process_id=process.id, number=task.number, attempt=attempt, function=function, payload=payload
    )


def left_by(
    task: Task, read: Callable[[], bytes], parse: Callable[[str], R], files: Callable[[R], int]
) -> TaskResult | None:
    """What the task's last attempt left, if it came as far as its receipt; `read` raises NotFoundError
    where there is none."""
    try:
        text = read().decode()
    except NotFoundError:
        return None
    receipt = parse(text)
    return TaskResult(
        number=task.number,
        attempt=task.attempt,
        receipt=text,
        rows=receipt.rows,
        files=files(receipt),
        bytes=receipt.bytes,
    )
