"""From what a person or a worker asked for to a queued process."""

from collections.abc import Sequence

from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.iceberg import tables
from calve.model.errors import UsageError
from calve.model.process import Lock, NewProcess, Process, new_process_id
from calve.model.reach import catalog
from calve.optimize.ports import OptimizePorts
from calve.optimize.request import NAME, OptimizeRequest

_SHOWN_NAMES = 20  # of a table's columns, in a hint
BY_WORKER_PRIORITY = -10  # what people and schedules ask for goes first


def check(ports: OptimizePorts, request: OptimizeRequest) -> None:
    """Refuse what cannot work before anything is queued."""
    table = tables.load(ports.catalog(request.catalog), request.identifier)
    names = [column.name for column in request.sort.columns] + list(request.sort.zorder)
    known = table.schema().column_names
    for name in names:
        if name not in known:
            raise _no_column(request, name, known)
    if request.sort.table and table.sort_order().is_unsorted:
        raise UsageError(
            f"table {request.name} has no sort order of its own",
            code="no_sort_order",
            hint="name the columns: --sort 'day, id'",
        )


def _no_column(request: OptimizeRequest, name: str, known: Sequence[str]) -> UsageError:
    more = ", …" if len(known) > _SHOWN_NAMES else ""
    return UsageError(
        f"table {request.name} has no column {name!r} to sort by",
        code="no_such_column",
        hint=f"its columns are {', '.join(known[:_SHOWN_NAMES])}{more}",
    )


def submit(ports: OptimizePorts, store: Store, request: OptimizeRequest) -> Submitted:
    """Queue one process, or join the one that the same request has under way. LockedError while another
    request works on the table."""
    return submit_once(
        store,
        lambda process: _is_same(request, process),
        lambda joined: [] if joined else [_new_process(ports, request)],
    )


def _is_same(request: OptimizeRequest, process: Process) -> bool:
    return process.kind == NAME and OptimizeRequest.from_json(process.request).asked == request.asked


def _new_process(ports: OptimizePorts, request: OptimizeRequest) -> NewProcess:
    return NewProcess(
        id=new_process_id(),
        kind=NAME,
        source=request.name,
        destination=request.name,
        lane=catalog(request.catalog),
        needs=(catalog(request.catalog),),
        request=request.to_json(),
        locks=(Lock(name=lock_of(request)),),
        priority=BY_WORKER_PRIORITY if request.by_worker else 0,
        deadline_seconds=ports.limits.process_hours * 3600,
    )


def lock_of(request: OptimizeRequest) -> str:
    return f"{NAME}:{request.name}"
