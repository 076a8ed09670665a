"""A backup location and parts made by hand: the whole life of stored parts, without ClickHouse."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calve.archive import backups
from calve.archive.location import Location, address_of
from calve.archive.manifest import Manifest, PartEntry, PartitionEntry, TableEntry
from calve.backup import publish, task
from calve.backup.frozen import Frozen
from calve.backup.kind import reusable
from calve.backup.plan import BackupPlan, BackupReceipt, divide
from calve.backup.task import BackupPayload
from calve.clickhouse.tables import Column
from calve.control.kind import Published
from calve.objects.storage import Storage


class Interposed:
    """A storage that calls `before(name, uri)` ahead of every call."""

    def __init__(self, storage: Storage, before: Callable[[str, str], None]) -> None:
        self._storage = storage
        self._before = before

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._storage, name)

        def interposed(*arguments: Any, **named: Any) -> Any:
            self._before(name, str(arguments[-1] if name == "upload" else arguments[0]))
            return call(*arguments, **named)

        return interposed if callable(call) else call


def make_part(folder: Path, name: str, data: bytes, *, columns: str = "id UInt64") -> Path:
    """A folder with the files that every part has; `checksums.txt` covers the data alone."""
    part = folder / name
    part.mkdir(parents=True)
    (part / "data.bin").write_bytes(data)
    (part / "columns.txt").write_text(columns)
    (part / "count.txt").write_text("7")
    (part / "checksums.txt").write_text(hashlib.sha256(data).hexdigest())
    return part


class ArchiveScene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = Storage()
        self.location = Location(f"file://{folder}/backups", self.storage)
        self._made = 0

    def part(self, text: str, name: str = "all_1_1_0") -> Path:
        """A part with a file that is large enough to be an object of its own."""
        self._made += 1
        return make_part(self.folder / "parts" / str(self._made), name, text.encode() * 2000)

    def plan(self, name: str, parts: Sequence[Path], process_id: str = "", **changes: Any) -> BackupPlan:
        process_id = process_id or f"p{name}"
        table = _table(parts)
        frozen = [("calve-x-1", Frozen(database="db", name="t", table=table, paths=tuple(map(str, parts))))]
        uploads, tasks, pins = divide(frozen, task_bytes_mb=1)
        key = self.location.keys().next_of(name)
        identity = self.location.made_identity()
        manifest = Manifest(
            name=name, number=key.number, process_id=process_id, location_id=identity, source="main",
            created_at="2026-01-01T00:00:00+00:00", calve_version="0", order=(("db", "t"),), tables=(table,),
        )  # fmt: skip
        plan = BackupPlan(
            process_id=process_id, key=str(key), location=self.location.url, location_id=identity,
            manifest=manifest.to_json(), uploads=uploads, tasks=tasks, pins=pins,
            reuse=reusable(self.location, identity, uploads, None), bytes=sum(one.bytes for one in uploads),
        )  # fmt: skip
        return replace(plan, **changes)

    def run(self, plan: BackupPlan, storage: Any = None, attempt: int = 1) -> list[BackupReceipt]:
        receipts = []
        for number in range(len(plan.tasks)):
            payload = BackupPayload.of(
                plan, task=number, attempt=attempt, storage={}, connect_seconds=5, call_seconds=15
            )
            location = Location(self.location.url, storage or self.storage)
            receipts.append(task.attempt_at(location, payload))
        return receipts

    def publish(self, plan: BackupPlan, receipts: Sequence[BackupReceipt]) -> Published:
        return publish.publish(self.location, plan, receipts, lambda note: None)

    def backup(self, name: str, *parts: Path, process_id: str = "") -> Manifest:
        plan = self.plan(name, parts, process_id)
        self.publish(plan, self.run(plan))
        return backups.find(self.location, name)

    @property
    def objects(self) -> list[str]:
        return [uri.removeprefix(f"{self.location.url}/") for uri in self.storage.list(self.location.url)]

    @property
    def stored(self) -> set[str]:
        """The places of parts that are there."""
        return {
            uri.removeprefix("parts/").removesuffix(".json")
            for uri in self.objects
            if uri.startswith("parts/") and uri.endswith(".json")
        }


def _table(parts: Sequence[Path]) -> TableEntry:
    return TableEntry(
        database="db", name="t", uuid="", identity="embedded:t", engine="MergeTree",
        engine_full="MergeTree ORDER BY id", create="CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id",
        columns=(Column(name="id", type="UInt64"),), partition_key="", sorting_key="id", primary_key="id",
        sampling_key="", timezone="UTC", version="26.9", scratch="",
        partitions=(PartitionEntry(id="all", value="tuple()"),),
        parts=tuple(_entry(part) for part in parts),
    )  # fmt: skip


def _entry(part: Path) -> PartEntry:
    size = sum(file.stat().st_size for file in part.iterdir())
    return PartEntry(
        name=part.name, partition_id="all", rows=7, rows_seen=7, bytes=size, address=address_of(part),
        min_block=1, max_block=1, level=0, mutation=0, data_version=1, content=part.name,
    )  # fmt: skip
