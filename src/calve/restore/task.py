"""One attempt at one task of a restore, on an executor: parts out of the backup into a folder on the
target's disk, every byte checked. Attaching is the worker's: it alone opens the target."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from calve.archive.location import Location
from calve.archive.manifest import PartEntry
from calve.archive.parts import fetch
from calve.model.errors import TemporaryError
from calve.model.record import Record
from calve.objects.storage import Storage
from calve.restore.plan import RestorePlan
from calve.tasks import attempts


@dataclass(frozen=True, kw_only=True)
class RestorePayload(Record):
    process_id: str
    task: int
    attempt: int
    location: str
    state: str  # the target's folder
    first: int  # the plan's number of the first part
    parts: tuple[PartEntry, ...]
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 5.0
    call_seconds: float = 15.0

    @classmethod
    def of(
        cls,
        plan: RestorePlan,
        *,
        task: int,
        attempt: int,
        storage: Mapping[str, str],
        connect_seconds: float,
        call_seconds: float,
    ) -> Self:
        start, end = plan.tasks[task]
        parts = plan.parts[start:end]
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            location=plan.location,
            state=plan.targets[parts[0].target].state,
            first=start,
            parts=tuple(part.entry for part in parts),
            storage=storage,
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
        )

    def open(self) -> Location:
        storage = Storage(self.storage, connect_seconds=self.connect_seconds, call_seconds=self.call_seconds)
        return Location(self.location, storage)

    @property
    def receipt_uri(self) -> str:
        return receipt_uri(self.state, self.process_id, self.task, self.attempt)


def receipt_uri(state: str, process_id: str, task: int, attempt: int) -> str:
    """Beside the staged parts, on the target's disk: the one place that a restore writes to."""
    return f"file://{state}/receipt-{process_id}-{task}-{attempt}.json"


@dataclass(frozen=True, kw_only=True)
class RestoreReceipt(Record):
    process_id: str
    task: int
    attempt: int
    first: int
    folders: tuple[str, ...]  # of the parts from `first` on
    rows: int
    bytes: int
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)  # of these, by phase


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    receipt = attempt(RestorePayload.from_json(payload))
    return attempts.answer(receipt, files=len(receipt.folders))


def attempt(payload: RestorePayload) -> RestoreReceipt:
    started = time.monotonic()
    local = Storage()
    if (earlier := attempts.left(local, payload.receipt_uri, RestoreReceipt.from_json)) is not None:
        return earlier
    location = payload.open()
    # The attempt is in the folder's name: no two attempts ever write one file (D4).
    root = Path(payload.state) / f"{payload.process_id}-{payload.task}-{payload.attempt}"
    folders = []
    watch = attempts.Stopwatch()
    for at, part in enumerate(payload.parts):
        folder = root / str(payload.first + at)
        try:
            # if we die here, the folder stays without a receipt: nothing attaches it, undo removes it
            with watch("read"):
                fetch(location, part, folder)
        except OSError as error:
            raise TemporaryError(
                f"{folder}: {error.strerror}",
                code="target_unwritable",
                hint="the user that runs the executor needs to write to the target's disk, under the same path",
            ) from None
        folders.append(str(folder))
    receipt = RestoreReceipt(
        process_id=payload.process_id,
        task=payload.task,
        attempt=payload.attempt,
        first=payload.first,
        folders=tuple(folders),
        rows=sum(part.rows_seen for part in payload.parts),
        bytes=sum(part.bytes for part in payload.parts),
        seconds=round(time.monotonic() - started, 3),
        spent=watch.spent,
    )
    return attempts.leave(local, payload.receipt_uri, receipt, RestoreReceipt.from_json)
