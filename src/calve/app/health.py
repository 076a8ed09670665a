"""The health of an Iceberg table, and optimizes as a front asks for them.

What optimizes did to tables, and what they gained: read from the processes in the store.
"""

import json
from dataclasses import dataclass
from typing import Any

from calve.app.destination import parse_table
from calve.app.exports import request_of
from calve.app.optimizer import OptimizeReach, optimize_kind
from calve.app.wiring import App
from calve.control.kind import NothingToDo
from calve.control.ports import StoreReader
from calve.iceberg.health.report import Health, health
from calve.model import reach
from calve.model.process import NewProcess, Process, ProcessId, ProcessQuery
from calve.optimize.cleanup import owner_in
from calve.optimize.plan import OptimizePlan, TaskSpec
from calve.optimize.submit import NAME, OptimizeRequest, SortBy, check, parse_sort, submit


def table_health(app: App, table: str, *, orphans: bool = False) -> Health:
    """How a table is. The store is asked only where orphans are: to know whose files are whose."""
    named = parse_table(table, app.config)
    catalog = app.catalog(named.catalog)
    if not orphans:
        return health(catalog, named.identifier, limits=app.limits)
    return health(
        catalog,
        named.identifier,
        now=app.store.now(),
        orphans=True,
        owner=owner_in(app.store, str(named)),
        limits=app.limits,
    )


def optimize_request(app: App, table: str, *, sort: str = "", **options: Any) -> OptimizeRequest:
    """`options` are fields of the request; `sort` is as a person types it: 'day, id desc'."""
    named = parse_table(table, app.config)
    order = parse_sort(sort) if sort else SortBy()
    return request_of(
        OptimizeRequest, options, catalog=named.catalog, identifier=named.identifier, sort=order
    )


def submit_optimize(app: App, request: OptimizeRequest) -> Process:
    reach = OptimizeReach(app)
    check(reach, request)
    return submit(reach, app.store, request)


@dataclass(frozen=True, kw_only=True)
class OptimizePreview:
    """What an optimize would do, planned by the code that plans it."""

    tasks: tuple[TaskSpec, ...] = ()
    expire: bool = False
    orphans: bool = False
    nothing: str = ""  # why there is nothing to do


def preview(app: App, request: OptimizeRequest) -> OptimizePreview:
    """Plan, and change nothing."""
    check(OptimizeReach(app), request)
    new = NewProcess(
        id=ProcessId("dry-run"),
        kind=NAME,
        source=request.name,
        destination=request.name,
        lane=reach.catalog(request.catalog),
        needs=(),
        request=request.to_json(),
    )
    process = new.accepted(adopted=False, now=app.store.now())
    planned = optimize_kind(app).plan(process, (), None)
    if isinstance(planned, NothingToDo):
        return OptimizePreview(nothing=planned.message)
    plan = OptimizePlan.from_json(planned.plan)
    return OptimizePreview(
        tasks=tuple(TaskSpec.from_json(task.spec) for task in planned.tasks),
        expire=plan.expire,
        orphans=plan.orphans,
    )


@dataclass(frozen=True, kw_only=True)
class Gain:
    """One number before and after; None where the process did not come to its end."""

    before: int | None
    after: int | None

    def __str__(self) -> str:
        if self.before is None:
            return "-"
        return (
            f"{self.before:,}" if self.after in (None, self.before) else f"{self.before:,} -> {self.after:,}"
        )


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """One process."""

    process: Process
    by_worker: bool  # a worker's own idea, not a person's
    score: Gain
    files: Gain
    delete_files: Gain
    snapshots: Gain
    rewritten_files: int
    removed_files: int  # of expired snapshots, and orphans


def optimize_history(app: App, table: str = "", *, limit: int = 50) -> list[Optimized]:
    """Newest first; of one table, or of all."""
    name = str(parse_table(table, app.config)) if table else ""
    return history_in(app.store, name, limit=limit)


def history_in(store: StoreReader, table: str = "", *, limit: int = 50) -> list[Optimized]:
    found = store.processes(ProcessQuery(kind=NAME, destination=table, limit=limit))
    return [optimized(process, store.plan(process.id)) for process in found]


def optimized(process: Process, plan: str | None) -> Optimized:
    """A process without a result still has what was before in its plan."""
    result: dict[str, Any] = json.loads(process.result) if process.result else {}
    before: dict[str, int] = result.get("before") or (json.loads(plan).get("before", {}) if plan else {})
    after: dict[str, int] = result.get("after", {})

    def gain(name: str) -> Gain:
        return Gain(before=before.get(name), after=after.get(name))

    removed = result.get("expired", {}).get("files", 0) + result.get("cleaned", {}).get("orphans", 0)
    return Optimized(
        process=process,
        by_worker=OptimizeRequest.from_json(process.request).by_worker,
        score=gain("score"),
        files=gain("files"),
        delete_files=gain("delete_files"),
        snapshots=gain("snapshots"),
        rewritten_files=result.get("rewritten_files", 0),
        removed_files=removed,
    )


def gained(process: Process) -> str:
    """What an optimize gained, in a line; nothing where it did not come to its end."""
    if process.kind != NAME or not process.result:
        return ""
    found = optimized(process, None)
    parts = [f"score {found.score}", f"files {found.files}"]
    if found.delete_files.before:
        parts.append(f"delete files {found.delete_files}")
    parts.append(f"snapshots {found.snapshots}")
    if found.removed_files:
        parts.append(f"{found.removed_files:,} files removed")
    return ", ".join(parts)
