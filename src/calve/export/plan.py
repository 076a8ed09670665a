"""The plan of what a pin holds, from one survey of it.

Receipts of a failed process that its retry may rely on: the same rows, read the same way, for
the same table. Whatever differs is exported again.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from calve.clickhouse.pins.pin import Pinned, PinnedPartition
from calve.control.kind import AdoptedWork
from calve.destination.plan import ExportPlan, Relation
from calve.destination.port import Destination
from calve.destination.receipt import Receipt, sound
from calve.export.choices import Choices
from calve.export.payload import CODEC, check_properties, file_mb
from calve.export.request import Earlier, ExportRequest
from calve.export.survey import SourceView, check_agreed, survey
from calve.model.errors import DamagedError, RefusedError
from calve.model.limits import Limits
from calve.model.process import ProcessId
from calve.model.record import Record


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A plan, or, without tasks, the finding that everything is exported already."""

    plan: ExportPlan
    unchanged: tuple[Earlier, ...]  # partitions left out because they are exported and the same


def draft(
    destination: Destination,
    process_id: ProcessId,
    request: ExportRequest,
    pinned: Pinned,
    choices: Choices,
    limits: Limits,
    *,
    cores: int,
) -> Drafted:
    """RefusedError for a partition that was exported and changed since, unless it is to be replaced, and for what
    is not the plan that was agreed to."""
    seen = _seen(pinned)
    if request.plan_hash:
        # Compared before the destination is made or changed: what is refused has written nothing.
        shown = survey(destination, request, seen, choices, limits, cores=cores)
        if shown.unreachable:
            raise shown.unreachable
        check_agreed(shown, request.plan_hash, request.partitions)
    found = survey(destination, request, seen, choices, limits, cores=cores, prepare=True)
    assert found.fit is not None, "prepared, so it exists"
    for one in found.changed:
        raise one.refusal(request)
    to = found.fit.destination
    if request.codec:
        to = replace(to, properties={**to.properties, CODEC: request.codec})
    check_properties(to.properties)
    return Drafted(
        unchanged=found.unchanged,
        plan=ExportPlan(
            process_id=process_id,
            source=request.source,
            source_identity=pinned.identity,
            table=f"{request.database}.{request.table}",
            relation=_relation(pinned, request),
            parts=found.parts,
            tasks=found.tasks,
            columns=found.fit.columns,
            keys=found.fit.keys,
            destination=to,
            replace=request.force,
            discard_deletes=request.discard_deletes,
            allow_shrink=request.allow_shrink,
            refuse_overlap=not request.allow_overlap,
            memory_mb=limits.task_memory_mb,
            file_mb=request.file_mb or file_mb(to.properties, limits.file_mb),
            open_files=limits.open_files,
            cores=cores,
            settings=dict(pinned.settings),
            notes=found.notes,
        ),
    )


def _relation(pinned: Pinned, request: ExportRequest) -> Relation:
    """With the row filter, and, where a server computes them, the ALIAS columns that are exported."""
    relation = replace(pinned.relation, where=request.where)
    included = [name for name in request.include if name in relation.detail.get("aliases", {})]
    if not included:
        return relation
    if relation.final:
        raise RefusedError(
            f"{request.source_table}: column {included[0]} is ALIAS, which this server computes before rows are"
            " merged, and --final merges them afterwards",
            code="include",
            hint=f"omit --final or --include {included[0]}",
        )
    return replace(relation, detail={**relation.detail, "included": included})


def _seen(pinned: Pinned) -> SourceView[PinnedPartition]:
    return SourceView(
        identity=pinned.identity,
        engine=pinned.engine,
        columns=pinned.columns,
        partition_key=pinned.partition_key,
        sorting_key=pinned.sorting_key,
        partitions=pinned.partitions,
        parts=pinned.parts,
        # Not from a server without `_part_offset`.
        splits_parts=pinned.relation.detail.get("part_offset") is not False,
        notes=pinned.notes,
    )


_PieceIdentity = tuple[str, str, int, int]
R = TypeVar("R", bound=Record)


def cores_of(adopted: AdoptedWork | None) -> int:
    """The cores that an earlier plan was cut for, so that its receipts fit the tasks again; 0 for none."""
    old = _readable(ExportPlan, adopted.plan) if adopted else None
    return old.cores if old else 0


def standing_receipts(plan: ExportPlan, adopted: AdoptedWork | None) -> dict[int, Receipt]:
    """By the number of the task in the new plan, which another merge of the parts may have changed (T8).
    The receipt names files of the old process; they are published as they are."""
    old = _readable(ExportPlan, adopted.plan) if adopted else None
    if adopted is None or old is None or _writing(old) != _writing(plan):
        return {}
    by_slices = {_slices(old, number): number for number in range(len(old.tasks))}
    left = (_readable(Receipt, text) for text in adopted.receipts)
    receipts = {receipt.task: receipt for receipt in left if receipt is not None}
    standing = {}
    for number in range(len(plan.tasks)):
        before = by_slices.get(_slices(plan, number))
        if before in receipts:
            standing[number] = replace(receipts[before], task=number)
    return {receipt.task: receipt for receipt in sound(plan, list(standing.values()))}


def _readable(kind: type[R], text: str) -> R | None:
    """What was damaged is not relied on: otherwise every retry would fail on it."""
    try:
        return kind.from_json(text)
    except DamagedError:
        return None


def _writing(plan: ExportPlan) -> tuple[object, ...]:
    """Everything but the rows that decides what a data file looks like."""
    destination = plan.destination
    return (
        plan.source_identity,
        plan.relation.create,
        plan.relation.where,
        plan.relation.final,
        plan.columns,
        destination.uuid,
        destination.schema_id,
        destination.spec_id,
        destination.spec,
        destination.sort_order_id,
    )


def _slices(plan: ExportPlan, number: int) -> tuple[_PieceIdentity, ...]:
    """A part is the same if its name and the hash of its files are (P17)."""
    return tuple(
        (plan.parts[piece.part].name, plan.parts[piece.part].content, piece.start, piece.end)
        for piece in plan.tasks[number]
    )
