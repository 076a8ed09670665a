"""Every file that a table's metadata refers to, from any snapshot that it still has."""

from collections.abc import Iterable, Iterator

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from calve.iceberg.health.entries import read_entries
from calve.iceberg.health.paths import normal
from calve.iceberg.publish.manifests import manifests_of


class PathSet:
    """Paths that must stay. Hashes only, eight bytes for a path of hundreds: two paths that collide
    keep a file that could go, never the other way round."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._hashes: set[int] = set()
        self.update(paths)

    def update(self, paths: Iterable[str]) -> None:
        self._hashes.update(hash(normal(path)) for path in paths)

    def __contains__(self, path: str) -> bool:
        return hash(normal(path)) in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)


def manifests_by_path(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    """Consecutive snapshots share most of their manifests: each is listed once."""
    return {
        manifest.manifest_path: manifest
        for snapshot in snapshots
        for manifest in manifests_of(table, snapshot)
    }


def reachable(table: Table) -> PathSet:
    """All of it: metadata files, manifest lists, manifests, data and delete files, statistics."""
    metadata = table.metadata
    manifests = manifests_by_path(table, metadata.snapshots)
    paths = PathSet(_metadata_paths(table))
    paths.update(manifests)
    for manifest in manifests.values():
        paths.update(entry.path for entry in read_entries(table.io, manifest))
    return paths


def _metadata_paths(table: Table) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    yield f"{metadata.location.rstrip('/')}/metadata/version-hint.text"
    yield from (item.metadata_file for item in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from (item.statistics_path for item in metadata.statistics)
    yield from (item.statistics_path for item in metadata.partition_statistics)
