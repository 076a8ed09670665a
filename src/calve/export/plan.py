"""A pin becomes a plan. Pure but for the destination, which is made or evolved where it must be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calve.clickhouse.pins.pin import Held
from calve.destination.port import Destination
from calve.export import destination, keys
from calve.export.choices import Choices
from calve.export.destination import Shape
from calve.export.earlier import Earlier, look_up, refuse_overlapping
from calve.export.request import ExportRequest
from calve.export.slicing import slice_parts
from calve.model.ids import ProcessId
from calve.model.limits import Limits
from calve.model.plan import ExportPlan, PartPlan, Slice


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A plan, or, without tasks, the finding that everything is exported already."""

    plan: ExportPlan
    unchanged: tuple[Earlier, ...]  # partitions left out because they are exported and the same


def draft(
    to: Destination,
    process_id: ProcessId,
    request: ExportRequest,
    held: Held,
    choices: Choices,
    limits: Limits,
) -> Drafted:
    """The plan for what the pin holds. Refuses a partition that was exported and changed since,
    unless it is to be replaced."""
    shape = shape_of(held)
    layout = destination.lay_out(shape, request, choices)
    table, match = destination.ready(to, layout, request)
    wanted = keys.key_plans(request, held.identity, held.partitions, table.uuid)
    earlier = look_up(table, wanted)
    refuse_overlapping(table, request, wanted)
    unchanged = tuple(one for one in earlier if one.unchanged and not request.force)
    for one in earlier:
        if not one.unchanged and not request.force:
            raise one.refusal(request)
    left_out = {one.partition for one in unchanged}
    chosen = tuple(key for key in wanted if key.partition not in left_out)
    parts = tuple(part for part in held.parts if part.partition_id not in left_out)
    return Drafted(
        unchanged=unchanged,
        plan=ExportPlan(
            process_id=process_id,
            source=request.source,
            source_identity=held.identity,
            table=f"{request.database}.{request.table}",
            relation=replace(held.relation, where=request.where),
            parts=parts,
            tasks=slices(parts, limits, whole=request.final, split=_splits(held)),
            columns=match.columns,
            keys=chosen,
            destination=destination.describe(to, table, match, shape),
            replace=request.force,
            discard_deletes=request.discard_deletes,
            refuse_overlap=not request.allow_overlap,
            memory_mb=limits.task_memory_mb,
            file_mb=limits.file_mb,
            open_files=limits.open_files,
            settings=dict(held.settings),
            notes=layout.notes + held.notes + merging_note(held.engine, request),
        ),
    )


def shape_of(held: Held) -> Shape:
    return Shape(columns=held.columns, partition_key=held.partition_key, sorting_key=held.sorting_key)


def _splits(held: Held) -> bool:
    """Whether a part can be read by ranges: not from a server without `_part_offset`."""
    return held.relation.detail.get("part_offset") is not False


def slices(
    parts: Sequence[PartPlan], limits: Limits, *, whole: bool, split: bool = True
) -> tuple[tuple[Slice, ...], ...]:
    """Tasks of one partition each, so that the files of a key can be told from those of another."""
    tasks: list[tuple[Slice, ...]] = []
    places: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(part.partition_id, []).append(place)
    for mine in places.values():
        sliced = slice_parts(
            [parts[place] for place in mine], task_bytes_mb=limits.task_bytes_mb, whole=whole, split=split
        )
        tasks += [tuple(replace(piece, part=mine[piece.part]) for piece in task) for task in sliced]
    return tuple(tasks)


_MERGING = (
    "Replacing",
    "Summing",
    "Aggregating",
    "Collapsing",
    "VersionedCollapsing",
    "Graphite",
    "Coalescing",
)


def merges_rows(engine: str) -> bool:
    """Whether merges of that engine combine rows."""
    return any(name in engine for name in _MERGING)


def merging_note(engine: str, request: ExportRequest) -> tuple[str, ...]:
    """Engines whose merges combine rows: what is exported are the parts as they are."""
    if request.final or not merges_rows(engine):
        return ()
    return (
        f"{engine}: rows that a later merge would combine are exported as they are;"
        " --final exports the merged view",
    )
