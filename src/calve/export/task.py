"""One attempt at one task, on an executor: parts in, data files and a receipt out.

The receipt is put last and if-none-match: it exists only if every file it names is whole and in its
place.

Rows are written as files of a size, split by destination partition, bounded in memory.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from calve.clickhouse.engine.engine import Engine, worker_engine
from calve.clickhouse.reader import Piece, Rows, opened
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string as literal
from calve.destination import checksums
from calve.destination.names import DataFileName
from calve.destination.receipt import FileReceipt, Receipt
from calve.export.payload import TaskPayload, write_settings
from calve.export.queries import ONE_FILE, Measured, Output, Partition, PartitionSplit, measure
from calve.export.slices import GRANULE_ROWS
from calve.iceberg.files.footer import MAGIC, annotate
from calve.iceberg.files.physical_types import physical_sql
from calve.iceberg.files.statistics import file_statistics
from calve.model.errors import PermanentError
from calve.model.limits import Limits
from calve.objects.errors import full_disk
from calve.objects.storage import Storage
from calve.tasks import attempts

if TYPE_CHECKING:
    from calve.iceberg.catalogs.lent_keys import Lender

_MEGABYTE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Written:
    files: tuple[FileReceipt, ...]
    checksums: Mapping[str, int]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class TaskWriter:
    """Writes the rows of one attempt; keeps nothing of them."""

    def __init__(
        self, payload: TaskPayload, rows: Rows, storage: Storage, folder: Path, watch: attempts.Stopwatch
    ) -> None:
        self._payload = payload
        self._watch = watch
        self._rows = rows
        self._storage = storage
        self._folder = folder
        schema = Schema.model_validate_json(payload.destination.schema)
        fields = tuple(schema.find_field(column.field_id) for column in payload.columns)
        self._split = PartitionSplit(payload.destination, schema)
        self._output = Output.of(payload.columns, fields)
        self._struct = StructType(*fields)
        self._bytes_per_row = _bytes_per_row(payload)
        self._files: list[FileReceipt] = []
        self._sums = {column.name: 0 for column in payload.columns}

    def write(self) -> Written:
        """All rows, each in one file of its own partition."""
        with self._watch("read"):
            partitions = self._split.find(self._rows, self._settings())
        for group in self._groups(partitions):
            self._write_group(group, alone=len(partitions) == 1)
        return Written(files=tuple(self._files), checksums=self._sums)

    def _groups(self, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, ...]]:
        """Partitions that share a statement: at most `open_files`, none that fills files itself."""
        small: list[Partition] = []
        for partition in partitions:
            if len(partitions) > 1 and partition.rows * self._bytes_per_row <= self._file_bytes:
                small.append(partition)
            else:
                yield (partition,)
        most = max(1, self._payload.open_files)
        for start in range(0, len(small), most):
            yield tuple(small[start : start + most])

    def _write_group(self, group: tuple[Partition, ...], *, alone: bool) -> None:
        remaining: tuple[Piece, ...] = self._rows.pieces
        total = sum(piece.rows for piece in remaining)
        share = 1.0 if alone else sum(partition.rows for partition in group) / total
        while remaining:
            rows = sum(piece.rows for piece in remaining)
            files = 1
            if len(group) == 1 and not self._rows.final:
                files = max(1, round(rows * share * self._bytes_per_row / self._file_bytes))
            pieces, remaining = take(remaining, -(-rows // files))
            self._write_statement(group, pieces, filtered=not alone)

    def _write_statement(
        self, group: tuple[Partition, ...], pieces: Sequence[Piece], *, filtered: bool
    ) -> None:
        ordinal = self._split.ordinal_sql(group) if filtered else ONE_FILE
        with self._watch("read"):
            measured = measure(self._rows, pieces, self._output, ordinal, self._settings())
        if not measured:
            return
        # If we die here or below, local files are left, and the folder is swept by the next engine.
        with self._watch("write"):
            self._insert(pieces, ordinal, filtered=filtered, writers=len(measured))
        try:
            for place, facts in measured.items():
                local = self._local(place) if filtered else self._local(0)
                self._keep(local, group[place], facts, pieces, filtered=filtered)
        finally:
            for left in self._folder.glob("*.parquet"):
                left.unlink()
        physical = sum(piece.rows for piece in pieces)
        written = self._files[-len(measured) :]
        if len(group) == 1 and not filtered:
            self._bytes_per_row = sum(file.bytes for file in written) / physical

    def _insert(self, pieces: Sequence[Piece], ordinal: str, *, filtered: bool, writers: int) -> None:
        output, source = self._output, self._rows.from_where(pieces)
        inner = f"SELECT {ordinal} AS {output.ordinal}, {output.select} {source}"
        columns = ", ".join(
            f"{physical_sql(item.field_type, output.name(place), required=item.required)} AS {quoted(column.name)}"
            for place, (column, item) in enumerate(zip(output.columns, output.fields, strict=True))
        )
        target = f"FUNCTION file({literal(str(self._local('{_partition_id}' if filtered else 0)))}, Parquet)"
        if filtered:
            # The ordinal is the last column, so that the footer can drop it.
            statement = (
                f"INSERT INTO {target} PARTITION BY {output.ordinal}"
                f" SELECT {columns}, {output.ordinal} FROM ({inner}) WHERE {output.ordinal} >= 0"
            )
        elif output.unchanged:
            statement = f"INSERT INTO {target} SELECT {output.unchanged} {source}"
        else:
            statement = f"INSERT INTO {target} SELECT {columns} FROM ({inner})"
        self._rows.engine.execute(statement, self._settings(writers), "writing data files")

    def _keep(
        self, local: Path, partition: Partition, facts: Measured, pieces: Sequence[Piece], *, filtered: bool
    ) -> None:
        """Finish one local file, move it to its place and note it."""
        with self._watch("write"):
            _refuse_unfinished(local)
            footer = annotate(local, self._struct, drop_last=filtered)
            with local.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        if footer.rows != facts.rows:
            raise PermanentError(f"{facts.rows} rows were read and {footer.rows} written", code="rows_differ")
        destination, payload = self._payload.destination, self._payload
        name = DataFileName(
            process_id=payload.process_id,
            task=payload.task,
            attempt=payload.attempt,
            number=len(self._files),
        )
        uri = self._split.location(partition, str(name))
        statistics = file_statistics(footer, self._struct, facts.counted, destination.properties)
        with self._watch("upload"):
            # If we die here, the object is there, whole or not at all, and no receipt names it.
            self._storage.upload(local, uri)
        self._files.append(
            FileReceipt(
                path=uri,
                rows=footer.rows,
                bytes=local.stat().st_size,
                partition=partition.values,
                sort_order_id=destination.sort_order_id if self._is_sorted(pieces) else None,
                sha256=digest,
                **asdict(statistics),
            )
        )
        for column, value in facts.checksums.items():
            self._sums[column] = checksums.add(self._sums[column], value)

    def _is_sorted(self, pieces: Sequence[Piece]) -> bool:
        """Rows of one part come in its order; those of several parts come one part after another."""
        one_part = len({piece.path for piece in pieces}) == 1
        return self._payload.destination.sorted and one_part and not self._rows.final

    def _local(self, ordinal: int | str) -> Path:
        return self._folder / f"{ordinal}.parquet"

    @property
    def _file_bytes(self) -> int:
        return max(1, self._payload.file_mb) * _MEGABYTE

    def _settings(self, writers: int = 1) -> dict[str, str]:
        return write_settings(self._payload, writers)


def _refuse_unfinished(local: Path) -> None:
    """The engine calls an insert into a file a success though the disk was full (tried: the file is
    empty). A Parquet file ends with its magic, written last."""
    with local.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(MAGIC)))
        if file.read() != MAGIC:
            raise full_disk(local, f"the engine left {size} bytes without an end")


def take(pieces: Sequence[Piece], rows: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """The first `rows` rows of the pieces, up to a granule, and the rest."""
    taken: list[Piece] = []
    for place, piece in enumerate(pieces):
        if rows <= 0:
            return tuple(taken), tuple(pieces[place:])
        end = -(-(piece.start + rows) // GRANULE_ROWS) * GRANULE_ROWS
        if piece.end > end:
            first = Piece(path=piece.path, start=piece.start, end=end)
            rest = Piece(path=piece.path, start=end, end=piece.end)
            return (*taken, first), (rest, *pieces[place + 1 :])
        taken.append(piece)
        rows -= piece.rows
    return tuple(taken), ()


def _bytes_per_row(payload: TaskPayload) -> float:
    """A first guess of a row's size in a data file: its size in the source."""
    rows = sum(part.rows for part in payload.parts)
    return sum(part.bytes for part in payload.parts) / rows if rows else 0.0


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    receipt = attempt(TaskPayload.from_json(payload))
    return attempts.answer(receipt, files=len(receipt.files))


