"""Optimizing by itself: a worker evaluates tables on an interval and queues processes as triggers fire.

Nothing here is remembered that matters: what is under way, what ended when and what was gained is
read from the store, so that any number of workers may do this at once; the table's lock makes sure
that one of them queues. The neediest table comes first, within a share of the slots.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.app.config.values import OptimizeConfig
from calve.app.threads import beside
from calve.app.wiring import App
from calve.control.ports import Store, TaskOrder, TaskResult
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.due import evaluate
from calve.iceberg.health.entries import collect
from calve.iceberg.health.report import full_at_ms
from calve.iceberg.health.settings import settings_of
from calve.model.errors import CalveError, LockedError, TemporaryError
from calve.model.limits import Limits
from calve.model.process import Process, ProcessQuery
from calve.model.record import fields_of
from calve.model.states import PROCESS_TERMINAL, ProcessState
from calve.optimize.expiry import what_expires
from calve.optimize.finish import drops_dangling, manifest_specs
from calve.optimize.kind import OptimizeKind
from calve.optimize.ports import OptimizePorts
from calve.optimize.request import NAME, OptimizeRequest
from calve.optimize.submit import lock_of, submit

_LOG = logging.getLogger(__name__)
SNAPSHOTS_WORTH_A_PROCESS = 10
ORPHANS_EVERY = timedelta(hours=24)
AFTER_FAILURE = timedelta(hours=1)
_LOOKED_BACK = 50  # processes of one table


class OptimizeReach:
    """The application as the optimize kind sees it."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def limits(self) -> Limits:
        return self._app.limits

    @property
    def store(self) -> Store:
        return self._app.store

    def catalog(self, name: str) -> Catalog:
        return self._app.catalog(name)

    def catalog_properties(self, name: str) -> Mapping[str, Any]:
        return self._app.catalog_properties(name)

    def run_on_driver(self, order: TaskOrder) -> TaskResult:
        found: list[TaskResult] = []
        group = f"calve-{order.process_id}-{order.number}-{order.attempt}"
        self._app.runner.run(group, [order], found.append)
        if not found:
            raise TemporaryError(
                f"an action of process {order.process_id} ended without an answer",
                code="attempt_lost",
                hint="it is retried automatically",
            )
        return found[0]


def optimize_kind(app: App) -> OptimizeKind:
    return OptimizeKind(OptimizeReach(app))


@dataclass(frozen=True, kw_only=True)
class Need:
    """A table that should be optimized, and how badly."""

    request: OptimizeRequest
    weight: float


