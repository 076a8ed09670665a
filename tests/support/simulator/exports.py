"""Exports in the simulator: the real kind, the real publish, and a modelled task in place of the engine."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from calve.clickhouse.source import LiveSource, Source
from calve.destination.names import PARQUET, DataFileName, DestinationAddress
from calve.destination.port import Destination
from calve.destination.receipt import FileReceipt, Receipt
from calve.export.choices import Choices
from calve.export.payload import TaskPayload
from calve.iceberg.destination import IcebergDestination
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.parquet.destination import ParquetDestination
from calve.tasks import attempts
from support.simulator.catalog import ModelledCatalog
from support.simulator.clickhouse import ModelledSource
from support.simulator.objects import ModelledObjects
from support.simulator.schedule import Schedule

_PER_FILE = 3  # rows


@dataclass
class ExportTask:
    """What an executor does: reads the pinned rows, writes files of them, leaves a receipt."""

    source: ModelledSource
    objects: ModelledObjects

    def __call__(self, text: str) -> str:
        payload = TaskPayload.from_json(text)
        storage = self.objects.storage()
        earlier = attempts.left(storage, payload.receipt_uri, Receipt.from_json)
        if earlier is not None:
            return attempts.answer(earlier, files=len(earlier.files))
        files: list[FileReceipt] = []
        for piece in payload.slices:
            part = payload.parts[piece.part]
            rows = self.source.pinned_rows(part)[piece.start : piece.end]
            for start in range(0, len(rows), _PER_FILE):
                some = rows[start : start + _PER_FILE]
                files.append(self._write(payload, part.partition_id, len(files), some))
        receipt = Receipt(
            process_id=payload.process_id,
            task=payload.task,
            attempt=payload.attempt,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            files=tuple(files),
        )
        left = attempts.leave(storage, payload.receipt_uri, receipt, Receipt.from_json)
        return attempts.answer(left, files=len(left.files))

    def _write(self, payload: TaskPayload, partition: str, number: int, rows: tuple[str, ...]) -> FileReceipt:
        name = DataFileName(
            process_id=payload.process_id, task=payload.task, attempt=payload.attempt, number=number
        )
        uri = f"{payload.destination.data_location.rstrip('/')}/{name}"
        data = json.dumps(rows).encode()
        self.objects.write(lambda: (data,), uri)
        values = tuple(int(partition) for _ in payload.destination.spec)
        return FileReceipt(path=uri, rows=len(rows), bytes=len(data), partition=values)


class _Turn:
    """A lock that fibers may wait for."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._taken = False

    def acquire(self, timeout: float) -> bool:
        if not self._schedule.wait(lambda: not self._taken, timeout):
            return not self._taken
        self._taken = True
        return True

    def release(self) -> None:
        self._taken = False


class ReachedDestination(IcebergDestination):
    """The real one, over modelled storage."""

    def __init__(
        self, address: DestinationAddress, catalog: ModelledCatalog, objects: ModelledObjects, limits: Limits,
        schedule: Schedule,
    ) -> None:  # fmt: skip
        super().__init__(address, catalog, {}, limits)
        self._objects = objects
        self._publishing = cast(threading.Lock, _Turn(schedule))

    def storage(self) -> Storage:
        return self._objects.storage()


@dataclass
class ReachedPorts:
    """`export.kind.ExportPorts` of one worker."""

    limits: Limits
    schedule: Schedule
    modelled: ModelledSource
    catalogs: Mapping[str, ModelledCatalog]
    objects: ModelledObjects
    choices: Choices = field(default_factory=Choices)

    def __post_init__(self) -> None:
        self._destinations: dict[DestinationAddress, Destination] = {}

    def cores(self, more: int = 0) -> int:
        return 2

    def source(self, name: str) -> LiveSource:
        return self.modelled.as_source()

    def backup(self, name: str, source: str, *, unsigned: bool = False) -> Source:
        raise NotImplementedError

    def destination(self, address: DestinationAddress) -> Destination:
        if address not in self._destinations:
            self._destinations[address] = self._opened(address)
        return self._destinations[address]

    def _opened(self, address: DestinationAddress) -> Destination:
        if address.form == PARQUET:
            return ParquetDestination(address, self.objects.storage())
        return ReachedDestination(
            address, self.catalogs[address.catalog], self.objects, self.limits, self.schedule
        )
