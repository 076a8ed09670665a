"""What executors do in a year: exports that write Parquet, and the product's own reading of the lake."""

from dataclasses import dataclass
from datetime import timedelta

from calve.destination.names import DataFileName
from calve.destination.receipt import FileReceipt, Receipt
from calve.export.payload import TaskPayload
from calve.tasks import attempts
from support.simulator.objects import ModelledObjects
from support.year.clickhouse import YearServer
from support.year.rows import KnownRows, partition_value

Span = timedelta


@dataclass
class ParquetTask:
    """Reads the pinned rows, writes a file of each slice, leaves a receipt."""

    server: YearServer
    objects: ModelledObjects
    known: KnownRows

    def __call__(self, text: str) -> str:
        payload = TaskPayload.from_json(text)
        storage = self.objects.storage()
        earlier = attempts.left(storage, payload.receipt_uri, Receipt.from_json)
        if earlier is not None:
            return attempts.answer(earlier, files=len(earlier.files))
        rows = [
            row
            for piece in payload.slices
            for row in self.server.pinned_rows(payload.parts[piece.part])[piece.start : piece.end]
        ]
        files = self._written(payload, rows)
        receipt = Receipt(
            process_id=payload.process_id,
            task=payload.task,
            attempt=payload.attempt,
            rows=len(rows),
            bytes=sum(file.bytes for file in files),
            files=files,
            checksums=self.known.checksums(rows),
        )
        left = attempts.leave(storage, payload.receipt_uri, receipt, Receipt.from_json)
        return attempts.answer(left, files=len(left.files))

    def _written(self, payload: TaskPayload, rows: list[str]) -> tuple[FileReceipt, ...]:
        """One file of each destination partition."""
        spec, files = payload.destination.spec, []
        by_value: dict[str, list[str]] = {}
        for row in rows:
            day = self.known.day(row)
            value = str([partition_value(one.transform, day) for one in spec])
            by_value.setdefault(value, []).append(row)
        for number, (_, some) in enumerate(sorted(by_value.items())):
            name = DataFileName(
                process_id=payload.process_id, task=payload.task, attempt=payload.attempt, number=number
            )
            uri = f"{payload.destination.data_location.rstrip('/')}/{name}"
            data = self.known.parquet(uri, some)
            self.objects.write(lambda data=data: (data,), uri)  # type: ignore[misc]
            files.append(self.known.receipt(uri, some, len(data), spec))
        return tuple(files)
