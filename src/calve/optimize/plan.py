"""The plan of an optimize, and tasks from what is due. Pure. Newer versions read older plans.

One task is a filter: a partition, or several small ones, so that a thousand partitions do not
make a thousand commits. A table whose data lies under several partition specs is one task: a
filter on one spec's partitions would also select every file of the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from calve.iceberg.health.due import Due, Level
from calve.iceberg.health.partitions import TRUE, Filter, any_of, partition_filter, partition_name
from calve.iceberg.health.settings import MIB, Settings
from calve.iceberg.health.stats import TableStats
from calve.model.record import Record

PLAN_VERSION = 1
TASK_BYTES = 1024 * MIB
TASK_PARTITIONS = 100
_NO_LIMIT = str(2**62)
_NAMED = 20  # partitions that a task names


@dataclass(frozen=True, kw_only=True)
class TaskSpec(Record):
    """What one task rewrites."""

    filter: Filter
    level: str
    partitions: tuple[str, ...] = ()  # some of them, for people
    files: int
    bytes: int
    position_deletes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)  # of Iceberg's action


@dataclass(frozen=True, kw_only=True)
class OptimizePlan(Record):
    """The table as it was, and what is to be done once the tasks are."""

    process_id: str
    catalog: str
    identifier: tuple[str, ...]
    uuid: str
    location: str
    base_snapshot_id: str | None
    full: bool
    expire: bool
    orphans: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    sort: Mapping[str, Any] = field(default_factory=dict)
    version: int = PLAN_VERSION


def tasks_of(
    metadata: TableMetadata, stats: TableStats, settings: Settings, due: Sequence[Due], *, most: int = 0
) -> tuple[TaskSpec, ...]:
    """The tasks, the neediest first; at most `most`, where that is not 0."""
    if not due:
        return ()
    if stats.specs_with_data - {metadata.default_spec_id}:
        return (_whole_table(metadata, stats, settings, due),)
    filters = {
        item.place: partition_filter(metadata.spec(), metadata.schema(), item.place.values) for item in due
    }
    if any(made is None for made in filters.values()):
        return (_whole_table(metadata, stats, settings, due),)
    made = tuple(
        _task(
            metadata,
            stats,
            settings,
            group,
            any_of([found for item in group if (found := filters[item.place]) is not None]),
        )
        for group in _groups(due, stats)
    )
    return made[:most] if most else made


def _groups(due: Iterable[Due], stats: TableStats) -> list[list[Due]]:
    """Partitions that are rewritten alike share a task until it is large enough."""
    groups: list[list[Due]] = []
    open_groups: dict[tuple[Level, bool], list[Due]] = {}
    for item in due:
        key = (item.level, bool(stats.partitions[item.place].delete_files))
        group = open_groups.get(key)
        if group is None:
            group = open_groups[key] = []
            groups.append(group)
        group.append(item)
        if sum(one.bytes for one in group) >= TASK_BYTES or len(group) >= TASK_PARTITIONS:
            del open_groups[key]
    return groups


def _whole_table(
    metadata: TableMetadata, stats: TableStats, settings: Settings, due: Sequence[Due]
) -> TaskSpec:
    return _task(metadata, stats, settings, due, TRUE)


def _task(
    metadata: TableMetadata, stats: TableStats, settings: Settings, group: Sequence[Due], filter_: Filter
) -> TaskSpec:
    parts = [stats.partitions[item.place] for item in group]
    level = _strongest(item.level for item in group)
    return TaskSpec(
        filter=filter_,
        level=level.value,
        partitions=tuple(partition_name(metadata, item.place) for item in group[:_NAMED]),
        files=sum(item.files for item in group),
        bytes=sum(item.bytes for item in group),
        position_deletes=level is not Level.MINOR and any(part.position_deletes for part in parts),
        options=options_of(
            level,
            settings,
            deletes=any(part.delete_files for part in parts),
            several_specs=len(metadata.partition_specs) > 1,
        ),
    )


def _strongest(levels: Iterable[Level]) -> Level:
    order = list(Level)
    return max(levels, key=order.index)


def options_of(level: Level, settings: Settings, *, deletes: bool, several_specs: bool) -> dict[str, str]:
    """Iceberg's own options. Each task is one commit: it lands whole, and its mark says so."""
    options = {
        "target-file-size-bytes": str(settings.target_bytes),
        "partial-progress.enabled": "false",
        "min-input-files": "2",
        "max-files-to-rewrite": str(settings.most_files),
    }
    if several_specs:
        # Files move to the newest spec. Kept sequence numbers would make Iceberg ignore equality
        # deletes that others add meanwhile under the old spec, which then apply to nothing (P19);
        # with new ones they are a conflict, and the task is planned again.
        options["use-starting-sequence-number"] = "false"
    match level:
        case Level.MINOR:
            options["min-file-size-bytes"] = str(min(settings.fragment_bytes + 1, settings.target_bytes - 1))
            options["max-file-size-bytes"] = _NO_LIMIT
            options["delete-ratio-threshold"] = "1.0"
        case Level.MAJOR:
            options["min-file-size-bytes"] = str(settings.undersized_bytes)
            options["max-file-size-bytes"] = str(settings.oversized_bytes)
            if deletes:
                options["delete-file-threshold"] = "1"
        case Level.FULL:
            options["rewrite-all"] = "true"
    return options
