"""A whole export in one program, with every port real and every port breakable.

The store (SQLite), the catalog (SQLite), the metadata files, the source's engine, the storage and the
executors are the real ones; time is the database's own, moved by hand; one thread does everything, so
that call number N is the same call in every run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate
from sqlalchemy.exc import OperationalError

from calve.clickhouse.embedded.base import EngineSource
from calve.clickhouse.parts.partitions import PartitionInfo, Selection
from calve.clickhouse.source import LiveSource, Session
from calve.control.background import inline
from calve.control.ports import Runner, TaskOrder
from calve.control.worker import WorkerLoop
from calve.destination.names import DestinationAddress
from calve.destination.port import Destination
from calve.export.choices import Choices
from calve.export.kind import ExportKind
from calve.export.request import ExportRequest
from calve.export.submit import submit_export, survey_export
from calve.export.survey import Survey
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.destination import IcebergDestination
from calve.model.errors import CalveError, TemporaryError
from calve.model.limits import Limits
from calve.model.process import Process, ProcessId, WorkerId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, Leftovers, ProcessState
from calve.objects.storage import Storage
from calve.objects.uri import full_uri
from calve.store import open_store
from calve.testing.clock import FakeClock
from calve.testing.faults import Faults, crashing_kind, crashing_runner, crashing_store
from support.kept_source import KeptSource

LIMITS = Limits(slots=2, commits_per_export=1)
EVENTS = (
    "CREATE DATABASE IF NOT EXISTS db",
    "CREATE TABLE db.events (id UInt64, day Date, note Nullable(String)) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(day) ORDER BY id",
    *(
        f"INSERT INTO db.events SELECT number + {first}, toDate('2024-0{month}-01') + number % 28,"
        " if(number % 5 = 0, NULL, toString(number)) FROM numbers(50)"
        for month, first in ((1, 0), (1, 50), (2, 100))
    ),
)
IDS = tuple(range(150))
DEATH = "support.dying_task:run"


@dataclass
class Ports:
    """`ExportPorts`, each port counted and broken by the same faults."""

    source_: LiveSource
    folder: Path
    faults: Faults = field(default_factory=Faults)
    limits: Limits = LIMITS
    choices: Choices = field(default_factory=Choices)
    catalog_uri: str = ""  # of another database than SQLite's

    def __post_init__(self) -> None:
        (self.folder / "lake").mkdir(parents=True, exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": self.catalog_uri or f"sqlite:///{self.folder / 'lake' / 'catalog.db'}",
            "warehouse": (self.folder / "lake" / "warehouse").as_uri(),
        }
        self._catalog: Catalog | None = None
        self.before_send: list[Callable[[], None]] = []  # each done once, right before a snapshot is sent

    def cores(self, more: int = 0) -> int:
        return 2

    def source(self, name: str) -> LiveSource:
        return _BreakingSource(self.source_, self.faults)

    def catalog(self, name: str) -> Catalog:
        if self._catalog is None:
            self._catalog = _breaking(open_catalog(name, self.properties, self.limits), self.faults)
            really = self._catalog.commit_table

            def commit_table(table: Any, requirements: Any, updates: Any) -> Any:
                adds = any(isinstance(update, AddSnapshotUpdate) for update in updates)
                while adds and self.before_send:
                    self.before_send.pop(0)()
                return really(table, requirements, updates)

            self._catalog.commit_table = commit_table  # type: ignore[method-assign]
        return self._catalog

    def destination(self, address: DestinationAddress) -> Destination:
        return _BreakingDestination(self, address)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()


class _BreakingDestination(IcebergDestination):
    def __init__(self, ports: "Ports", address: DestinationAddress) -> None:
        super().__init__(address, ports.catalog(address.catalog), ports.properties, ports.limits)
        self._faults = ports.faults

    def storage(self) -> Storage:
        return _breaking_storage(super().storage(), self._faults)


class _BreakingSource(EngineSource):
    def __init__(self, source: LiveSource, faults: Faults) -> None:
        self.name = source.name
        self._source, self._faults = source, faults

    @contextmanager
    def visit(self) -> Iterator[Session]:
        with self._source.visit() as session:
            yield _BreakingSession(session, self._faults)  # type: ignore[misc]


class _BreakingSession:
    def __init__(self, session: Session, faults: Faults) -> None:
        self._session, self._faults = session, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def execute(self, *args: Any, **kwargs: Any) -> None:
        self._faults.call("execute", TemporaryError, lambda: self._session.execute(*args, **kwargs))


class _CatalogFailed(OperationalError):
    """What a lost connection to the catalog's database looks like."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, None, Exception(message))


