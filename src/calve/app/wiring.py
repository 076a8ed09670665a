"""The one place that builds the others. Everything is built on first use.

A command that only reads the store never imports Spark, PyIceberg or Arrow: whatever is heavy
is imported inside the function that builds it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calve.app.config import Config, SourceConfig
from calve.app.storages import catalog_properties, properties_of
from calve.control.kind import Kind
from calve.control.ports import Store
from calve.destination.address import DestinationAddress
from calve.export.choices import Choices
from calve.model.ids import ProcessId
from calve.model.limits import Limits
from calve.model.process import Process, Worker
from calve.model.reach import reaches

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from calve.archive.location import Location
    from calve.clickhouse.source import LiveSource, Source
    from calve.control.worker import WorkerLoop
    from calve.destination.port import Destination
    from calve.objects.storage import Storage
    from calve.spark.runner import SparkRunner


class App:
    """What one command works with. Close it: the store's connections and Spark go with it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._closing = ExitStack()
        self._sources: dict[str, LiveSource] = {}
        self._catalogs: dict[str, tuple[dict[str, Any], Catalog]] = {}
        self._destinations: dict[DestinationAddress, tuple[dict[str, Any], Destination]] = {}

    def close(self) -> None:
        self._closing.close()

    # -- the store ----------------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        from calve.store import open_store

        limits = self.config.limits
        opened = open_store(
            self.config.store_url, connect_seconds=limits.connect_seconds, call_seconds=limits.call_seconds
        )
        self._closing.callback(opened.close)
        return opened

    def find(self, texts: Sequence[str]) -> list[ProcessId]:
        """The processes that a person means, each once, in the order given."""
        return list(dict.fromkeys(found for text in texts for found in self.store.find(text)))

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

    # -- what the kinds reach -----------------------------------------------------------------------

    def source(self, name: str) -> "LiveSource":
        if name not in self._sources:
            self._sources[name] = self._open_source(name)
        return self._sources[name]

    def _open_source(self, name: str) -> "LiveSource":
        from calve.clickhouse.embedded.source import EmbeddedSource

        config, limits = self.config.source(name), self.config.limits
        if not config.embedded:
            return self._open_server(config)
        return EmbeddedSource(
            name,
            config.folder,
            configured_id=config.id or None,
            engine_config=config.engine_config,
            busy_seconds=limits.source_busy_seconds,
            query_seconds=limits.query_seconds,
        )

    def _open_server(self, config: SourceConfig) -> "LiveSource":
        from calve.clickhouse.server.source import ServerOptions, ServerSource

        limits = self.config.limits
        options = ServerOptions(
            url=config.url,
            user=config.user,
            password=config.password,
            database=config.database,
            ca_file=config.ca_file,
            id=config.id,
            disks=config.disks,
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            query_seconds=limits.query_seconds,
        )
        return ServerSource(config.name, options)

    def catalog(self, name: str) -> "Catalog":
        """The catalog of that name. Opened again when a profile's keys were changed: a worker lives longer
        than some keys."""
        from calve.iceberg.catalogs.catalog import open_catalog

        properties = self.catalog_properties(name)
        opened = self._catalogs.get(name)
        if opened is None or opened[0] != properties:
            opened = self._catalogs[name] = (properties, open_catalog(name, properties, self.limits))
        return opened[1]

    def destination(self, address: DestinationAddress) -> "Destination":
        """Opened again when its keys were changed, as catalogs are."""
        from calve.tasks.destinations import configuration, open_destination

        properties = configuration(address, self)
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
        from calve.app.backups import BackupReach

        return BackupReach(self).location()

    def backup(self, name: str, source: str, *, unsigned: bool = False) -> "Source":
        """A backup as a source of an export."""
        from calve.app.backups import BackupReach
        from calve.archive.source import BackupSource

        reach = BackupReach(self)
        return BackupSource(reach.location(), name, source, reach.location_properties(), unsigned=unsigned)

    # -- what moves the work ------------------------------------------------------------------------

    @cached_property
    def runner(self) -> "SparkRunner":
        from calve.spark.runner import SparkRunner

        spark = self.config.spark
        made = SparkRunner(master=spark.master, conf=spark.conf, slots=self._slots())
        self._closing.callback(made.close)
        return made

    def _slots(self) -> int:
        """Known without starting Spark where the master says it: two tasks for each core."""
        if self.config.limits.slots:
            return self.config.limits.slots
        return 2 * local_cores(self.config.spark.master)

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        from calve.app.backups import backup_kind, restore_kind
        from calve.app.optimizing import optimize_kind
        from calve.export.kind import ExportKind

        return {
            "export": ExportKind(self),
            "optimize": optimize_kind(self),
            "backup": backup_kind(self),
            "restore": restore_kind(self),
        }

    def worker(self, store: Store | None = None, also: frozenset[str] = frozenset()) -> "WorkerLoop":
        """A loop over everything this configuration reaches, and `also`. Starts nothing by itself."""
        from calve.control.worker import WorkerLoop

        return WorkerLoop(
            store=store or self.store,
            kinds=self.kinds,
            runner=self.runner,
            limits=replace(self.config.limits, slots=self._slots()),
            reach=self.config.reach | also,
        )


def open_app(config: Config) -> App:
    return App(config)


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
