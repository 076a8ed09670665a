"""An attempt at a task on an executor: the order that is shipped, the receipt that is put once and found
again, and the time that was spent in between. The same for all kinds whose tasks run on executors."""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import NotFoundError
from calve.model.limits import Limits
from calve.model.process import Process, Task
from calve.objects.storage import Storage


class Counted(Protocol):
    """A receipt, as far as progress is measured by it."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def spent(self) -> Mapping[str, float]: ...

    def to_json(self) -> str: ...


R = TypeVar("R", bound=Counted)


class Stopwatch:
    """Seconds of this program's monotonic clock, by phase (`model.seen.PHASES`). Phases do not overlap."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - began

    @property
    def spent(self) -> dict[str, float]:
        """For a receipt."""
        return {phase: round(seconds, 3) for phase, seconds in self._seconds.items()}


def stored(storage: Storage, uri: str) -> str | None:
    """None where no attempt came as far as its receipt."""
    try:
        return storage.read(uri).decode()
    except NotFoundError:
        return None


def left(storage: Storage, uri: str, parse: Callable[[str], R]) -> R | None:
    """The receipt that this attempt has left already, if it has."""
    text = stored(storage, uri)
    return None if text is None else parse(text)


_NUMBERS = re.compile(r"\d+-(\d+)(?:/|\.json$)")


def made_before(storage: Storage, *folders: str) -> int:
    """The highest number of an attempt that has left something in these folders, which are the process's own. Before
    its plan is written there is none, unless the store was put back from a copy that knows of no plan (D1): what was
    written under another plan must not be taken for this one's, nor be overwritten (D4)."""
    listed = [uri.removeprefix(folder) for folder in folders for uri in storage.list(folder)]
    return max((int(found[1]) for name in listed if (found := _NUMBERS.search(name))), default=0)


def leave(storage: Storage, uri: str, receipt: R, parse: Callable[[str], R]) -> R:
    """The receipt that counts: this one, or the one that is there."""
    # If we die here, the receipt is there or not; the next look finds out.
    if storage.put_if_absent(uri, receipt.to_json().encode()):
        return receipt
    # Taken: by this very put, whose acknowledgement was lost, or by another run of this attempt.
    return left(storage, uri, parse) or receipt


def answer(receipt: Counted, files: int) -> str:
    """What a task's function brings back to the driver, as JSON."""
    counted = {"rows": receipt.rows, "files": files, "bytes": receipt.bytes, "spent": dict(receipt.spent)}
    return json.dumps({"receipt": receipt.to_json(), **counted})


def upload_pace(limits: Limits) -> str:
    """How fast tasks may upload (`objects.pace`): together, all that this program orders."""
    if not limits.upload_mb_per_second:
        return ""
    return f"{limits.upload_mb_per_second:g}@{socket.gethostname()}-{os.getpid()}"


def order_for(
    process: Process, task: Task, attempt: int, *, function: str, payload: str, near: bool = False
) -> TaskOrder:
    return TaskOrder(
        process_id=process.id,
        number=task.number,
        attempt=attempt,
        function=function,
        payload=payload,
        near=near,
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
        spent=receipt.spent,
    )
