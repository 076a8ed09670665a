"""The one place that builds the others. Everything is built on first use.

A command that only reads the store never imports Spark, PyIceberg or Arrow: whatever is heavy
is imported inside the function that builds it.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast, overload

from calve.app.config import Config, SourceConfig
from calve.app.destination import catalog_properties, parse_source_table, properties_of
from calve.control.kind import Kind, Kinds
from calve.control.ports import Runner, Store
from calve.destination.names import DestinationAddress
from calve.export.choices import Choices
from calve.model.limits import Limits
from calve.model.process import Granted, Process, ProcessId, Worker
from calve.model.reach import reaches, spark

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from calve.app.pages.answers import Scans
    from calve.app.pages.overview import Overview
    from calve.app.policies.page import Standings
    from calve.archive.location import Location
    from calve.clickhouse.source import LiveSource, Source
    from calve.clickhouse.sql.tokens import TableName
    from calve.control.registry import ServedStore
    from calve.control.worker import WorkerLoop
    from calve.destination.port import Destination
    from calve.objects.storage import Storage


T = TypeVar("T")
Ports = tuple[Store, Mapping[str, Kind], Runner]


class WarmRunner(Runner, Protocol):
    """A runner that can be started before its first task: Spark takes seconds."""

    def warm(self) -> None: ...


class built(Generic[T]):  # noqa: N801 - reads as the decorator it is
    """A part of an `App`, built on first use, once, whichever thread asks first. (`cached_property` has
    had no lock since Python 3.12.)"""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, app: None, owner: type) -> Self: ...
    @overload
    def __get__(self, app: "App", owner: type) -> T: ...
    def __get__(self, app: "App | None", owner: type) -> Self | T:
        if app is None:
            return self
        with app.lock(self._name):
            if self._name not in app.__dict__:
                app.__dict__[self._name] = self._make(app)
            made: T = app.__dict__[self._name]
            return made


class App:
    """The parts of one program, built on first use and shared by its threads. Close it: the store's
    connections and Spark go with it.

    Each part has a lock of its own, so a catalog that is slow to open holds up nobody but its users.
    """

    def __init__(
        self,
        config: Config,
        *,
        runner: Runner | None = None,
        migrate: bool = False,
        around_store: Callable[[Any], Any] = lambda store: store,
    ) -> None:
        """A `runner` that is lent is closed by its owner; without one, Spark is started when needed.
        `migrate`: bring the store to this version's schema also while older workers use it.
        `around_store` puts a decorator around it."""
        self.config = config
        self._around_store = around_store
        self._migrate = migrate
        self.brief = False  # Spark is for one command that leaves the JVM little to do
        self.closing = ExitStack()
        self._locks: dict[str, threading.RLock] = {}
        if runner is not None:
            self.__dict__["runner"] = runner
        self._sources: dict[str, LiveSource] = {}
        self._catalogs: dict[str, tuple[dict[str, Any], Catalog]] = {}
        self._destinations: dict[DestinationAddress, tuple[dict[str, Any], Destination]] = {}

    def close(self) -> None:
        self.closing.close()

    def lock(self, part: str) -> threading.RLock:
        return self._locks.setdefault(part, threading.RLock())  # atomic: one lock for each name

    # -- the store ----------------------------------------------------------------------------------

    @built
    def store(self) -> Store:
        from calve.store import open_store

        limits = self.config.limits
        opened = open_store(
            self.config.store_url,
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            migrate_beside_workers=self._migrate,
        )
        self.closing.callback(opened.close)
        return cast("Store", self._around_store(opened))

    @property
    def registry(self) -> "ServedStore":
        """The same store, as what serves others needs it."""
        return cast("ServedStore", self.store)

    @built
    def overview(self) -> "Overview":
        from calve.app.pages.overview import Overview

        return Overview(self.registry)

    @built
    def standings(self) -> "Standings":
        from calve.app.policies.page import Standings

        return Standings(self)

    @built
    def scans(self) -> "Scans":
        from calve.app.pages.answers import Scans

        return Scans()

    def find(self, texts: Sequence[str]) -> list[ProcessId]:
        """The processes that a person means, each once, in the order given."""
        return list(dict.fromkeys(found for text in texts for found in self.store.find(text)))

    def processes(self, texts: Sequence[str]) -> list[Process]:
        return [self.store.process(process_id) for process_id in self.find(texts)]

    def live_workers(self, process: Process | None = None) -> list[Worker]:
        """Workers that were heard of within a lease and, if a process is given, can do it."""
        silent = self.store.now() - timedelta(seconds=self.config.limits.lease_seconds)
        return [
            worker
            for worker in self.store.workers()
            if worker.heartbeat_at > silent
            and not worker.draining
            and (process is None or reaches(worker.reach, process))
        ]

    def has_workers(self, processes: Sequence[Process]) -> bool:
        """Whether every one of them has a worker that will take it."""
        alive = self.live_workers()
        return all(any(reaches(worker.reach, process) for worker in alive) for process in processes)

    # -- what the kinds reach -----------------------------------------------------------------------

    def source(self, name: str) -> "LiveSource":
        with self.lock(f"source:{name}"):
            if name not in self._sources:
                self._sources[name] = self._open_source(name)
            return self._sources[name]

    def source_with_disks(self, name: str) -> "LiveSource":
        """Also with the disks of a server that only the worker sees: tasks that need them run there."""
        config = self.config.source(name)
        if config.embedded or config.disks_at == "executors":
            return self.source(name)
        key = f"{name}/disks"  # no name of a source has a /
        with self.lock(f"source:{key}"):
            if key not in self._sources:
                self._sources[key] = self._open_server(config, disks=config.disks)
            return self._sources[key]

    def table(self, text: str) -> "TableName":
        """A table as a person names it: `[source:][db.]table`, with the defaults of the configuration."""
        return parse_source_table(text, self.config)

    def _open_source(self, name: str) -> "LiveSource":
        from calve.clickhouse.embedded.source import EmbeddedSource

        config, limits = self.config.source(name), self.config.limits
        if not config.embedded:
            return self._open_server(config, disks=config.disks if config.disks_at == "executors" else {})
        return EmbeddedSource(
            name,
            config.folder,
            configured_id=config.id or None,
            engine_config=config.engine_config,
            busy_seconds=limits.source_busy_seconds,
            query_seconds=limits.query_seconds,
        )

    def _open_server(self, config: SourceConfig, *, disks: Mapping[str, str]) -> "LiveSource":
        from calve.clickhouse.server.source import ServerOptions, ServerSource

        limits = self.config.limits
        options = ServerOptions(
            url=config.url,
            user=config.user,
            password=config.password,
            database=config.database,
            ca_file=config.ca_file,
            id=config.id,
            disks=disks,
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            query_seconds=limits.query_seconds,
            stall_seconds=limits.stall_seconds,
        )
        return ServerSource(config.name, options)

    def catalog(self, name: str) -> "Catalog":
        """The catalog of that name. Opened again when a profile's keys were changed: a worker lives longer
        than some keys."""
        from calve.iceberg.catalogs.catalog import open_catalog

        properties = self.catalog_properties(name)
        with self.lock(f"catalog:{name}"):
            opened = self._catalogs.get(name)
            if opened is None or opened[0] != properties:
                opened = self._catalogs[name] = (properties, open_catalog(name, properties, self.limits))
            return opened[1]

    def destination(self, address: DestinationAddress) -> "Destination":
        """Opened again when its keys were changed, as catalogs are."""
        from calve.destination.names import configuration, open_destination

        properties = configuration(address, self)
        with self.lock(f"destination:{address}"):
            opened = self._destinations.get(address)
            if opened is None or opened[0] != properties:
                opened = self._destinations[address] = (properties, open_destination(address, self))
            return opened[1]

    def catalog_properties(self, name: str) -> dict[str, Any]:
        """Its entry, completed by the environment. Never stored."""
        return catalog_properties(self.config, name)

    def location_properties(self, uri: str) -> dict[str, str]:
        """Its section, completed by the environment. Never stored."""
        return properties_of(self.config, uri)

    @property
    def limits(self) -> Limits:
        return self.config.limits

    @property
    def choices(self) -> Choices:
        return self.config.choices

    def storage(self, place: str) -> "Storage":
        """The object storage of a catalog's tables, or of a folder."""
        return self.destination(DestinationAddress(catalog=place, identifier=())).storage()

    def backups(self) -> "Location":
        """Where backups are kept."""
        from calve.app.backups.requests import BackupReach

        return BackupReach(self).location()

    def backup(self, name: str, source: str, *, unsigned: bool = False) -> "Source":
        """A backup as a source of an export."""
        from calve.app.backups.requests import BackupReach
        from calve.archive.source import BackupSource

        reach = BackupReach(self)
        return BackupSource(reach.location(), name, source, reach.location_properties(), unsigned=unsigned)

    # -- what moves the work ------------------------------------------------------------------------

    @built
    def runner(self) -> WarmRunner:
        from calve.spark.runner import SparkRunner

        section = self.config.spark
        made = SparkRunner(
            master=section.master,
            conf=section.conf,
            slots=self.known_slots(),
            connect_seconds=self.config.limits.connect_seconds,
            silent_seconds=self.config.limits.driver_seconds,
            brief=self.brief,
            prepare="calve.export.task:prepare",
        )
        self.closing.callback(made.close)
        return made

    def known_slots(self) -> int:
        """Known without starting Spark where the master says it: two tasks for each core."""
        if self.config.limits.slots:
            return self.config.limits.slots
        return 2 * local_cores(self.config.spark.master)

    def cores(self, more: int = 0) -> int:
        """See `export.ports`. Spark is never started for it: of a cluster that no session of this program
        runs on, one core is certain."""
        slots = self.config.limits.slots or (self.runner.slots if "runner" in self.__dict__ else 0)
        known = [count for count in (local_cores(self.config.spark.master), slots) if count]
        cores = min(known, default=1)
        live = len(self.store.live(limit=cores))
        return max(1, cores // max(1, live + more))

    @built
    def kinds(self) -> Mapping[str, Kind]:
        def export() -> Kind:
            from calve.export.kind import ExportKind

            return ExportKind(self)

        def optimize() -> Kind:
            from calve.app.optimizer import optimize_kind

            return optimize_kind(self)

        def backup() -> Kind:
            from calve.app.backups.requests import backup_kind

            return backup_kind(self)

        def restore() -> Kind:
            from calve.app.backups.requests import restore_kind

            return restore_kind(self)

        def proof() -> Kind:
            from calve.app.policies.proofs import proof_kind

            return proof_kind(self)

        def release() -> Kind:
            from calve.app.policies.releases import release_kind

            return release_kind(self)

        def back() -> Kind:
            from calve.app.policies.releases import return_kind

            return return_kind(self)

        def drop() -> Kind:
            from calve.app.policies.releases import drop_kind

            return drop_kind(self)

        def drill() -> Kind:
            from calve.app.backups.drills import drill_kind

            return drill_kind(self)

        def untier() -> Kind:
            from calve.app.policies.untier import untier_kind

            return untier_kind(self)

        made = {"export": export, "optimize": optimize, "backup": backup, "restore": restore, "proof": proof}
        return Kinds(
            made | {"drill": drill, "release": release, "return": back, "drop": drop, "untier": untier}
        )

    def worker(
        self,
        store: Store | None = None,
        also: frozenset[str] = frozenset(),
        *,
        runner: Runner | None = None,
        around: Callable[[Ports], Ports] = lambda ports: ports,
    ) -> "WorkerLoop":
        """A loop over everything this configuration reaches, and `also`. Starts nothing by itself. `around`
        puts decorators around its ports."""
        from calve.control.worker import WorkerLoop

        used, kinds, runs = around((store or self.store, self.kinds, runner or self.runner))
        return WorkerLoop(
            store=used,
            kinds=kinds,
            runner=runs,
            limits=replace(self.config.limits, slots=0 if runner else self.known_slots()),
            reach=self.config.reach | also,
            probes=self._probes(),
            granted=self.granted,
        )

    def granted(self) -> Granted | None:
        """What a cluster gives to our Spark, if there is one and it runs. Starts nothing."""
        ask = getattr(self.__dict__.get("runner"), "granted", None)  # a runner that is lent need not know
        made: Granted | None = ask() if ask else None
        return made

    def _probes(self) -> dict[str, Callable[[], None]]:
        """What no task runs without: the master of a standalone Spark cluster, where there is one."""
        master = self.config.spark.master
        if not master.startswith("spark://"):
            return {}
        from calve.spark.master import probe

        return {spark(master): partial(probe, master, self.config.limits.connect_seconds)}


def local_cores(master: str) -> int:
    """The cores of a local master; 0 where only Spark knows."""
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[(\*|\d+)(?:,\s*\d+)?\]", master)
    if not found:
        return 0
    if found.group(1) != "*":
        return int(found.group(1))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
