"""From what a person asked for to queued processes. Everything that can be refused is refused here,
before anything is queued, pinned or written. The same request again joins what is under way (T16)."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from calve.clickhouse.embedded.parser import parser
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.partitions import PartitionInfo, Selection, select
from calve.clickhouse.pins.pin import refuse_row_policies
from calve.clickhouse.source import View
from calve.clickhouse.sql import filters
from calve.clickhouse.sql.tokens import name
from calve.clickhouse.tables import Column, TableInfo
from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.destination.content import parts_gone, unchanged
from calve.destination.plan import ExportPlan, PartPlan
from calve.export.kind import NAME, ExportPorts, source_of
from calve.export.request import ExportRequest, key_plans, lock_names
from calve.export.survey import Refusals, SourceView, Survey, check_agreed, merges_rows, plan_hash, survey
from calve.model.errors import DamagedError, RefusedError, UsageError
from calve.model.process import Lock, NewProcess, Process, ProcessId, new_batch_id, new_process_id
from calve.model.states import PinState, ProcessState

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Submission(Submitted):
    survey: Survey[PartitionInfo]
    outdated: tuple[RefusedError, ...] = ()  # of what was joined: it pinned other rows than there are now


def survey_export(ports: ExportPorts, request: ExportRequest, selection: Selection) -> Survey[PartitionInfo]:
    """Look at source and destination; change nothing. `request.partitions` is filled in here."""
    refusals = Refusals(request.source_table)
    table, found, parts, notes, where = _look_at_source(ports, request, selection, refusals)
    ids = tuple(one.id for one in found)
    request = replace(
        request, where=where, parts=selection.parts, partitions=ids, chosen=_chosen(selection, ids)
    )
    seen = SourceView(
        identity=table.identity,
        engine=table.engine,
        columns=table.columns,
        partition_key=table.partition_key,
        sorting_key=table.sorting_key,
        partitions=tuple(found),
        parts=parts,
        splits_parts=table.splits_parts,
        notes=notes,
    )
    destination = ports.destination(request.address)
    cores = ports.cores(more=len(_groups(found, _most_commits(ports, request, len(found)))))
    return survey(destination, request, seen, ports.choices, ports.limits, cores=cores, refusals=refusals)


def _chosen(selection: Selection, ids: Sequence[str]) -> str:
    """A partition may be named by its id or by its value, and others may come and go between two runs of
    the same command."""
    if selection.all:
        return "all"
    if selection.older_than is not None:
        return f"older than {selection.older_than.total_seconds():.0f} s"
    named = {"parts": sorted(selection.parts)} if selection.parts else {"partitions": sorted(ids)}
    return json.dumps(named, ensure_ascii=False)


# With the remarks, and the row filter as the parser writes it.
_Seen = tuple[TableInfo, list[PartitionInfo], tuple[PartPlan, ...], tuple[str, ...], str]


def _look_at_source(
    ports: ExportPorts, request: ExportRequest, selection: Selection, refusals: Refusals
) -> _Seen:
    where = request.where
    with source_of(ports, request).visit() as view:
        table = view.describe(request.database, request.table)
        with refusals.among():
            refuse_row_policies(table, ignore=request.ignore_row_policies)
        with refusals.among():
            _refuse_final(table, request, embedded=view.embedded)
        with refusals.among():
            if where:
                where = _checked_where(table, where)
                view.check_where(table, where)
        for column in table.columns:
            if column.name in request.include and column.default_kind == "ALIAS":
                with refusals.among():
                    _check_alias(table, column)
        notes = view.remarks()
        found: list[PartitionInfo] = []
        with refusals.among():
            found = select(view, table, selection)
        with refusals.among():
            notes = _look_at_pending(view, table, found, request) + notes
        parts = view.parts(table, [one.id for one in found], selection.parts)
    return table, found, parts, notes, where


def _checked_where(table: TableInfo, where: str) -> str:
    with parser() as engine:
        return filters.checked(engine, table, where)


def _check_alias(table: TableInfo, column: Column) -> None:
    """An ALIAS is computed by executors, as a row filter is, and must be as safe (T3)."""
    try:
        _checked_where(table, f"isNull({name(column.name)})")
    except UsageError as error:
        why = error.message.partition(": ")[2].partition(" (by way of")[0]
        raise UsageError(
            f"column {column.name} is ALIAS {column.default_expression}, which cannot be exported: {why}",
            code="include",
            hint=f"omit --include {column.name}",
        ) from error


def _look_at_pending(
    view: View, table: TableInfo, found: Sequence[PartitionInfo], request: ExportRequest
) -> tuple[str, ...]:
    if request.mutations == "wait":
        return tuple(f"mutation {one} will be waited for" for one in table.mutations)
    ids = [one.id for one in found]
    return view.refuse_unfinished(table, ids, ignore=request.mutations == "ignore")


def _refuse_final(table: TableInfo, request: ExportRequest, *, embedded: bool) -> None:
    """`--final` where there is no merged view, or none that could be computed."""
    if request.final and not merges_rows(table.engine):
        raise UsageError(
            f"table {table} has the engine {table.engine}, which never merges rows",
            code="final",
            hint="omit --final: this engine never merges rows",
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
    ports: ExportPorts,
    store: Store,
    surveyed: Survey[PartitionInfo],
    *,
    priority: int = 0,
    sleep: Callable[[float], None] = time.sleep,
) -> Submission:
    """Queue one process for each partition, or, beyond `limits.commits_per_export`, for several. What the
    same request has under way is joined, and what its batch has done is not done again."""
    _refuse_other_plan(surveyed)
    left = surveyed

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        nonlocal left
        left = _without(surveyed, _siblings(store, joined))
        under_way = {partition for process in joined for partition in process.partitions}
        return _new_processes(
            ports, left, [one for one in left.chosen if one.id not in under_way], joined, priority
        )

    submitted = submit_once(store, lambda process: _is_same(surveyed.request, process), missing)
    return Submission(
        survey=left,
        processes=submitted.processes,
        joined=submitted.joined,
        outdated=tuple(
            error
            for process_id in submitted.joined
            if _pinned(store, process_id, 2 * ports.limits.lease_seconds, sleep)
            for error in _outdated(store, surveyed, process_id)
        ),
    )


def _refuse_other_plan(surveyed: Survey[PartitionInfo]) -> None:
    """Before anything is queued. Each process compares once more, with what it has pinned."""
    request = surveyed.request
    if not request.plan_hash:
        return
    if surveyed.unreachable:
        raise surveyed.unreachable
    if request.mutations == "wait":
        raise UsageError(
            "--mutations wait changes the rows after the plan was made, so --plan cannot hold them to it",
            code="plan_and_mutations",
            hint="omit --plan, or wait for the mutations first",
        )
    check_agreed(surveyed, request.plan_hash)


def pinned_before(store: Store, request: ExportRequest, selection: Selection) -> Submitted:
    """What the same request has pinned, though the source no longer has it; partitions that were named by a value
    are not found, since only the source could say their ids."""
    same = replace(request, parts=selection.parts, chosen=_chosen(selection, selection.partitions))
    return submit_once(store, lambda process: process.planned and _is_same(same, process), lambda _: [])


def _pinned(store: Store, process_id: ProcessId, seconds: float, sleep: Callable[[float], None]) -> bool:
    """Whether what is joined was pinned, perhaps before we looked at the source. A worker that pins it at this
    moment says so with its plan, which is awaited. One that died without a plan left nothing: the pin of the next
    is taken after our look, and holds all that we saw."""
    for _ in range(round(seconds / _LOOK_SECONDS)):
        process = store.process(process_id)
        if process.planned or process.state is not ProcessState.PENDING:
            break
        works = process.lease_until is not None and process.lease_until > store.now()
        if not works or not any(pin.state is PinState.JOURNALED for pin in store.pins(process_id)):
            return False
        sleep(_LOOK_SECONDS)
    return True


def _outdated(store: Store, surveyed: Survey[PartitionInfo], process_id: ProcessId) -> Iterator[RefusedError]:
    """What is joined exports the rows that it pinned. Rows that came since are not in it: this is said, as after
    an export that has ended, since a person who is answered "done" drops the partition."""
    request = surveyed.request
    text = store.plan(process_id)
    if text is None:
        yield RefusedError(
            f"{request.source_table}: process {process_id}, which was joined, is being pinned: rows that came in the"
            " last moments may not be in it",
            code="changed_since",
            hint="once it has ended, repeat this command: it says whether anything is missing",
        )
        return
    keys = key_plans(request, surveyed.source.identity, surveyed.source.partitions, uuid="")
    now = {key.partition: key for key in keys}
    try:
        plan = ExportPlan.from_json(text)
    except DamagedError:
        return  # the worker reports it (T10)
    for then in plan.keys:
        seen = now.get(then.partition, then)
        if unchanged(then.content, seen.content):
            continue
        if seen.rows < then.rows or parts_gone(then.content, seen.content):
            hint = "what was pinned is exported; rows that are gone at the source stay in the export"
        else:
            force = "" if request.force else " with --force"
            hint = f"once it has ended, repeat this command{force}: that replaces it with what is there now"
        yield RefusedError(
            f"{request.source_table}: partition {then.partition} has changed since process {process_id}, which was"
            f" joined, pinned it: {then.rows} rows then, {seen.rows} now",
            code="changed_since",
            hint=hint,
        )


def _is_same(request: ExportRequest, process: Process) -> bool:
    return (process.kind, process.source, process.destination) == (
        NAME,
        request.source_table,
        request.destination,
    ) and ExportRequest.from_json(process.request).asked == request.asked


def _siblings(store: Store, joined: Sequence[Process]) -> frozenset[str]:
    """All processes of the batches that are joined, also those that have ended."""
    batches = {process.batch for process in joined if process.batch}
    return frozenset(found for batch in batches for found in store.find(batch))


def _without(surveyed: Survey[PartitionInfo], siblings: frozenset[str]) -> Survey[PartitionInfo]:
    """What a forced export, joined, has replaced already is not replaced once more."""
    done = [one for one in surveyed.replaced if one.unchanged and one.export.process_id in siblings]
    partitions = {one.partition for one in done}
    return replace(
        surveyed,
        chosen=tuple(one for one in surveyed.chosen if one.id not in partitions),
        unchanged=(*surveyed.unchanged, *done),
    )


def _new_processes(
    ports: ExportPorts,
    surveyed: Survey[PartitionInfo],
    chosen: Sequence[PartitionInfo],
    joined: Sequence[Process],
    priority: int,
) -> list[NewProcess]:
    groups = _groups(chosen, _most_commits(ports, surveyed.request, len(chosen)))
    batch = next((one.batch for one in joined if one.batch), None)
    if batch is None and len(groups) > 1:
        batch = new_batch_id()
    return [
        replace(
            new_process(ports, _request_of(surveyed, group), surveyed.source.identity),
            batch=batch,
            priority=priority,
        )
        for group in groups
    ]


def _most_commits(ports: ExportPorts, request: ExportRequest, partitions: int) -> int:
    shares = ports.destination(request.address).shares_commits
    return ports.limits.commits_per_export if shares else partitions


def _groups(chosen: Sequence[PartitionInfo], most: int) -> list[Sequence[PartitionInfo]]:
    """At most `most` groups of neighbours, as even as can be."""
    size = -(-len(chosen) // max(most, 1)) or 1
    return [chosen[start : start + size] for start in range(0, len(chosen), size)]


def _request_of(surveyed: Survey[PartitionInfo], group: Sequence[PartitionInfo]) -> ExportRequest:
    ids = tuple(one.id for one in group)
    request = surveyed.request.within(ids)
    return replace(request, plan_hash=plan_hash(surveyed, ids)) if request.plan_hash else request


def of_partition(request: ExportRequest, id: str) -> ExportRequest:
    """A request that names one partition, as a person would by its id."""
    return replace(request, partitions=(id,), chosen=_chosen(Selection(partitions=(id,)), (id,)))


def new_process(ports: ExportPorts, request: ExportRequest, identity: str) -> NewProcess:
    """The process of a request. Asks nobody: what cannot be exported fails when it is planned."""
    return NewProcess(
        id=new_process_id(),
        kind=NAME,
        source=request.source_table,
        destination=request.destination,
        lane=request.address.lane,
        needs=(*request.address.needs, source_of(ports, request).need),
        request=request.to_json(),
        partitions=request.partitions,
        locks=tuple(
            Lock(name=name, partition=one)
            for one in request.partitions
            for name in lock_names(request, identity=identity, partition=one)
        ),
        deadline_seconds=ports.limits.process_hours * 3600,
    )
