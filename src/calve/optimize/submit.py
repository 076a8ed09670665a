"""From what a person or a worker asked for to a queued process.

What was asked for, as the store keeps it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from calve.control.ports import StoreWriter
from calve.iceberg import tables
from calve.model.errors import UsageError
from calve.model.process import Lock, NewProcess, Process, new_process_id
from calve.model.reach import catalog
from calve.model.record import Record
from calve.optimize.ports import OptimizePorts

NAME = "optimize"  # of the kind


@dataclass(frozen=True, kw_only=True)
class SortColumn:
    name: str
    direction: str = "asc"
    nulls: str = "NULLS_FIRST"


@dataclass(frozen=True, kw_only=True)
class SortBy:
    """How rewritten rows are ordered: by columns, by the table's own order, or along a Z-curve."""

    columns: tuple[SortColumn, ...] = ()
    zorder: tuple[str, ...] = ()
    table: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns or self.zorder or self.table)


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest(Record):
    catalog: str
    identifier: tuple[str, ...]
    full: bool = False
    sort: SortBy = field(default_factory=SortBy)
    expire: bool | None = None  # None: as the table says
    orphans: bool | None = None
    most_tasks: int = 0  # 0: as many as there are; the rest waits for the next process
    by_worker: bool = False

    @property
    def name(self) -> str:
        return ".".join((self.catalog, *self.identifier))


_ZORDER = re.compile(r"^zorder\s*\((.*)\)$", re.IGNORECASE)
_COLUMN = re.compile(
    r"^(?P<name>`[^`]+`|[^\s`]+)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?$",
    re.IGNORECASE,
)


def parse_sort(text: str) -> SortBy:
    """`table`, `zorder(a, b)`, or `a, b desc nulls last`."""
    text = text.strip()
    if text.lower() == "table":
        return SortBy(table=True)
    if zorder := _ZORDER.match(text):
        names = tuple(name.strip().strip("`") for name in zorder.group(1).split(","))
        if all(names):
            return SortBy(zorder=names)
        raise _unreadable(text)
    return SortBy(columns=tuple(_column(part, text) for part in text.split(",")))


def _column(part: str, text: str) -> SortColumn:
    found = _COLUMN.match(part.strip())
    if found is None:
        raise _unreadable(text)
    direction = (found["direction"] or "asc").lower()
    nulls = found["nulls"] or ("first" if direction == "asc" else "last")
    return SortColumn(name=found["name"].strip("`"), direction=direction, nulls=f"NULLS_{nulls.upper()}")


def _unreadable(text: str) -> UsageError:
    return UsageError(
        f"invalid sort order {text!r}",
        code="sort_unreadable",
        hint="--sort 'day, id desc nulls last', --sort 'zorder(x, y)', or --sort table",
    )


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


def submit(ports: OptimizePorts, store: StoreWriter, request: OptimizeRequest) -> Process:
    """Queue one process. RefusedError (`locked`) while another one works on the same table."""
    new = NewProcess(
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
    # If we die here, the process is queued or not; the lock answers a second request.
    [process] = store.submit([new])
    return process


def lock_of(request: OptimizeRequest) -> str:
    return f"{NAME}:{request.name}"
