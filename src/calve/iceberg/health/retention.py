"""Which snapshots and references are past their age: Iceberg's own rules, and what Calve protects. Pure.

Kept: the head of every branch and tag, of each branch what its age and count keep (the reference's
own limits before the table's), and every snapshot that is asked to be kept: the base of a live
process, and what a live process made. A reference goes only when it says itself how old it may
get, and main never.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from calve.iceberg.health.settings import Settings


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
    """What is past its age at `now_ms`."""
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
