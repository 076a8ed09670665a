"""From what a person asked for to queued processes. Everything that can be refused is refused here,
before anything is queued, pinned or written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calve.archive import source
from calve.archive.ports import LANE
from calve.clickhouse.embedded.parser import parser
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.parts.selection import Selection, select
from calve.clickhouse.pins import freeze
from calve.clickhouse.pins.pin import refuse_row_policies
from calve.clickhouse.source import Session
from calve.clickhouse.sql import filters
from calve.clickhouse.tables import TableInfo
from calve.control.ports import StoreWriter
from calve.export import destination, keys
from calve.export.destination import Layout, Shape
from calve.export.earlier import Earlier, look_up, refuse_overlapping
from calve.export.kind import NAME, SOURCE
from calve.export.plan import merges_rows, merging_note, slices
from calve.export.ports import ExportPorts
from calve.export.refusals import Gathered
from calve.export.request import ExportRequest
from calve.export.target import Target, fitted, made
from calve.model.errors import UnavailableError, UsageError
from calve.model.ids import new_batch_id, new_process_id
from calve.model.plan import PartPlan, Slice
from calve.model.process import Lock, NewProcess, Process


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A request that would be accepted: what would be exported, and what would not."""

    request: ExportRequest
    table: TableInfo
    layout: Layout
    exists: bool  # the destination table
    target: Target
    parts: tuple[PartPlan, ...]  # of what is to be exported, as they are now: the pin decides
    tasks: tuple[tuple[Slice, ...], ...]  # over `parts`, sliced as planning slices
    notes: tuple[str, ...]
    chosen: tuple[PartitionInfo, ...]  # to be exported
    unchanged: tuple[Earlier, ...]  # exported before, and the same: skipped
    changed: tuple[Earlier, ...]  # exported before, and changed since: refused without --force
    unreachable: UnavailableError | None = None  # the destination could not be asked: planning will


@dataclass(frozen=True, kw_only=True)
class Submission:
    checked: Checked
    processes: tuple[Process, ...]


def check_export(ports: ExportPorts, request: ExportRequest, selection: Selection) -> Checked:
    """Look at source and destination; change nothing. `request.partitions` is filled in here."""
    to = ports.destination(request.address)
    refusals = Gathered(request.source_table)
    table, found, parts, ignored, where = (
        _look_into_backup(ports, request, selection, refusals)
        if request.from_backup
        else _look_at_source(ports, request, selection, refusals)
    )
    request = replace(request, where=where, parts=selection.parts, partitions=tuple(one.id for one in found))
    with refusals.among():
        layout = destination.lay_out(shape_of(table), request, ports.choices)
    refusals.raise_all()
    unreachable: UnavailableError | None = None
    try:
        existing = destination.find_table(to, request)
    except UnavailableError as error:
        # Accepted all the same: planning looks again, and an outage refuses nobody (L3).
        existing, unreachable = None, error
    earlier: list[Earlier] = []
    target = made(layout)
    if existing is not None:
        match = destination.check(existing, layout, request)
        destination.describe(to, existing, match, shape_of(table))  # refuses what cannot be written
        target = fitted(existing, match)
        wanted = keys.key_plans(request, table.identity, found, existing.uuid)
        earlier = look_up(existing, wanted)
        refuse_overlapping(existing, request, wanted)
    known = {one.partition: one for one in earlier}
    chosen = tuple(one for one in found if one.id not in known or request.force)
    mine = tuple(part for part in parts if part.partition_id in {one.id for one in chosen})
    return Checked(
        request=request,
        table=table,
        layout=layout,
        exists=existing is not None,
        target=target,
        parts=mine,
        tasks=slices(mine, ports.limits, whole=request.final, split=table.splits_parts),
        notes=layout.notes + ignored + merging_note(table.engine, request),
        chosen=chosen,
        unchanged=() if request.force else tuple(one for one in earlier if one.unchanged),
        changed=() if request.force else tuple(one for one in earlier if not one.unchanged),
        unreachable=unreachable,
    )


# With the remarks, and the row filter as the parser writes it.
_Seen = tuple[TableInfo, list[PartitionInfo], tuple[PartPlan, ...], tuple[str, ...], str]


