"""`health`: the whole answer about one table, from metadata alone.

Orphans need a listing of the table's location, which may be slow, and are looked for only when
asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.due import Due, evaluate, expiry
from calve.iceberg.health.entries import collect
from calve.iceberg.health.findings import Part, TableFinding, findings, parts_of, score
from calve.iceberg.health.orphans import Orphans, Owner, find_orphans, reachable
from calve.iceberg.health.partitions import partition_name
from calve.iceberg.health.settings import Settings, settings_of
from calve.iceberg.health.stats import SIZE_CLASSES, TableStats
from calve.iceberg.publish.marks import PROCESS_ID, is_unguarded
from calve.model.limits import Limits

FULL_AT = "calve.optimize.full-at-ms"  # table property: when everything was last rewritten
_MOST_PARTITIONS = 10
_MOST_SNAPSHOTS = 50


@dataclass(frozen=True, kw_only=True)
class NeedyPartition:
    partition: str
    level: str
    reason: str
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SizeClass:
    name: str
    files: int


@dataclass(frozen=True, kw_only=True)
class OrphanCounts:
    files: int
    bytes: int
    young: int
    of_live_processes: int
    of_unknown_processes: int
    of_other_tables: int


@dataclass(frozen=True, kw_only=True)
class SnapshotLine:
    """What one snapshot did. `process` made it, if it is one of ours."""

    id: str
    at: str
    operation: str
    rows: int  # added
    files: int
    process: str


@dataclass(frozen=True, kw_only=True)
class Health:
    """How one table is."""

    table: str
    score: int
    parts: tuple[Part, ...]
    findings: tuple[TableFinding, ...]
    files: int
    rows: int
    bytes: int
    partitions: int
    sizes: tuple[SizeClass, ...]
    small_files: int
    small_file_ratio: float
    target_bytes: int
    position_delete_files: int
    equality_delete_files: int
    dangling_delete_files: int
    deleted_rows: int
    delete_row_ratio: float
    delete_file_ratio: float
    manifests: int
    snapshots: int
    expirable_snapshots: int
    partitions_due: int
    most_in_need: tuple[NeedyPartition, ...]
    orphans: OrphanCounts | None = None
    location: str = ""
    latest_snapshots: tuple[SnapshotLine, ...] = ()  # newest first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def health(
    catalog: Catalog,
    identifier: tuple[str, ...],
    *,
    now: datetime | None = None,
    orphans: bool = False,
    owner: Callable[[str], Owner] = lambda _: Owner.UNKNOWN,
    limits: Limits | None = None,
) -> Health:
    """How a table is. `owner` says what the store knows of a process, for orphans."""
    table = tables.load(catalog, identifier)
    now = now or datetime.now(UTC)
    with catalog_call(catalog.name, f"reading metadata of table {'.'.join(identifier)}"):
        settings = settings_of(table.metadata.properties)
        stats = collect(table, settings)
        lost = None
        if orphans:
            lost = find_orphans(
                table, reachable(table), older_than=orphan_limit(settings, limits, now), owner=owner
            )
    return judge(".".join((catalog.name, *identifier)), table, stats, settings, now=now, orphans=lost)


def orphan_limit(settings: Settings, limits: Limits | None, now: datetime) -> datetime:
    """Never younger than the longest possible export, whatever a table says."""
    longest = timedelta(hours=(limits or Limits()).process_hours)
    return now - max(timedelta(milliseconds=settings.orphan_age_ms), longest)


def full_at_ms(table: Table) -> int | None:
    text = table.metadata.properties.get(FULL_AT, "")
    return int(text) if text.isdigit() else None


def judge(
    name: str,
    table: Table,
    stats: TableStats,
    settings: Settings,
    *,
    now: datetime,
    orphans: Orphans | None = None,
) -> Health:
    """Health from what was collected. Reads nothing."""
    now_ms = int(now.timestamp() * 1000)
    due = evaluate(stats, settings, now_ms=now_ms, full_at_ms=full_at_ms(table))
    past = expiry(table.metadata, settings, now_ms=now_ms)
    parts = parts_of(
        stats,
        settings,
        expirable=len(past.snapshot_ids),
        orphan_bytes=None if orphans is None else orphans.bytes,
    )
    delete_files = stats.position_deletes + stats.equality_deletes
    return Health(
        table=name,
        score=score(parts),
        parts=parts,
        findings=tuple(
            findings(
                name,
                stats,
                settings,
                due=due,
                expirable=past,
                orphans=orphans,
                unguarded=is_unguarded(table.metadata),
                repeated=tables.repeated_ids(table.metadata),
            )
        ),
        files=stats.files,
        rows=stats.rows,
        bytes=stats.bytes,
        partitions=len(stats.partitions),
        sizes=tuple(SizeClass(name=each, files=stats.sizes[each]) for each, _ in SIZE_CLASSES),
        small_files=stats.small_files,
        small_file_ratio=stats.small_files / max(stats.files, 1),
        target_bytes=settings.target_bytes,
        position_delete_files=stats.position_deletes,
        equality_delete_files=stats.equality_deletes,
        dangling_delete_files=stats.dangling_deletes,
        deleted_rows=stats.deleted_rows,
        delete_row_ratio=stats.deleted_rows / max(stats.rows, 1),
        delete_file_ratio=delete_files / max(stats.files, 1),
        manifests=stats.manifests,
        snapshots=stats.snapshots,
        expirable_snapshots=len(past.snapshot_ids),
        partitions_due=len(due),
        most_in_need=tuple(_needy(table, item) for item in due[:_MOST_PARTITIONS]),
        orphans=None if orphans is None else _counts(orphans),
        location=table.location(),
        latest_snapshots=tuple(_latest(table)),
    )


def _latest(table: Table) -> Iterator[SnapshotLine]:
    newest = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms, reverse=True)
    for one in newest[:_MOST_SNAPSHOTS]:
        said = one.summary.additional_properties if one.summary else {}
        yield SnapshotLine(
            id=str(one.snapshot_id),
            at=datetime.fromtimestamp(one.timestamp_ms / 1000, UTC).isoformat(timespec="seconds"),
            operation=one.summary.operation.value if one.summary else "",
            rows=_whole(said.get("added-records")),
            files=_whole(said.get("added-data-files")),
            process=said.get(PROCESS_ID, ""),
        )


def _whole(text: str | None) -> int:
    """Another engine may have written anything."""
    return int(text) if text and text.isdecimal() else 0


def _needy(table: Table, due: Due) -> NeedyPartition:
    return NeedyPartition(
        partition=partition_name(table.metadata, due.place),
        level=due.level.value,
        reason=due.reason,
        files=due.files,
        bytes=due.bytes,
    )


def _counts(orphans: Orphans) -> OrphanCounts:
    return OrphanCounts(
        files=len(orphans.removable),
        bytes=orphans.bytes,
        young=orphans.young,
        of_live_processes=orphans.of_live,
        of_unknown_processes=orphans.of_unknown,
        of_other_tables=orphans.of_others,
    )
