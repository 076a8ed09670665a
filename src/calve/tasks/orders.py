"""What kinds whose tasks run on executors do alike: the order for a task, and what an attempt left."""

from collections.abc import Callable

from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import Process, Task
from calve.tasks.receipts import R


def order_for(process: Process, task: Task, attempt: int, *, function: str, payload: str) -> TaskOrder:
    return TaskOrder(
        process_id=process.id, number=task.number, attempt=attempt, function=function, payload=payload
    )


def left_by(
    task: Task, text: str | None, parse: Callable[[str], R], files: Callable[[R], int]
) -> TaskResult | None:
    """What the task's last attempt left: the text of its receipt, if it came as far as that."""
    if text is None:
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