def _look_at_source(
    ports: ExportPorts, request: ExportRequest, selection: Selection, refusals: Gathered
) -> _Seen:
    where = request.where
    with ports.source(request.source).visit() as session:
        table = session.describe(request.database, request.table)
        with refusals.among():
            refuse_row_policies(table, ignore=request.ignore_row_policies)
        with refusals.among():
            _refuse_final(table, request, embedded=session.embedded)
        with refusals.among():
            if where:
                where = _checked_where(table, where)
                filters.check_at_source(session, table, where)
        notes = session.remarks()
        with refusals.among():
            notes = _look_at_pending(session, table, request) + notes
        found: list[PartitionInfo] = []
        with refusals.among():
            found = select(session, table, selection)
        parts = session.parts(table, [one.id for one in found], selection.parts)
    return table, found, parts, notes, where


def _look_into_backup(
    ports: ExportPorts, request: ExportRequest, selection: Selection, refusals: Gathered
) -> _Seen:
    """The source is not asked: it may be gone."""
    manifest, entry = source.table_in(ports.backups(), request.from_backup, request.database, request.table)
    table = entry.info(request.source)
    where = request.where
    with refusals.among():
        _refuse_final(table, request, embedded=True)
    with refusals.among():
        where = _checked_where(table, where) if where else ""
    found: list[PartitionInfo] = []
    with refusals.among():
        found = source.select(manifest, entry, selection)
    parts = source.part_plans(entry, [one.id for one in found], selection.parts)
    note = f"read from backup {manifest.name}, made at {manifest.created_at}"
    return table, found, parts, (note,), where


def _checked_where(table: TableInfo, where: str) -> str:
    with parser() as engine:
        return filters.checked(engine, table, where)


def _look_at_pending(session: Session, table: TableInfo, request: ExportRequest) -> tuple[str, ...]:
    if request.mutations == "wait":
        return tuple(f"mutation {one} will be waited for" for one in table.mutations)
    return freeze.refuse_unfinished(session, table, ignore=request.mutations == "ignore")


def _refuse_final(table: TableInfo, request: ExportRequest, *, embedded: bool) -> None:
    """`--final` where there is no merged view, or none that could be computed."""
    if request.final and not merges_rows(table.engine):
        raise UsageError(
            f"table {table} has the engine {table.engine}, whose merges combine no rows",
            code="final",
            hint="leave --final away: its parts are its rows",
        )
    if request.final and request.parts:
        raise UsageError(
            "--final is the merged view of a whole partition, and --part names only some of its parts",
            code="final",
            hint="name the partition with --partition",
        )
    if embedded:
        scratch_table(table, final=request.final)  # refuses what only a server could compute


def submit_export(
    ports: ExportPorts, store: StoreWriter, checked: Checked, *, priority: int = 0
) -> Submission:
    """Queue one process for each partition, or, beyond `limits.commits_per_export`, for several."""
    shares = ports.destination(checked.request.address).shares_commits
    most = ports.limits.commits_per_export if shares else len(checked.chosen)
    groups = _groups(checked.chosen, most)
    batch = new_batch_id() if len(groups) > 1 else None
    new = [
        replace(
            _new_process(ports, checked, group, deadline_hours=ports.limits.process_hours),
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


def _read_from(ports: ExportPorts, request: ExportRequest) -> str:
    return f"{LANE}{ports.backups().url}" if request.from_backup else f"{SOURCE}{request.source}"


def _new_process(
    ports: ExportPorts, checked: Checked, group: Sequence[PartitionInfo], *, deadline_hours: float
) -> NewProcess:
    ids = tuple(one.id for one in group)
    request = checked.request.within(ids)
    return NewProcess(
        id=new_process_id(),
        kind=NAME,
        source=request.source_table,
        destination=request.destination,
        lane=request.address.lane,
        needs=(*request.address.needs, _read_from(ports, request)),
        request=request.to_json(),
        partitions=ids,
        locks=tuple(
            Lock(name=name, partition=one)
            for one in ids
            for name in keys.lock_names(request, identity=checked.table.identity, partition=one)
        ),
        deadline_seconds=deadline_hours * 3600,
    )
