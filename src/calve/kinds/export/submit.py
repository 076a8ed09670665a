"""From what a person asked for to queued processes. Everything that can be refused is refused here,
before anything is queued, pinned or written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calve.control.ports import StoreWriter
from calve.kinds.export import destination, keys
from calve.kinds.export.destination import Layout, Shape
from calve.kinds.export.earlier import Earlier, look_up, refuse_overlap
from calve.kinds.export.kind import CATALOG, NAME
from calve.kinds.export.ports import ExportPorts
from calve.kinds.export.request import ExportRequest
from calve.model.ids import new_batch_id, new_process_id
from calve.model.process import Lock, NewProcess, Process
from calve.source import pins
from calve.source.held import refuse_row_policies
from calve.source.partitions import PartitionInfo
from calve.source.selection import Selection, select
from calve.source.tables import TableInfo, describe


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A request that would be accepted: what would be exported, and what would not."""

    request: ExportRequest
    table: TableInfo
    layout: Layout
    exists: bool  # the destination table
    chosen: tuple[PartitionInfo, ...]  # to be exported
    unchanged: tuple[Earlier, ...]  # exported before, and the same: skipped
    changed: tuple[Earlier, ...]  # exported before, and changed since: refused without --force


@dataclass(frozen=True, kw_only=True)
class Submission:
    checked: Checked
    processes: tuple[Process, ...]


def check_export(ports: ExportPorts, request: ExportRequest, selection: Selection) -> Checked:
    """Look at source and destination; change nothing. `request.partitions` is filled in here."""
    catalog = ports.catalog(request.catalog)
    with ports.source(request.source).visit() as session:
        table = describe(session, request.database, request.table)
        refuse_row_policies(table, ignore=request.ignore_row_policies)
        if request.mutations == "refuse":
            pins.refuse_unfinished(session, table)
        found = select(session, table, selection)
    request = replace(request, parts=selection.parts, partitions=tuple(one.id for one in found))
    layout = destination.lay_out(shape_of(table), request, ports.choices)
    existing = destination.find_table(catalog, request)
    earlier: list[Earlier] = []
    if existing is not None:
        destination.check(existing, layout, request)
        wanted = keys.key_plans(request, table.identity, found, str(existing.metadata.table_uuid))
        earlier = look_up(existing, wanted)
        refuse_overlap(existing, request, wanted)
    known = {one.partition: one for one in earlier}
    return Checked(
        request=request,
        table=table,
        layout=layout,
        exists=existing is not None,
        chosen=tuple(one for one in found if one.id not in known or request.force),
        unchanged=() if request.force else tuple(one for one in earlier if one.unchanged),
        changed=() if request.force else tuple(one for one in earlier if not one.unchanged),
    )


def submit_export(
    ports: ExportPorts, store: StoreWriter, checked: Checked, *, priority: int = 0
) -> Submission:
    """Queue one process for each partition, or, beyond `limits.commits_per_export`, for several."""
    groups = _groups(checked.chosen, ports.limits.commits_per_export)
    batch = new_batch_id() if len(groups) > 1 else None
    new = [
        replace(
            _new_process(checked, group, deadline_hours=ports.limits.process_hours),
            batch=batch,
            priority=priority,
        )
        for group in groups
    ]
    # If we die here, the processes are queued or not; asked again, the locks tell.
    return Submission(checked=checked, processes=tuple(store.submit(new)) if new else ())


def shape_of(table: TableInfo) -> Shape:
    return Shape(columns=table.columns, partition_key=table.partition_key, sorting_key=table.sorting_key)


def _groups(chosen: Sequence[PartitionInfo], most: int) -> list[Sequence[PartitionInfo]]:
    """At most `most` groups of neighbours, as even as can be."""
    size = -(-len(chosen) // max(most, 1)) or 1
    return [chosen[start : start + size] for start in range(0, len(chosen), size)]


def _new_process(checked: Checked, group: Sequence[PartitionInfo], *, deadline_hours: float) -> NewProcess:
    ids = tuple(one.id for one in group)
    request = replace(checked.request, partitions=ids)
    return NewProcess(
        id=new_process_id(),
        kind=NAME,
        source=request.source_table,
        destination=request.destination,
        lane=f"{CATALOG}{request.catalog}",
        needs=(f"{CATALOG}{request.catalog}", f"source:{request.source}"),
        request=request.to_json(),
        partitions=ids,
        locks=tuple(
            Lock(name=keys.lock_name(request, identity=checked.table.identity, partition=one), partition=one)
            for one in ids
        ),
        deadline_seconds=deadline_hours * 3600,
    )
