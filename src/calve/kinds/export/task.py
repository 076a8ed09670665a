"""One attempt at one task, on an executor: parts in, data files and a receipt out.

JSON in, JSON out; errors come back as data. The receipt is put last and if-none-match: it
exists only if every file it names is whole and in its place.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calve.kinds.export.payload import TaskPayload
from calve.kinds.export.reading import Rows, opened
from calve.kinds.export.writing import TaskWriter, Written, write_settings
from calve.lake import checksums
from calve.lake.access.lending import remote_lender
from calve.lake.storage import Storage
from calve.model.errors import CalveError, ErrorInfo, NotFoundError, PermanentError
from calve.model.full_disk import as_full_disk, is_full
from calve.model.limits import Limits
from calve.model.receipt import Receipt
from calve.source.engine import Engine, worker_engine

FUNCTION = "calve.kinds.export.task:run"  # what a TaskOrder names


def run(payload: str) -> str:
    """`{"receipt", "rows", "files", "bytes"}`, or `{"error": …}`. Never raises."""
    try:
        receipt = attempt(TaskPayload.from_json(payload))
    except CalveError as error:
        return json.dumps({"error": error.info.to_json()})
    except Exception as error:  # noqa: BLE001 - the border of the task: anything becomes data
        return json.dumps({"error": _unexpected(error).to_json()})
    return json.dumps(
        {
            "receipt": receipt.to_json(),
            "rows": receipt.rows,
            "files": len(receipt.files),
            "bytes": receipt.bytes,
        }
    )


def attempt(payload: TaskPayload) -> Receipt:
    """Write the task's rows and leave a receipt; an attempt that has one already is not repeated."""
    started = time.monotonic()
    storage = _storage(payload)
    # Asked first: a dead storage is known before anything is read.
    if (earlier := _left(storage, payload)) is not None:
        return earlier
    engine = worker_engine()
    with opened(engine, payload) as rows, _folder(engine) as folder:
        expected = _count(rows, payload)
        written = TaskWriter(payload, rows, storage, folder).write()
    if written.rows != expected:
        raise PermanentError(
            f"task {payload.task} of {payload.process_id} read {expected} rows and wrote {written.rows}",
            code="rows_differ",
            hint="nothing was published; report this with the output of calve show",
        )
    return _leave(storage, payload, written, time.monotonic() - started)


def _storage(payload: TaskPayload) -> Storage:
    limits = Limits(connect_seconds=payload.connect_seconds, call_seconds=payload.call_seconds)
    return Storage(
        payload.storage,
        connect_seconds=payload.connect_seconds,
        call_seconds=payload.call_seconds,
        keys=remote_lender(payload.lending, payload.destination.identifier, payload.storage, limits),
    )


def _leave(storage: Storage, payload: TaskPayload, written: Written, seconds: float) -> Receipt:
    receipt = Receipt(
        process_id=payload.process_id,
        task=payload.task,
        attempt=payload.attempt,
        rows=written.rows,
        bytes=sum(file.bytes for file in written.files),
        files=written.files,
        checksums={name: checksums.text(value) for name, value in written.checksums.items()},
        seconds=round(seconds, 3),
    )
    # If we die here, the receipt is there or not; whoever looks for it finds out.
    if storage.put_if_absent(payload.receipt_uri, receipt.to_json().encode()):
        return receipt
    # Taken: by this very put, whose acknowledgement was lost, or by another run of this attempt.
    earlier = _left(storage, payload)
    return receipt if earlier is None else earlier


def _left(storage: Storage, payload: TaskPayload) -> Receipt | None:
    """The receipt that this attempt has left already, if it has."""
    try:
        data = storage.read(payload.receipt_uri)
    except NotFoundError:
        return None
    return Receipt.from_json(data.decode())


def _count(rows: Rows, payload: TaskPayload) -> int:
    """What must be written: deletes and the row filter applied, by a query of its own."""
    found = rows.engine.rows(
        f"SELECT count() AS rows {rows.from_where(rows.pieces)}",
        write_settings(payload, 1),
        "counting the rows",
    )
    return int(found[0]["rows"])


@contextmanager
def _folder(engine: Engine) -> Iterator[Path]:
    """A place for local files, always emptied. If we die here, the next engine sweeps it."""
    folder = Path(tempfile.mkdtemp(dir=engine.scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unexpected(error: Exception) -> ErrorInfo:
    if isinstance(error, OSError) and is_full(error):
        return as_full_disk(error, Path(tempfile.gettempdir())).info
    return ErrorInfo(
        code="task_crashed",
        message=f"the task raised {type(error).__name__}: {error}",
        hint="calve show gives the attempt; the executor's log has the rest",
        retryable=True,
    )
