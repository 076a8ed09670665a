"""What a person should know about a table, and for each the command that improves it. Pure.

A number from 0 to 100 for how a table's files are, and the parts it is made of. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calve.iceberg.health.due import Due, Expiry, Level
from calve.iceberg.health.orphans import Orphans
from calve.iceberg.health.settings import Settings
from calve.iceberg.health.stats import PartitionStats, TableStats
from calve.iceberg.publish.marks import RELEASED_TAG

MANIFESTS_ALWAYS_FINE = 10
_DELETES_AT_WORST = 3.0  # times the ratio that triggers


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the score: `good` is between 0 and 1."""

    name: str
    weight: int
    good: float


def score(parts: Sequence[Part]) -> int:
    weight = sum(part.weight for part in parts)
    return round(100 * sum(part.weight * part.good for part in parts) / weight) if weight else 100


def parts_of(
    stats: TableStats, settings: Settings, *, expirable: int, orphan_bytes: int | None
) -> tuple[Part, ...]:
    """`orphan_bytes` is None where orphans were not looked for."""
    parts = [
        Part(name="file sizes", weight=40, good=_file_sizes(stats, settings)),
        Part(name="deletes", weight=30, good=_deletes(stats, settings)),
        Part(name="manifests", weight=10, good=_manifests(stats, settings)),
        Part(name="snapshots", weight=10, good=1 - expirable / max(stats.snapshots, 1)),
    ]
    if orphan_bytes is not None:
        whole = stats.bytes + orphan_bytes
        parts.append(Part(name="orphans", weight=10, good=1 - orphan_bytes / whole if whole else 1.0))
    return tuple(parts)


def files_needed(part: PartitionStats, settings: Settings) -> int:
    """How many files a partition would have after a rewrite."""
    return max(1, -(-part.bytes // settings.target_bytes)) if part.files else 0


def manifests_needed(stats: TableStats, settings: Settings) -> int:
    """Twice what the bytes need, since each spec and kind of content has manifests of its own."""
    return max(MANIFESTS_ALWAYS_FINE, 2 * -(-stats.manifest_bytes // settings.manifest_bytes))


def _file_sizes(stats: TableStats, settings: Settings) -> float:
    needed = sum(files_needed(part, settings) for part in stats.partitions.values())
    return min(1.0, needed / stats.files) if stats.files else 1.0


def _deletes(stats: TableStats, settings: Settings) -> float:
    if not stats.files:
        return 1.0
    worst = max(settings.major_delete_ratio * _DELETES_AT_WORST, 0.01)
    by_rows = stats.deleted_rows / max(stats.rows, 1) / worst
    by_files = (stats.position_deletes + stats.equality_deletes) / stats.files
    return 1 - min(1.0, max(by_rows, by_files))


def _manifests(stats: TableStats, settings: Settings) -> float:
    return min(1.0, manifests_needed(stats, settings) / stats.manifests) if stats.manifests else 1.0


@dataclass(frozen=True, kw_only=True)
class TableFinding:
    what: str
    detail: str
    command: str


def findings(
    name: str,
    stats: TableStats,
    settings: Settings,
    *,
    due: list[Due],
    expirable: Expiry,
    orphans: Orphans | None,
    unguarded: bool = False,
    repeated: Sequence[str] = (),
) -> Iterator[TableFinding]:
    """The most rewarding first."""
    optimize = f"calve optimize {name}"
    if unguarded:
        yield TableFinding(
            what="released rows unguarded",
            detail=f"rows left their source for this table, and tag {RELEASED_TAG} is gone: snapshots"
            " and orphan files stay until the rows are proven and the tag is set again",
            command="-",
        )
    if repeated:
        yield TableFinding(
            what="repeated ids",
            detail=f"metadata has {', '.join(repeated)} more than once: Spark, Trino and other Java readers"
            " cannot open the table",
            command=optimize,
        )
    if rewrites := [item for item in due if item.level is not Level.FULL]:
        yield TableFinding(
            what="partitions to rewrite",
            detail=f"{len(rewrites)} of {len(stats.partitions)} partitions; first: {rewrites[0].reason}",
            command=optimize,
        )
    elif due:
        yield TableFinding(what="full rewrite", detail=f"due for {len(due)} partitions", command=optimize)
    elif (would_do := sum(files_needed(part, settings) for part in stats.partitions.values())) < stats.files:
        yield TableFinding(
            what="small files",
            detail=f"{stats.files} files where {would_do} would do; no trigger has fired yet",
            command=f"{optimize} --full",
        )
    if lost := stats.dangling_deletes:
        yield TableFinding(
            what="dangling deletes",
            detail=f"{lost} delete files no longer delete anything",
            command=optimize,
        )
    if stats.global_deletes:
        yield TableFinding(
            what="global deletes",
            detail=f"{stats.global_deletes} equality delete files of an unpartitioned spec apply to every"
            " partition; a full rewrite applies them, and then they go",
            command=f"{optimize} --full",
        )
    if stats.manifests > manifests_needed(stats, settings):
        yield TableFinding(
            what="manifests",
            detail=f"{stats.manifests} manifests where {manifests_needed(stats, settings)} would do",
            command=optimize,
        )
    yield from _past(optimize, stats, settings, expirable)
    yield from _lost(name, orphans)


def _past(optimize: str, stats: TableStats, settings: Settings, expirable: Expiry) -> Iterator[TableFinding]:
    if not expirable:
        return
    detail = f"{len(expirable.snapshot_ids)} of {stats.snapshots} snapshots"
    if expirable.refs:
        detail += f" and {len(expirable.refs)} references"
    if settings.expire:
        yield TableFinding(what="old snapshots", detail=f"{detail} are past their age", command=optimize)
    elif settings.owns_files:
        yield TableFinding(
            what="old snapshots",
            detail=f"{detail} are past their age; the table forbids expiry (table-expire.enabled)",
            command=f"{optimize} --expire",
        )


def _lost(name: str, orphans: Orphans | None) -> Iterator[TableFinding]:
    if orphans is None:
        return
    if orphans.removable:
        yield TableFinding(
            what="orphan files",
            detail=f"{len(orphans.removable)} files, {orphans.bytes} bytes, that nothing refers to",
            command=f"calve optimize {name}",
        )
    if orphans.of_unknown:
        yield TableFinding(
            what="files of unknown processes",
            detail=f"{orphans.of_unknown} files belong to processes that this store does not know;"
            " they are never removed from here",
            command="calve ps --all   (with the store that made them)",
        )
    for path in orphans.elsewhere:
        yield TableFinding(
            what="files elsewhere",
            detail=f"the table also writes to {path}, outside its location; orphans there are not looked"
            " for, because other tables may write there",
            command="-",
        )
