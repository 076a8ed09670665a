"""Worker processes over one PostgreSQL store and one PostgreSQL catalog: started, stopped, killed."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate
from whole_life import LIMITS, Ports

from calve.clickhouse.parts.partitions import Selection
from calve.clickhouse.source import LiveSource
from calve.control.worker import WorkerLoop
from calve.export.kind import ExportKind
from calve.export.request import ExportRequest
from calve.export.submit import submit_export, survey_export
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.process import Process, ProcessId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL
from calve.store import open_store
from support.shared_service import RemoteRunner, RemoteSource

PRELOAD = [
    "calve.export.kind",
    "calve.store",
    "calve.control.worker",
    "calve.iceberg.catalogs.catalog",
    "psycopg",
]
# A worker that is killed while it releases a pin hides that pin for as long as a statement may take.
FLEET_LIMITS = replace(
    LIMITS, lease_seconds=4.0, query_seconds=10.0, tick_seconds=0.1, backoff_first_seconds=0.2
)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What the workers of one test share. It crosses into their processes."""

    folder: Path
    store_url: str
    catalog_uri: str
    service: str  # the address of the shared source and executors

    def ports(self, source: LiveSource | None = None) -> Ports:
        return Ports(
            source_=source or RemoteSource(self.service),
            folder=self.folder,
            limits=FLEET_LIMITS,
            catalog_uri=self.catalog_uri,
        )

    def submit(self, source: LiveSource, table: str, *partitions: str, **asked: Any) -> list[ProcessId]:
        """Queue exports of db.events into ns.<table>: one process for each partition."""
        request = ExportRequest(
            source="main",
            database="db",
            table="events",
            catalog="lake",
            identifier=("ns", table),
            partitions=(),
            **asked,
        )
        ports = self.ports(source)
        ports.limits = replace(FLEET_LIMITS, commits_per_export=50)
        with open_store(self.store_url) as store:
            checked = survey_export(ports, request, Selection(partitions=partitions))
            new = submit_export(ports, store, checked).processes
        ports.close()
        return [process.id for process in new]

    def table(self, name: str) -> Table:
        catalog = open_catalog("lake", self.ports().properties)
        try:
            return catalog.load_table(("ns", name))
        finally:
            catalog.close()

    def worker_loop(self, ports: Ports, store: Any) -> WorkerLoop:
        return WorkerLoop(
            store=store,
            kinds={"export": ExportKind(ports)},
            runner=RemoteRunner(self.service),
            limits=FLEET_LIMITS,
            reach=frozenset({"source:main", "catalog:lake"}),
        )


def work(fleet: Fleet, stop_before_send: str = "") -> None:
    """A worker process. With `stop_before_send` it stops itself, by SIGSTOP, right before its first
    snapshot is sent, and says so by making that file."""
    ports = fleet.ports()
    if stop_before_send:
        _stop_before_send(ports, Path(stop_before_send))
    with open_store(fleet.store_url) as store:
        loop = fleet.worker_loop(ports, store)
        signal.signal(signal.SIGTERM, lambda *_: loop.request_stop())
        loop.run()
    ports.close()


def _stop_before_send(ports: Ports, told: Path) -> None:
    catalog = ports.catalog("lake")
    really: Callable[..., Any] = catalog.commit_table

    def commit_table(table: Any, requirements: Any, updates: Any) -> Any:
        if any(isinstance(update, AddSnapshotUpdate) for update in updates) and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return really(table, requirements, updates)

    catalog.commit_table = commit_table  # type: ignore[method-assign]


def start(fleet: Fleet, stop_before_send: str = "") -> BaseProcess:
    """A worker in a process of its own. Forked from a server that has imported everything but the
    engine: a killed worker's successor is there in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=work, args=(fleet, stop_before_send), daemon=True)
    process.start()
    _started.append(process)
    return process


_started: list[BaseProcess] = []


def kill_all() -> None:
    """Whatever a test left running: none outlives it, however it ended."""
    while _started:
        process = _started.pop()
        process.kill()
        process.join()


def ended(process: BaseProcess, seconds: float = 30.0) -> bool:
    return bool(wait([process.sentinel], timeout=seconds))


def stop(*processes: BaseProcess) -> None:
    """Drain them; one that does not end is killed, and that is an error."""
    for process in processes:
        process.terminate()
    late = [process.pid for process in processes if not ended(process, 60.0)]
    for process in processes:
        process.kill()
        process.join()
    assert not late, f"workers {late} did not drain"


def settled(fleet: Fleet, ids: list[ProcessId]) -> list[Process] | None:
    """The rows, once all have ended and no pin is held; None before that."""
    with open_store(fleet.store_url) as store:
        rows = [store.process(one) for one in ids]
        if all(row.state in PROCESS_TERMINAL for row in rows) and not store.pins(states=PIN_HELD):
            return rows
    return None