def prepare() -> None:
    """Open the engine of a Python worker before its first task."""
    worker_engine()


def attempt(payload: TaskPayload) -> Receipt:
    """Write the task's rows and leave a receipt; an attempt that has one already is not repeated."""
    started, watch = time.monotonic(), attempts.Stopwatch()
    storage = _storage(payload)
    # Asked first: a dead storage is known before anything is read.
    if (earlier := attempts.left(storage, payload.receipt_uri, Receipt.from_json)) is not None:
        return earlier
    engine = worker_engine(payload.stall_seconds)
    with ExitStack() as stack:
        with watch("read"):
            rows = stack.enter_context(opened(engine, payload.reader.function, payload.read))
            expected = _count(rows, payload)
        folder = stack.enter_context(_folder(engine))
        written = TaskWriter(payload, rows, storage, folder, watch).write()
    if written.rows != expected:
        raise PermanentError(
            f"task {payload.task} of {payload.process_id} read {expected} rows and wrote {written.rows}",
            code="rows_differ",
            hint="nothing was published; report this with the output of calve show",
        )
    return _leave(storage, payload, written, time.monotonic() - started, watch.spent)


def _storage(payload: TaskPayload) -> Storage:
    return Storage(
        payload.storage,
        connect_seconds=payload.connect_seconds,
        call_seconds=payload.call_seconds,
        keys=_lender(payload) if payload.lending else None,
        pace=payload.pace,
    )


def _lender(payload: TaskPayload) -> "Lender":
    # Not at the top: with the catalogs, the start of an executor's Python would take twice as long.
    from calve.iceberg.catalogs.lent_keys import remote_lender

    limits = Limits(connect_seconds=payload.connect_seconds, call_seconds=payload.call_seconds)
    return remote_lender(payload.lending, payload.destination.identifier, payload.storage, limits)


def _leave(
    storage: Storage, payload: TaskPayload, written: Written, seconds: float, spent: Mapping[str, float]
) -> Receipt:
    receipt = Receipt(
        process_id=payload.process_id,
        task=payload.task,
        attempt=payload.attempt,
        rows=written.rows,
        bytes=sum(file.bytes for file in written.files),
        files=written.files,
        checksums={name: checksums.text(value) for name, value in written.checksums.items()},
        seconds=round(seconds, 3),
        spent=spent,
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
