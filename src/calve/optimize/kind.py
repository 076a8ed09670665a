"""The optimize kind: what the control plane calls, step by step. Keeps no state between calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyiceberg.table import Table

from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.due import evaluate
from calve.iceberg.health.entries import collect
from calve.iceberg.health.report import full_at_ms
from calve.iceberg.health.settings import Settings, settings_of
from calve.iceberg.health.stats import TableStats
from calve.model.change import Result
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service
from calve.optimize import finish
from calve.optimize.cleanup import look_for_orphans, old_receipts
from calve.optimize.driver_work import REWRITE, rewrite_payload
from calve.optimize.expiry import what_expires
from calve.optimize.plan import OptimizePlan, TaskSpec, tasks_of
from calve.optimize.ports import OptimizePorts
from calve.optimize.request import NAME, OptimizeRequest
from calve.spark.actions import PROCESS_ID, TASK, answer_of


class OptimizeKind(Kind):
    """See `control.kind.Kind` for what each call promises. It has no pins: a snapshot of an Iceberg table
    does not change."""

    name = NAME

    def __init__(self, ports: OptimizePorts) -> None:
        self._ports = ports

    # -- planning -----------------------------------------------------------------------------------

    def plan(
        self,
        process: Process,
        pins: Sequence[Pin],
        adopted: AdoptedWork | None,
    ) -> Planned | NothingToDo:
        request = OptimizeRequest.from_json(process.request)
        catalog = self._ports.catalog(request.catalog)
        table = tables.load(catalog, request.identifier)
        with catalog_call(catalog.name, f"making the ids in table {request.name} unique"):
            table = tables.make_unique(catalog, table)
        if table.metadata.current_snapshot() is None:
            return NothingToDo(
                result=Result(rows=0, files=0, bytes=0, snapshot_id=None),
                message=f"nothing to do: table {request.name} has no snapshot yet",
            )
        if request.sort:
            table = tables.with_unsorted(catalog, table)
        settings = finish.with_wishes(
            settings_of(table.metadata.properties), expire=request.expire, orphans=request.orphans
        )
        with catalog_call(catalog.name, f"reading metadata of table {'.'.join(request.identifier)}"):
            stats = collect(table, settings)
        plan = self._draft(process, request, table, stats, settings)
        tasks = self._tasks(request, table, stats, settings)
        if not tasks and not self._chores(table, stats, settings):
            detail = json.dumps({"before": dict(plan.before), "after": dict(plan.before)}, sort_keys=True)
            return NothingToDo(
                result=Result(rows=0, files=0, bytes=0, snapshot_id=plan.base_snapshot_id, detail=detail),
                message=f"nothing to do: score {plan.before['score']}, no partition is due",
            )
        return Planned(
            plan=plan.to_json(),
            tasks=tuple(NewTask(number=number, spec=spec.to_json()) for number, spec in enumerate(tasks)),
        )

    def _draft(
        self,
        process: Process,
        request: OptimizeRequest,
        table: Table,
        stats: TableStats,
        settings: Settings,
    ) -> OptimizePlan:
        metadata = table.metadata
        head = metadata.current_snapshot()
        bare = OptimizePlan(
            process_id=process.id,
            catalog=request.catalog,
            identifier=request.identifier,
            uuid=str(metadata.table_uuid),
            location=metadata.location.rstrip("/"),
            base_snapshot_id=None if head is None else str(head.snapshot_id),
            full=request.full or bool(request.sort),
            expire=settings.expire,
            orphans=settings.clean_orphans,
            sort=asdict(request.sort) if request.sort else {},
        )
        before = finish.summary_of(bare, table, stats, settings, process)
        return OptimizePlan(**{**bare.__dict__, "before": before})

    def _tasks(
        self, request: OptimizeRequest, table: Table, stats: TableStats, settings: Settings
    ) -> tuple[TaskSpec, ...]:
        due = evaluate(
            stats,
            settings,
            now_ms=int(self._ports.store.now().timestamp() * 1000),
            full_at_ms=full_at_ms(table),
            full=request.full or bool(request.sort),
        )
        return tasks_of(table.metadata, stats, settings, due, most=request.most_tasks)

    def _chores(self, table: Table, stats: TableStats, settings: Settings) -> bool:
        """Whether there is anything to do beside rewriting; the cheap questions first."""
        store, limits = self._ports.store, self._ports.limits
        now = store.now()
        if finish.drops_dangling(table, stats) or finish.manifest_specs(table, stats, settings):
            return True
        if settings.expire and what_expires(table, settings, store, now):
            return True
        if not settings.clean_orphans:
            return False
        return bool(
            look_for_orphans(table, settings, store, limits, now).removable
            or old_receipts(table, store, limits, now)
        )

    # -- tasks --------------------------------------------------------------------------------------

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        read = OptimizePlan.from_json(plan)
        properties: Mapping[str, Any] = self._ports.catalog_properties(read.catalog)
        return TaskOrder(
            process_id=process.id,
            number=task.number,
            attempt=attempt,
            function=REWRITE,
            payload=rewrite_payload(read, TaskSpec.from_json(task.spec), task.number, properties),
            on_driver=True,
        )

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        """By the marks in the table. A task whose data landed and whose deletes did not runs again:
        the data is found there, and only the rest is done."""
        read = OptimizePlan.from_json(plan)
        table = tables.load(self._ports.catalog(read.catalog), read.identifier)
        steps = [str(task.number)]
        if TaskSpec.from_json(task.spec).position_deletes:
            steps.append(f"{task.number}/deletes")
        summaries = [_marked(table, process.id, step) for step in steps]
        if any(summary is None for summary in summaries):
            return None
        answer = answer_of(steps[0], [summary for summary in summaries if summary is not None])
        return TaskResult(number=task.number, attempt=task.attempt, **answer)

    # -- the end ------------------------------------------------------------------------------------

    def publish(
        self,
        process: Process,
        plan: str,
        receipts: Sequence[str],
        note: Callable[[str], None],
    ) -> Published:
        return finish.finish(self._ports, process, OptimizePlan.from_json(plan), receipts)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        """A late rewrite changes no row, and Iceberg refuses it once its input is gone."""
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        """What was committed stays: it is the same rows in better files. What was not is deleted by
        Iceberg's action itself, or, after a crash, goes with the orphans once it is old enough."""
        return ""

    def probe(self, service: Service, process: Process) -> None:
        catalog = self._ports.catalog(service.name)
        with catalog_call(catalog.name, "probing"):
            catalog.list_namespaces()


def _marked(table: Table, process_id: str, step: str) -> dict[str, str] | None:
    for snapshot in table.metadata.snapshots:
        if snapshot.summary is None:
            continue
        found = snapshot.summary.additional_properties
        if found.get(PROCESS_ID) == process_id and found.get(TASK) == step:
            return dict(found) | {"snapshot-id": str(snapshot.snapshot_id)}
    return None
