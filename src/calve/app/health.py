"""The health of an Iceberg table, and optimizes as a front asks for them."""

from dataclasses import dataclass

from calve.app.destination import parse_table
from calve.app.optimizer import OptimizeReach, optimize_kind
from calve.app.wiring import App
from calve.control.client import Submitted
from calve.control.kind import NothingToDo
from calve.control.ports import Store
from calve.iceberg.health.report import Health, health
from calve.model import reach
from calve.model.process import NewProcess, ProcessId
from calve.optimize.cleanup import owner_in
from calve.optimize.plan import OptimizePlan, TaskSpec
from calve.optimize.request import NAME, OptimizeOptions, OptimizeRequest
from calve.optimize.submit import check, submit


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


def optimize_request(app: App, table: str, options: OptimizeOptions | None = None) -> OptimizeRequest:
    named = parse_table(table, app.config)
    return OptimizeRequest(
        catalog=named.catalog, identifier=named.identifier, **vars(options or OptimizeOptions())
    )


def submit_optimize(app: App, store: Store, request: OptimizeRequest) -> Submitted:
    reach = OptimizeReach(app)
    check(reach, request)
    return submit(reach, store, request)


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
