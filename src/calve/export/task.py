"""One attempt at one task, on an executor: parts in, data files and a receipt out.

The receipt is put last and if-none-match: it exists only if every file it names is whole and in its
place.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calve.clickhouse.engine.engine import Engine, worker_engine
from calve.clickhouse.reader import Rows, opened
from calve.destination import checksums
from calve.destination.receipt import Receipt
from calve.export.payload import TaskPayload, write_settings
from calve.export.writer import TaskWriter, Written
from calve.iceberg.catalogs.lent_keys import remote_lender
from calve.model.errors import PermanentError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.tasks import attempts


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    receipt = attempt(TaskPayload.from_json(payload))
    return attempts.answer(receipt, files=len(receipt.files))


def prepare() -> None:
    """Open the engine of a Python worker before its first task."""
    worker_engine()


def attempt(payload: TaskPayload) -> Receipt:
    """Write the task's rows and leave a receipt; an attempt that has one already is not repeated."""
    started = time.monotonic()
    storage = _storage(payload)
    # Asked first: a dead storage is known before anything is read.
    if (earlier := attempts.left(storage, payload.receipt_uri, Receipt.from_json)) is not None:
        return earlier
    engine = worker_engine()
    with opened(engine, payload.reader.function, payload.read) as rows, _folder(engine) as folder:
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
        keys=remote_lender(payload.lending, payload.destination.identifier, payload.storage, limits)
        if payload.lending
        else None,
        pace=payload.pace,
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
    return attempts.leave(storage, payload.receipt_uri, receipt, Receipt.from_json)


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
