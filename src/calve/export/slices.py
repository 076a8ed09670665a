"""Parts to tasks, cut so that every core has work. Pure and deterministic: the same parts, limits and
cores give the same tasks, and the plan records the cores.

Every physical row is in exactly one slice. Tasks of a partition are as even as granules allow; the
largest start first. Small exports are not cut into many small files: a task writes at least a part of
a file of the wished size.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from calve.destination.plan import PartPlan, Slice

GRANULE_ROWS = 8192  # ranges start at multiples of it, so that two tasks seldom read one granule
PARTS_A_TASK = 500  # a partition of thousands of one-row parts: attaching costs milliseconds each
_VALUE_BYTES = 4  # what a value costs beside its bytes, which may be few: measured, of a mixed table
_NEAR = 10  # a cut this close to a part's end, in parts of a task, is made there
_SMALLEST = 4  # the smallest task, in parts of a file of the wished size
_FEW = 8  # so many tasks may be that small; where there are more, they write at least half a file
_MEGABYTE = 1_000_000

Task = tuple[Slice, ...]


def slice_parts(
    parts: Sequence[PartPlan],
    *,
    task_bytes_mb: int,
    count: int = 1,
    columns: int = 1,
    whole: bool = False,
    split: bool = True,
) -> tuple[Task, ...]:
    """About `count` tasks, or as many as keep them near the bytes. `whole` keeps all parts of a partition in one task: `FINAL` must see them together.
    Without `split` a part is in one task."""
    if whole:
        return tuple(_by_partition(parts))
    there = [(place, part) for place, part in enumerate(parts) if part.rows]
    count = max(count, -(-sum(part.bytes for _, part in there) // _budget(task_bytes_mb)))
    return tuple(
        piece[start : start + PARTS_A_TASK]
        for piece in _even(there, count, columns, split=split)
        for start in range(0, len(piece), PARTS_A_TASK)
    )


def partition_slices(
    parts: Sequence[PartPlan],
    *,
    task_bytes_mb: int,
    cores: int = 1,
    columns: int = 1,
    file_mb: int = 128,
    whole: bool = False,
    split: bool = True,
) -> tuple[Task, ...]:
    """Tasks of one partition each, so that each file belongs to one key; the largest first."""
    places: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(part.partition_id, []).append(place)
    weights = [_weight(part, columns) for part in parts]
    count = _task_count(
        sum(weights),
        -(-sum(part.bytes for part in parts) // _budget(task_bytes_mb)),
        cores=cores,
        file_mb=file_mb,
    )
    tasks: list[Task] = []
    for mine in places.values():
        those = [parts[place] for place in mine]
        share = round(count * sum(weights[place] for place in mine) / max(1, sum(weights)))
        sliced = slice_parts(
            those, task_bytes_mb=task_bytes_mb, count=share, columns=columns, whole=whole, split=split
        )
        tasks += [tuple(replace(piece, part=mine[piece.part]) for piece in task) for task in sliced]
    return tuple(sorted(tasks, key=lambda task: -_task_weight(parts, weights, task)))


def _task_count(weight: int, needed: int, *, cores: int, file_mb: int) -> int:
    """A multiple of the cores where there is enough to do, so that none idles while another works."""
    smallest = max(1, file_mb * _MEGABYTE // _SMALLEST)
    most = weight // smallest
    if most > _FEW:
        most = max(_FEW, weight // (smallest * _SMALLEST // 2))
    filled = -(-max(1, needed) // max(1, cores)) * max(1, cores)
    return max(needed, min(filled, most))


def _budget(task_bytes_mb: int) -> int:
    return max(1, task_bytes_mb) * _MEGABYTE


def _weight(part: PartPlan, columns: int) -> int:
    """How long its rows take, in bytes."""
    return part.bytes + _VALUE_BYTES * columns * part.rows


def _task_weight(parts: Sequence[PartPlan], weights: Sequence[int], task: Task) -> int:
    return sum(weights[piece.part] * (piece.end - piece.start) // parts[piece.part].rows for piece in task)


def _even(parts: Sequence[tuple[int, PartPlan]], count: int, columns: int, *, split: bool) -> Iterable[Task]:
    """Cut the parts, laid end to end in their order, at even distances."""
    total = sum(_weight(part, columns) for _, part in parts)
    cuts: dict[int, list[int]] = {}  # the rows before which a task ends, by the part's place
    passed, cut = 0, 1
    for place, part in parts:
        weight = _weight(part, columns)
        while cut < count and total * cut // count < passed + weight:
            distance = total * cut // count - passed
            row = _cut_at(part.rows, weight, distance, near=total // count // _NEAR, split=split)
            cuts.setdefault(place, []).append(row)
            cut += 1
        passed += weight
    task: list[Slice] = []
    for place, part in parts:
        start = 0
        for end in cuts.get(place, ()):
            if end > start:
                task.append(Slice(part=place, start=start, end=end))
            if task:
                yield tuple(task)
            task, start = [], end
        if start < part.rows:
            task.append(Slice(part=place, start=start, end=part.rows))
    if task:
        yield tuple(task)


def _cut_at(rows: int, weight: int, distance: int, *, near: int, split: bool) -> int:
    """The row where a cut at that distance from a part's beginning is made: 0 is before the part, the
    number of its rows is behind it."""
    if not split:
        near = weight // 2
    if distance <= near:
        return 0
    if not split or distance >= weight - near:
        return rows
    return min(-(-distance * rows // weight // GRANULE_ROWS) * GRANULE_ROWS, rows)


def _by_partition(parts: Sequence[PartPlan]) -> Iterable[Task]:
    partitions: dict[str, list[Slice]] = {}
    for place, part in enumerate(parts):
        if part.rows:
            partitions.setdefault(part.partition_id, []).append(Slice(part=place, start=0, end=part.rows))
    return (tuple(pieces) for pieces in partitions.values())
