"""A number from 0 to 100 for how a table's files are, and the parts it is made of. Pure.

Each part compares what is with what could be: a partition that holds one small file cannot be
improved, and costs nothing. What was not looked at is left out, and the others weigh more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.iceberg.health.settings import Settings
from calve.iceberg.health.stats import PartitionStats, TableStats

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