@dataclass(kw_only=True)
class Optimizer:
    """Call `tick` on an interval."""

    ports: OptimizePorts
    store: Store
    config: OptimizeConfig
    catalogs: tuple[str, ...]
    slots: Callable[[], int]  # asked anew each time: executors come and go
    # Tables that needed nothing, by name: the metadata that was looked at, and when. A saving only.
    _quiet: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    def tick(self) -> list[Process]:
        """Evaluate and queue; what was queued."""
        room = self._room()
        if room <= 0:
            return []
        needs = [need for name in self.tables() if (need := self._need(name)) is not None]
        chosen = sorted(needs, key=lambda item: -item.weight)[:room]
        queued = []
        for need in chosen:
            request = replace(need.request, most_tasks=room // len(chosen))
            try:
                made = submit(self.ports, self.store, request)
            except LockedError:
                continue  # another worker was first
            if not made.joined:
                queued.append(made.process)
        return queued

    def _room(self) -> int:
        """Slots of the share that no process of ours may use already."""
        share = max(1, int(self.slots() * self.config.share))
        live = [process for process in self.store.live() if process.kind == NAME]
        requests = [OptimizeRequest.from_json(process.request) for process in live]
        used = sum(max(1, request.most_tasks) for request in requests if request.by_worker)
        return share - used

    def tables(self) -> Iterator[tuple[str, ...]]:
        """Every table that the patterns name: `lake.*`, `lake.ns.events`. One unreachable catalog does
        not keep the others from being looked at."""
        for catalog in self.catalogs:
            if not any(
                fnmatchcase(f"{catalog}.", pattern.split(".")[0] + ".") for pattern in self.config.tables
            ):
                continue
            try:
                for identifier in all_tables(self.ports.catalog(catalog)):
                    if self._wanted(catalog, identifier):
                        yield (catalog, *identifier)
            except CalveError as error:
                _LOG.warning("optimizing: %s", error.message)

    def _wanted(self, catalog: str, identifier: tuple[str, ...]) -> bool:
        name = ".".join((catalog, *identifier))
        return any(fnmatchcase(name, pattern) for pattern in self.config.tables)

    def _need(self, name: tuple[str, ...]) -> Need | None:
        request = OptimizeRequest(catalog=name[0], identifier=name[1:], by_worker=True)
        try:
            if self.store.holder(lock_of(request)) is not None:
                return None
            table = tables.load(self.ports.catalog(request.catalog), request.identifier)
            return self._evaluated(request, table)
        except CalveError as error:
            _LOG.warning("optimizing %s: %s", request.name, error.message)
            return None

    def _evaluated(self, request: OptimizeRequest, table: Table) -> Need | None:
        if table.metadata.current_snapshot() is None:
            return None  # nothing in it yet
        settings, now = settings_of(table.metadata.properties), self.store.now()
        history = self.store.processes(ProcessQuery(kind=NAME, destination=request.name, limit=_LOOKED_BACK))
        pause = timedelta(milliseconds=settings.plan_interval_ms)
        if not settings.enabled or _too_soon(history, now, pause):
            return None
        seen, at = self._quiet.get(request.name, ("", now))
        if seen == table.metadata_location and now - at < timedelta(milliseconds=settings.minor_interval_ms):
            return None
        with catalog_call(request.catalog, f"reading metadata of table {request.name}"):
            stats = collect(table, settings)
        now_ms = int(now.timestamp() * 1000)
        due = evaluate(stats, settings, now_ms=now_ms, full_at_ms=full_at_ms(table))
        weight = sum(item.weight for item in due)
        if drops_dangling(table, stats) or manifest_specs(table, stats, settings):
            weight += 1
        if settings.expire:
            past = what_expires(table, settings, self.store, now)
            weight += len(past.snapshot_ids) // SNAPSHOTS_WORTH_A_PROCESS
        orphans = settings.clean_orphans and _orphans_are_due(self.store.plan, history, now)
        if not weight and not orphans:
            self._quiet[request.name] = (table.metadata_location, now)
            return None
        return Need(request=replace(request, orphans=orphans), weight=weight)


def all_tables(catalog: Catalog) -> Iterator[tuple[str, ...]]:
    """Every table of a catalog, in every namespace."""
    waiting: list[tuple[str, ...]] = [()]
    with catalog_call(catalog.name, "listing tables"):
        while waiting:
            namespace = waiting.pop()
            below = [found for found in catalog.list_namespaces(namespace) if len(found) > len(namespace)]
            waiting.extend(below)
            if namespace:
                yield from (tuple(found) for found in catalog.list_tables(namespace))


def _too_soon(history: list[Process], now: datetime, pause: timedelta) -> bool:
    if not history:
        return False
    last = history[0]
    if last.state not in PROCESS_TERMINAL or last.finished_at is None:
        return True
    wait = pause if last.state is ProcessState.COMPLETED else max(pause, AFTER_FAILURE)
    return now - last.finished_at < wait


def _orphans_are_due(plan: Callable[[Any], str | None], history: list[Process], now: datetime) -> bool:
    """Looking for orphans lists the whole location: once a day is enough."""
    for process in history:
        if process.state is not ProcessState.COMPLETED or process.finished_at is None:
            continue
        if now - process.finished_at >= ORPHANS_EVERY:
            break
        if fields_of(process.request).get("orphans") is not False:
            text = plan(process.id)
            if text is None or fields_of(text).get("orphans"):
                return False
    return True


def optimizing(app: App) -> AbstractContextManager[None]:
    """Optimize what `[optimize] tables` names for as long as the block lasts; nothing where it names
    none. A tick that fails is tried again at the next."""
    config = app.config.optimize
    if not config.tables:
        return nullcontext()
    optimizer = Optimizer(
        ports=OptimizeReach(app),
        store=app.store,
        config=config,
        catalogs=tuple(app.config.catalogs),
        slots=lambda: app.runner.slots,
    )
    run = partial(_run, optimizer, config.interval_seconds)
    return beside("calve-optimizing", run, 2 * app.limits.call_seconds)


def _run(optimizer: Optimizer, interval_seconds: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            for process in optimizer.tick():
                _LOG.info("optimizing %s: process %s", process.destination, process.id)
        except Exception:  # noqa: BLE001 - the border of the thread: it must not end
            _LOG.warning("looking for tables to optimize failed; retrying", exc_info=True)
        stop.wait(interval_seconds)
