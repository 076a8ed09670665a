"""What is due, and why: partitions to rewrite, snapshots and references past their age. Pure: it judges what
`entries.collect` counted.

    minor   fragments (at most target / 8): a dozen in a partition, or two of which one is an hour old
    major   two or more files below 0.75 of the target that together fill one; or deleted rows above
            a tenth; or more delete files than data files
    full    everything, when the interval that the table asks for has passed, or when asked

A partition that has nothing to gain is never due, whatever the clock says, so a worker that evaluates for
ever comes to rest.

Snapshots and references expire by Iceberg's own rules, but for those that Calve protects.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from calve.iceberg.health.settings import Settings
from calve.iceberg.health.stats import PartitionStats, Place, TableStats
from calve.iceberg.publish.marks import is_unguarded


class Level(StrEnum):
    """How much of a partition is rewritten."""

    MINOR = "minor"  # fragments only
    MAJOR = "major"  # all that is too small, too large, or has deletes
    FULL = "full"  # everything


@dataclass(frozen=True, kw_only=True)
class Due:
    """One partition to rewrite, and why."""

    place: Place
    level: Level
    reason: str
    files: int  # that are expected to be rewritten
    bytes: int
    weight: float  # the larger, the needier


def evaluate(
    stats: TableStats, settings: Settings, *, now_ms: int, full_at_ms: int | None = None, full: bool = False
) -> list[Due]:
    """The partitions that are due, the neediest first. `full_at_ms`: when the last full one was."""
    everything = full or _full_is_due(settings, now_ms, full_at_ms)
    due = [
        found
        for part in stats.partitions.values()
        if (found := _partition(part, stats, settings, now_ms, everything)) is not None
    ]
    return sorted(due, key=lambda item: (-item.weight, item.place.spec_id, repr(item.place.values)))


def _full_is_due(settings: Settings, now_ms: int, full_at_ms: int | None) -> bool:
    if settings.full_interval_ms < 0:
        return False
    return full_at_ms is None or now_ms - full_at_ms >= settings.full_interval_ms


def _partition(
    part: PartitionStats, stats: TableStats, settings: Settings, now_ms: int, everything: bool
) -> Due | None:
    if not part.files:
        return None  # delete files of a partition without data dangle: the table drops those
    if everything and (settings.full_rewrites_all or _untidy(part, stats)):
        return _due(part, Level.FULL, "everything is rewritten", part.files, part.bytes)
    if reason := _major(part, stats, settings):
        return _due(
            part,
            Level.MAJOR,
            reason,
            part.files if part.delete_files else part.fragments + part.undersized + part.oversized,
            part.bytes if part.delete_files else part.fragment_bytes + part.undersized_bytes,
        )
    if reason := _minor(part, settings, now_ms):
        return _due(part, Level.MINOR, reason, part.fragments, part.fragment_bytes)
    return None


def _untidy(part: PartitionStats, stats: TableStats) -> bool:
    return bool(part.files > 1 or part.delete_files or part.place.spec_id != stats.current_spec_id)


def _major(part: PartitionStats, stats: TableStats, settings: Settings) -> str:
    if part.delete_files and part.delete_ratio > settings.major_delete_ratio:
        return f"{part.delete_ratio:.0%} of the rows are in delete files"
    if part.delete_files > part.files:
        return f"{part.delete_files} delete files for {part.files} data files"
    small = part.fragment_bytes + part.undersized_bytes
    # As many files as before would come out of it, and it would be due for ever.
    fewer = part.fragments + part.undersized > -(-small // settings.target_bytes)
    if part.undersized > 1 and small >= settings.target_bytes and fewer:
        return f"{part.undersized} files below {settings.undersized_ratio:.0%} of the target size"
    if part.place.spec_id != stats.current_spec_id and part.fragments + part.undersized > 1:
        return f"{part.files} files of an older partition spec"
    return ""


def _minor(part: PartitionStats, settings: Settings, now_ms: int) -> str:
    if part.fragments >= settings.minor_files:
        return f"{part.fragments} fragments"
    if part.fragments < 2 or part.oldest_fragment_ms is None or settings.minor_interval_ms < 0:
        return ""
    if now_ms - part.oldest_fragment_ms >= settings.minor_interval_ms:
        return f"{part.fragments} fragments, the oldest past its age"
    return ""


def _due(part: PartitionStats, level: Level, reason: str, files: int, size: int) -> Due:
    # What a reader pays: each file opened, and each delete file applied to several of them.
    weight = float(part.fragments + part.undersized / 4 + 2 * part.delete_files) + part.delete_ratio
    return Due(place=part.place, level=level, reason=reason, files=files, bytes=size, weight=weight)


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """What may go."""

    snapshot_ids: tuple[int, ...] = ()  # oldest first
    refs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs)


def expiry(
    metadata: TableMetadata,
    settings: Settings,
    *,
    now_ms: int,
    keep_snapshots: frozenset[int] = frozenset(),
    keep_refs: frozenset[str] = frozenset(),
) -> Expiry:
    """What is past its age at `now_ms`. Nothing, where the only copy of released rows is unguarded."""
    if is_unguarded(metadata):
        return Expiry()
    gone = tuple(
        name
        for name, ref in metadata.refs.items()
        if name not in keep_refs and _ref_expired(metadata, name, ref, now_ms)
    )
    kept = set(keep_snapshots)
    for name, ref in metadata.refs.items():
        if name not in gone:
            kept.update(_kept_by(metadata, ref, settings, now_ms))
    # On no reference at all: staged, or left behind by a rollback. Only its age counts.
    kept.update(
        item.snapshot_id
        for item in metadata.snapshots
        if now_ms - item.timestamp_ms < settings.snapshot_age_ms
    )
    old = sorted(
        (item for item in metadata.snapshots if item.snapshot_id not in kept),
        key=lambda item: item.timestamp_ms,
    )
    return Expiry(snapshot_ids=tuple(item.snapshot_id for item in old), refs=gone)


def _ref_expired(metadata: TableMetadata, name: str, ref: SnapshotRef, now_ms: int) -> bool:
    if name == MAIN_BRANCH or ref.max_ref_age_ms is None:
        return False
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    return snapshot is not None and now_ms - snapshot.timestamp_ms > ref.max_ref_age_ms


def _kept_by(metadata: TableMetadata, ref: SnapshotRef, settings: Settings, now_ms: int) -> Iterator[int]:
    yield ref.snapshot_id
    if ref.snapshot_ref_type == SnapshotRefType.TAG:
        return
    age = ref.max_snapshot_age_ms or settings.snapshot_age_ms
    count = ref.min_snapshots_to_keep or settings.snapshots_kept
    for at, snapshot in enumerate(_ancestors(metadata, ref.snapshot_id)):
        if at >= count and now_ms - snapshot.timestamp_ms >= age:
            return
        yield snapshot.snapshot_id


def _ancestors(metadata: TableMetadata, snapshot_id: int) -> Iterator[Snapshot]:
    by_id = {item.snapshot_id: item for item in metadata.snapshots}
    found = by_id.get(snapshot_id)
    while found is not None:
        yield found
        found = by_id.get(found.parent_snapshot_id) if found.parent_snapshot_id is not None else None
