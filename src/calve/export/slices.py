"""Parts to tasks. Pure and deterministic: the same parts and limits give the same tasks.

Small parts share a task up to a size; a huge one is split over tasks by ranges of physical
offsets. Every physical row is in exactly one slice, and the parts keep their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from calve.destination.plan import PartPlan, Slice

GRANULE_ROWS = 8192  # ranges start at multiples of it, so that two tasks seldom read one granule
PARTS_A_TASK = 500  # a partition of thousands of one-row parts: attaching costs milliseconds each

Task = tuple[Slice, ...]


def slice_parts(
    parts: Sequence[PartPlan], *, task_bytes_mb: int, whole: bool = False, split: bool = True
) -> tuple[Task, ...]:
    """`whole` keeps all parts of a partition in one task: `FINAL` must see them together. Without
    `split` a huge part is one task of its own."""
    budget = max(1, task_bytes_mb) * 1_000_000
    if whole:
        return tuple(_by_partition(parts))
    tasks: list[Task] = []
    open_task: list[Slice] = []
    open_bytes = 0
    for place, part in enumerate(parts):
        if part.rows == 0:
            continue
        if part.bytes > budget:
            pieces = _ranges(place, part, budget) if split else [Slice(part=place, start=0, end=part.rows)]
            tasks += [(piece,) for piece in pieces]
            continue
        if open_task and (open_bytes + part.bytes > budget or len(open_task) >= PARTS_A_TASK):
            tasks.append(tuple(open_task))
            open_task, open_bytes = [], 0
        open_task.append(Slice(part=place, start=0, end=part.rows))
        open_bytes += part.bytes
    if open_task:
        tasks.append(tuple(open_task))
    return tuple(tasks)


def partition_slices(
    parts: Sequence[PartPlan], *, task_bytes_mb: int, whole: bool, split: bool
) -> tuple[Task, ...]:
    """Tasks of one partition each, so that each file belongs to one key."""
    tasks: list[Task] = []
    places: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(part.partition_id, []).append(place)
    for mine in places.values():
        sliced = slice_parts(
            [parts[place] for place in mine], task_bytes_mb=task_bytes_mb, whole=whole, split=split
        )
        tasks += [tuple(replace(piece, part=mine[piece.part]) for piece in task) for task in sliced]
    return tuple(tasks)


def _ranges(place: int, part: PartPlan, budget: int) -> Iterable[Slice]:
    """Ranges of equal size, none above the budget by more than a granule."""
    count = -(-part.bytes // budget)
    step = -(-part.rows // count)
    step = -(-step // GRANULE_ROWS) * GRANULE_ROWS
    for start in range(0, part.rows, step):
        yield Slice(part=place, start=start, end=min(start + step, part.rows))


def _by_partition(parts: Sequence[PartPlan]) -> Iterable[Task]:
    partitions: dict[str, list[Slice]] = {}
    for place, part in enumerate(parts):
        if part.rows:
            partitions.setdefault(part.partition_id, []).append(Slice(part=place, start=0, end=part.rows))
    return (tuple(pieces) for pieces in partitions.values())