def _breaking(catalog: Catalog, faults: Faults) -> Catalog:
    """Instance attributes over the real methods: the class, which the protocol asks for, stays."""
    for name in ("commit_table", "create_table", "create_namespace", "_write_metadata"):
        setattr(catalog, name, _counted(f"catalog.{name}", getattr(catalog, name), faults, _CatalogFailed))
    load = catalog._load_file_io  # type: ignore[attr-defined]

    def breaking_io(*args: Any, **kwargs: Any) -> Any:
        io = load(*args, **kwargs)
        io.new_output = _counted("io.new_output", io.new_output, faults, _CatalogFailed)
        return io

    catalog._load_file_io = breaking_io  # type: ignore[attr-defined]
    return catalog


def _breaking_storage(storage: Storage, faults: Faults) -> Storage:
    storage.delete = _counted("storage.delete", storage.delete, faults, TemporaryError)  # type: ignore
    return storage


def _counted(name: str, call: Any, faults: Faults, error: type[Any]) -> Any:
    return lambda *args, **kwargs: faults.call(name, error, lambda: call(*args, **kwargs))


@dataclass
class DyingRunner:
    """A runner whose executor dies, for real, at a chosen storage call of the first task's first attempt."""

    runner: Runner
    at: int = 0
    how: str = ""

    @property
    def slots(self) -> int:
        return self.runner.slots

    def run(self, group: str, orders: Sequence[TaskOrder], on_result: Any) -> None:
        self.runner.run(group, [self._order(order) for order in orders], on_result)

    def cancel(self, group: str) -> None:
        self.runner.cancel(group)

    def close(self) -> None: ...

    def _order(self, order: TaskOrder) -> TaskOrder:
        from support.dying_task import wrap

        if not self.at or (order.number, order.attempt) != (0, 1):
            return order
        return replace(order, function=DEATH, payload=wrap(order.payload, at=self.at, how=self.how))


