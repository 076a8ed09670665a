"""What `calve health` and `calve optimize` ask for."""

from dataclasses import asdict, dataclass
from typing import Any

from calve.app.optimizing import OptimizeReach, optimize_kind
from calve.app.wiring import App
from calve.control.kind import NothingToDo
from calve.iceberg.health.report import Health, health
from calve.model import reach
from calve.model.ids import ProcessId
from calve.model.process import NewProcess, Process
from calve.optimize.ownership import owner_in
from calve.optimize.plan import OptimizePlan, TaskSpec
from calve.optimize.request import NAME, OptimizeRequest
from calve.optimize.submit import check, submit


def table_health(app: App, catalog: str, identifier: tuple[str, ...], *, orphans: bool = False) -> Health:
    """How a table is. The store is asked only where orphans are: to know whose files are whose."""
    if not orphans:
        return health(app.catalog(catalog), identifier, limits=app.limits)
    return health(
        app.catalog(catalog),
        identifier,
        now=app.store.now(),
        orphans=True,
        owner=owner_in(app.store, ".".join((catalog, *identifier))),
        limits=app.limits,
    )


def submit_optimize(app: App, request: OptimizeRequest) -> Process:
    reach = OptimizeReach(app)
    check(reach, request)
    return submit(reach, app.store, request)


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a process would do, planned by the very code that plans it."""

    tasks: tuple[TaskSpec, ...] = ()
    expire: bool = False
    orphans: bool = False
    nothing: str = ""  # why there is nothing to do

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview(app: App, request: OptimizeRequest) -> Preview:
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
        return Preview(nothing=planned.message)
    plan = OptimizePlan.from_json(planned.plan)
    return Preview(
        tasks=tuple(TaskSpec.from_json(task.spec) for task in planned.tasks),
        expire=plan.expire,
        orphans=plan.orphans,
    )
