"""A place to try whole backups in: an embedded source, a store and a backup folder, no JVM.

Tasks of backups and restores are plain Python over files, so a runner that calls them here runs the
very code that executors run.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.app.backups.requests import BackupReach
from calve.app.wiring import App
from calve.app.work import follow, own_worker_for
from calve.archive import backups
from calve.archive.location import Location
from calve.archive.manifest import Manifest
from calve.backup import submit
from calve.backup.request import BackupOptions
from calve.backup.verification import Verified, verify
from calve.clickhouse.source import Session
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import CalveError
from calve.model.process import Process, ProcessId
from calve.model.states import Leftovers, ProcessState
from calve.restore import submit as restore_submit
from calve.spark.executor import execute, result
from support.kept_source import KeptSource
from support.place import Place

TABLES = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, day Date, note String) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(day) ORDER BY id SETTINGS min_bytes_for_wide_part = 0",
    "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 60,"
    " randomPrintableASCII(100) FROM numbers(2000)",
    "CREATE TABLE db.users (id UInt64, name String) ENGINE = ReplacingMergeTree ORDER BY id",
    "INSERT INTO db.users SELECT number, concat('user ', toString(number)) FROM numbers(100)",
    "INSERT INTO db.users SELECT number, concat('renamed ', toString(number)) FROM numbers(10)",
)


@dataclass
class DirectRunner:
    """Runs orders one after another, in this program. `before` is called ahead of each."""

    slots: int = 4
    before: Callable[[TaskOrder], None] = lambda order: None
    orders: list[TaskOrder] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Callable[[TaskResult], None]) -> None:
        for order in orders:
            if group in self.cancelled:
                return
            self.before(order)
            self.orders.append(order)
            on_result(result(json.loads(json.dumps(execute(order)))))

    def cancel(self, group: str) -> None:
        self.cancelled.add(group)

    def warm(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing to give back."""


class OpenSource(KeptSource):
    """Opened once, for one thread at a time. `failing` are the errors of the next visits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._turn = threading.RLock()
        self.failing: list[CalveError] = []

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self._turn:
            if self.failing:
                raise self.failing.pop(0)
            with super().visit() as session:
                yield session


class BackupPlace(Place):
    """A `Place` that backs up and restores."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.runner = DirectRunner()
        super().__init__(folder, self.runner, **settings)
        self.open_source = OpenSource(folder / "clickhouse")
        self.open_source.__enter__()

    @contextmanager
    def app(self) -> Iterator[App]:
        with super().app() as app:
            app.source = lambda name: self.open_source  # type: ignore[method-assign]
            yield app

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self.open_source.visit() as session:
            yield session

    def close(self) -> None:
        self.open_source.__exit__(None, None, None)

    def finish(self, app: App, ids: Sequence[ProcessId]) -> list[Process]:
        """Also until what a completed process no longer needs is cleared away."""
        with own_worker_for(app, ids):
            for standing in follow(app, ids):
                last = standing.processes
            while any(app.store.process(one.id).leftovers is Leftovers.KEPT for one in last if not one.error):
                time.sleep(0.02)
        return list(last)

    @property
    def location(self) -> Location:
        with self.app() as app:
            return BackupReach(app).location()

    @property
    def backups(self) -> Path:
        return self.folder / "backups"

    def submit_create(self, app: App, name: str, *tables: str, **asked: Any) -> Process:
        reach = BackupReach(app)
        request = submit.request_of(reach, name, "main", tables or ("db.*",), BackupOptions(**asked))
        return submit.submit(reach, app.store, request).process

    def try_create(self, name: str, *tables: str, **asked: Any) -> Process:
        with self.app() as app:
            [process] = self.finish(app, [self.submit_create(app, name, *tables, **asked).id])
            return process

    def create(self, name: str, *tables: str, **asked: Any) -> Manifest:
        process = self.try_create(name, *tables, **asked)
        assert process.state is ProcessState.COMPLETED, process.error
        return self.manifest(name)

    def submit_restore(self, app: App, name: str, **asked: Any) -> Process:
        reach = BackupReach(app)
        options = restore_submit.RestoreOptions(**asked)
        request = restore_submit.request_of(reach, name, "main", options)
        return restore_submit.submit(reach, app.store, request).process

    def try_restore(self, name: str, **asked: Any) -> Process:
        with self.app() as app:
            [process] = self.finish(app, [self.submit_restore(app, name, **asked).id])
            return process

    def restore(self, name: str, **asked: Any) -> Process:
        process = self.try_restore(name, **asked)
        assert process.state is ProcessState.COMPLETED, process.error
        return process

    def manifest(self, name: str) -> Manifest:
        return backups.find(self.location, name)

    def verify(self, name: str, read_share: float = 0.0) -> Verified:
        return verify(self.location, self.manifest(name), read_share=read_share)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.select(f"SELECT * FROM {table} ORDER BY ALL")

    def checksum(self, *tables: str) -> list[dict[str, Any]]:
        """Rows and an order-independent hash of each table."""
        with self.visit() as session:
            return [
                session.rows(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {table}")[0]
                for table in tables
            ]