class Life:
    """One folder with a store and a lake; workers come and go."""

    def __init__(
        self, folder: Path, source: KeptSource, runner: Runner, faults: Faults | None = None, **limits: Any
    ) -> None:
        self.folder, self.kept, self.runner = folder, source, runner
        self.limits = replace(LIMITS, **limits)
        self.faults = faults or Faults()
        self.faults.armed = False
        self.clock = FakeClock()
        folder.mkdir(parents=True, exist_ok=True)
        self.store = open_store(
            f"sqlite:///{folder / 'calve.db'}", clock_offset_seconds=self.clock.offset_seconds
        )
        self.ports = Ports(source, folder, self.faults, self.limits)
        self.kind = ExportKind(self.ports)
        self.ids: list[ProcessId] = []
        self._workers = 0

    def close(self) -> None:
        self.ports.close()
        self.store.close()

    def check(self, *partitions: str, **asked: Any) -> Survey[PartitionInfo]:
        """What an export would do; without partitions, of all there is."""
        request = ExportRequest(
            source="main",
            database="db",
            table="events",
            catalog="lake",
            identifier=("ns", "events"),
            partitions=(),
            **asked,
        )
        selection = Selection(partitions=partitions) if partitions else Selection(all=True)
        return survey_export(self.ports, request, selection)

    def submit(self, *partitions: str, **asked: Any) -> list[ProcessId]:
        submission = submit_export(self.ports, self.store, self.check(*partitions, **asked))
        new = [process.id for process in submission.processes]
        self.ids += new
        return new

    def worker(self) -> WorkerLoop:
        self._workers += 1
        return WorkerLoop(
            store=crashing_store(self.store, self.faults),
            kinds={"export": crashing_kind(self.kind, self.faults)},
            runner=crashing_runner(self.runner, self.faults),
            limits=self.limits,
            reach=frozenset({"source:main", "catalog:lake"}),
            worker_id=WorkerId(f"worker-{self._workers}"),
            spawn=inline,
            monotonic=self.clock.offset_seconds,
            random=Random(0).random,
        )

    def run(self, worker: WorkerLoop, *, ticks: int = 60, seconds: float = 2.0) -> None:
        """Tick until everything has ended and every pin is released."""
        for _ in range(ticks):
            worker.tick()
            if self.settled():
                return
            self.clock.advance(seconds)

    def settled(self) -> bool:
        ended = all(self.row(one).state in PROCESS_TERMINAL for one in self.ids)
        return ended and not self.store.pins(states=PIN_HELD)

    def keep_time_and_undo(self) -> None:
        """Everything has its time: what waited for a retry is undone."""
        self.clock.advance(self.limits.keep_failed_hours * 3600 + 60)
        last = self.worker()
        for _ in range(5):
            last.tick()
            self.clock.advance(self.limits.query_seconds)

    def run_until_gone(self, process_id: ProcessId) -> None:
        """Until what the process left is deleted."""
        worker = self.worker()
        for _ in range(20):
            if self.row(process_id).leftovers in (Leftovers.NONE, Leftovers.GONE):
                return
            worker.tick()
            self.clock.advance(60.0)
        raise AssertionError(f"{process_id} still has {self.row(process_id).leftovers} files")

    def row(self, process_id: ProcessId) -> Process:
        return self.store.process(process_id)

    def export(self, *partitions: str, **asked: Any) -> Process:
        """One process, run to its end."""
        [process_id] = self.submit(*partitions, **asked)
        self.run(self.worker())
        self.check_settled()
        return self.row(process_id)

    def run_until(self, state: ProcessState, process_id: ProcessId) -> None:
        worker = self.worker()
        for _ in range(20):
            if self.row(process_id).state is state:
                return
            worker.tick()
            self.clock.advance(2.0)
        raise AssertionError(f"{process_id} never became {state}: {self.row(process_id).error}")

    def leave(self) -> None:
        """The worker that ran is gone for good: its leases expire."""
        self.clock.advance(self.limits.lease_seconds + self.limits.query_seconds + 1)

    # -- looking at the lake, with a catalog of one's own -------------------------------------------

    def table(self) -> Table | None:
        catalog = open_catalog("lake", self.ports.properties)
        try:
            return catalog.load_table(("ns", "events"))
        except CalveError:
            raise
        except Exception as error:  # only a missing table or database is None
            if "does not exist" in str(error) or "no such table" in str(error):
                return None
            raise
        finally:
            catalog.close()

    def exported_ids(self) -> list[int]:
        """Every id in the table, by PyIceberg."""
        table = self.table()
        return [] if table is None else sorted(int(one) for one in table.scan().to_arrow()["id"].to_pylist())

    def check_settled(self) -> None:
        """What must hold once all is over, whatever happened on the way."""
        for process_id in self.ids:
            row = self.row(process_id)
            assert row.state in PROCESS_TERMINAL, f"{row.id} is still {row.state}: {row.error}"
            assert row.lease_until is None or row.lease_until <= self.store.now(), "a lease is left"
        assert not self.store.pins(states=PIN_HELD), "a pin is left in the journal"
        assert self.kept.frozen == [], "a freeze is left at the source"
        table = self.table()
        if table is not None:
            check_table(table)


def local(uri: str) -> Path:
    """Spark writes `file:/…`, others `file:///…`."""
    return Path(full_uri(uri).removeprefix("file://"))


def check_table(table: Table) -> None:
    """Whatever any snapshot refers to is there; no process and no key has two snapshots."""
    processes = []
    for snapshot in table.metadata.snapshots:
        assert snapshot.summary is not None
        if process := snapshot.summary.additional_properties.get("calve.process-id"):
            processes.append(process)
            assert table.metadata.refs[f"calve-{process}"].snapshot_id == snapshot.snapshot_id
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.status != ManifestEntryStatus.DELETED:
                    assert local(entry.data_file.file_path).is_file()
    assert len(processes) == len(set(processes)), "a process has two snapshots"


def stray_files(table: Table) -> list[str]:
    """Data files, receipts and manifests below the table's folder that no snapshot refers to."""
    root = local(table.location())
    known = set()
    for snapshot in table.metadata.snapshots:
        known.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            known.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            known |= {entry.data_file.file_path for entry in entries}
    names = {str(local(path)) for path in known}
    return sorted(
        path.name
        for path in root.rglob("*")
        if path.is_file() and str(path) not in names and not path.name.endswith(".metadata.json")
    )
