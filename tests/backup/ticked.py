"""Backups and restores by a worker that is ticked by hand, over a store in memory: no waiting.

The source, the files and the kinds are real; only time is not.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from backup_place import DirectRunner

from calve.archive.location import Location
from calve.backup import submit
from calve.backup.kind import BackupKind
from calve.backup.request import BackupOptions
from calve.clickhouse.source import LiveSource
from calve.control.background import inline
from calve.control.worker import WorkerLoop
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, WorkerId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, Leftovers
from calve.objects.storage import Storage
from calve.restore import submit as restore_submit
from calve.restore.kind import RestoreKind
from calve.testing.clock import FakeClock
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store
from calve.testing.memory_store import MemoryStore


@dataclass
class Ports:
    folder: Path
    source_: LiveSource
    limits: Limits = field(default_factory=lambda: Limits(slots=2, task_bytes_mb=1))
    url: str = ""  # in place of the folder
    storage: dict[str, str] = field(default_factory=dict)
    hard_links: bool = False
    buckets: dict[str, dict[str, str]] = field(default_factory=dict)

    def source(self, name: str) -> LiveSource:
        return self.source_

    def disks_are_near(self, source: str) -> bool:
        return False

    def location(self) -> Location:
        return Location(self.url or f"file://{self.folder}", Storage(self.storage))

    def location_properties(self) -> dict[str, str]:
        return self.storage

    def bucket_properties(self, source: str) -> dict[str, dict[str, str]]:
        return self.buckets


class Ticked:
    def __init__(self, folder: Path, source: LiveSource, **limits: float) -> None:
        self.ports = Ports(folder, source, Limits(**{"slots": 2, "task_bytes_mb": 1, **limits}))
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.runner = DirectRunner(slots=2)
        self.kinds = {"backup": BackupKind(self.ports), "restore": RestoreKind(self.ports)}
        self._workers = 0

    @property
    def location(self) -> Location:
        return self.ports.location()

    def create(self, name: str, *tables: str, **asked: object) -> ProcessId:
        request = submit.request_of(self.ports, name, "main", tables or ("db.*",), BackupOptions(**asked))  # type: ignore[arg-type]
        return submit.submit(self.ports, self.store, request).process.id

    def restore(self, name: str, **asked: object) -> ProcessId:
        options = restore_submit.RestoreOptions(**asked)  # type: ignore[arg-type]
        request = restore_submit.request_of(self.ports, name, "main", options)
        return restore_submit.submit(self.ports, self.store, request).process.id

    def worker(self, faults: Faults | None = None) -> WorkerLoop:
        self._workers += 1
        quiet = faults or Faults()
        return WorkerLoop(
            store=crashing_store(self.store, quiet),
            kinds={name: crashing_kind(kind, quiet) for name, kind in self.kinds.items()},
            runner=crashing_runner(self.runner, quiet),
            limits=self.ports.limits,
            reach=frozenset({"source:main", f"backup:{self.location.url}"}),
            worker_id=WorkerId(f"worker-{self._workers}"),
            spawn=inline,
            monotonic=self.clock.offset_seconds,
            random=Random(0).random,
        )

    def row(self, process_id: ProcessId) -> Process:
        return self.store.process(process_id)

    def settle(self, process_id: ProcessId, worker: WorkerLoop | None = None, ticks: int = 60) -> Process:
        """Until it has ended, its pins are released and nothing is left to clear away at once."""
        worker = worker or self.worker()
        for _ in range(ticks):
            worker.tick()
            row = self.row(process_id)
            cleared = row.leftovers is not Leftovers.KEPT or row.error is not None
            if row.state in PROCESS_TERMINAL and not self.store.pins(states=PIN_HELD) and cleared:
                break
            self.clock.advance(1.0)
        return self.row(process_id)
