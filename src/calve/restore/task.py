"""One attempt at one task of a restore, on an executor: parts out of the backup into a folder on the
target's disk, every byte checked. Attaching is the worker's: it alone opens the target."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from calve.archive.parts import fetch
from calve.model.errors import TemporaryError
from calve.model.stored import known_fields
from calve.objects.storage import Storage
from calve.restore.payload import RestorePayload
from calve.tasks import receipts


@dataclass(frozen=True, kw_only=True)
class RestoreReceipt:
    process_id: str
    task: int
    attempt: int
    first: int
    folders: tuple[str, ...]  # of the parts from `first` on
    rows: int
    bytes: int
    seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: dict[str, Any] = json.loads(text)
        data["folders"] = tuple(data["folders"])
        return cls(**known_fields(cls, data))


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    receipt = attempt(RestorePayload.from_json(payload))
    return receipts.answer(receipt, files=len(receipt.folders))


def attempt(payload: RestorePayload) -> RestoreReceipt:
    started = time.monotonic()
    local = Storage()
    if (earlier := receipts.left(local, payload.receipt_uri, RestoreReceipt.from_json)) is not None:
        return earlier
    location = payload.open()
    # The attempt is in the folder's name: no two attempts ever write one file (D4).
    root = Path(payload.state) / f"{payload.process_id}-{payload.task}-{payload.attempt}"
    folders = []
    for at, part in enumerate(payload.parts):
        folder = root / str(payload.first + at)
        try:
            # if we die here, the folder stays without a receipt: nothing attaches it, undo removes it
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
    )
    return receipts.leave(local, payload.receipt_uri, receipt, RestoreReceipt.from_json)
