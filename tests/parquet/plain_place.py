"""A place whose exports go to folders of plain Parquet, and what an attempt at publishing needs."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt
from calve.model.errors import UnavailableError
from calve.model.process import Process, ProcessId
from calve.objects.storage import Storage
from calve.parquet.folder import Folder
from support.place import Place

EVENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, month UInt32, note Nullable(String)) ENGINE = MergeTree"
    " PARTITION BY month ORDER BY id",
    *(
        f"INSERT INTO db.events SELECT number + {first}, {month}, if(number % 5 = 0, NULL, toString(number))"
        " FROM numbers(50)"
        for month, first in ((1, 0), (2, 50))
    ),
)


class PlainPlace(Place):
    def to(self, out: Path) -> str:
        return f"{out}/"

    def one(self, out: Path, partition: str = "1", **asked: Any) -> Process:
        """Export one partition."""
        [process] = self.export("db.events", partition, to=self.to(out), **asked)
        return process

    def attempt(self, process_id: ProcessId) -> "Attempt":
        with self.app() as app:
            plan = ExportPlan.from_json(app.store.plan(process_id) or "")
            receipts = [Receipt.from_json(task.receipt) for task in app.store.tasks(process_id)]
        return Attempt(process_id=process_id, plan=plan, receipts=receipts)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What publishing is given."""

    process_id: str
    plan: ExportPlan
    receipts: list[Receipt]

    @property
    def key(self) -> str:
        return self.plan.keys[0].hash

    def of_another(self, process_id: str, *, force: bool = False) -> "Attempt":
        """The same input, by a process of another store that knows nothing of the first."""
        return replace(self, process_id=process_id, plan=replace(self.plan, replace=force))


def folder_at(out: Path, storage: Storage | None = None) -> Folder:
    return Folder(out.as_uri(), storage or Storage())


def commits_in(out: Path) -> dict[str, dict[str, Any]]:
    """Every commit object, by its name."""
    return {file.name: json.loads(file.read_text()) for file in (out / "_calve" / "commits").iterdir()}


def listed(out: Path) -> list[Path]:
    """The files that readers are told to take: of each key, those of its highest generation."""
    latest: dict[str, dict[str, Any]] = {}
    for commit in sorted(commits_in(out).values(), key=lambda one: one["generation"]):
        if not commit["tombstone"]:
            latest[commit["key"]] = commit
    return [Path(file["path"].removeprefix("file://")) for one in latest.values() for file in one["files"]]


def globbed(out: Path) -> list[Path]:
    return [file for file in out.rglob("*.parquet") if "_calve" not in file.parts]


def rows_of(files: list[Path]) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(file).read() for file in files)


class LosesTheAnswer(Storage):
    """Puts, and reports that the storage could not be reached."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        super().put_if_absent(uri, data)
        raise UnavailableError("the answer was lost", code="storage_unavailable", service="storage:test")
