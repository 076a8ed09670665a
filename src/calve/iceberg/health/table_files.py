"""The files of a table: those that lie at its location, and those that its metadata refers to.

The second covers every snapshot that the table still has. A file is compared by what it is, however
its path is spelled (`objects.uri`).
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlparse

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from calve.iceberg.errors import catalog_call
from calve.iceberg.health.entries import read_entries
from calve.iceberg.publish.manifests import manifests_of
from calve.model.errors import RefusedError
from calve.objects.uri import comparable


class TableFile(NamedTuple):
    """One object. `path` is its full URI, in the spelling of the table's location."""

    path: str
    bytes: int
    modified_at: datetime


def list_files(table: Table, location: str) -> Iterator[TableFile]:
    """Every file below a location. RefusedError where ages cannot be had: nothing may be judged then."""
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise RefusedError(
            f"the files of table {'.'.join(table.name())} cannot be listed through {type(io).__name__}",
            code="listing_unsupported",
            hint="remove `py-io-impl` from the catalog's configuration, or skip the search for orphans",
        )
    with catalog_call(table.catalog.name, f"listing {location}"):
        parsed = urlparse(location)
        files = io.fs_by_scheme(parsed.scheme or "file", parsed.netloc)
        base = f"{parsed.netloc}{parsed.path}".rstrip("/")
        prefix = location.rstrip("/")
        for info in files.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
            if info.type == fs.FileType.File:
                yield TableFile(prefix + info.path.removeprefix(base), info.size, _modified(info))


def _modified(info: Any) -> datetime:
    """An object without a time counts as made now: never old enough."""
    at: datetime | None = info.mtime
    return datetime.now(UTC) if at is None else at.astimezone(UTC)


class PathSet:
    """Paths that must stay. Hashes only, eight bytes for a path of hundreds: two paths that collide
    keep a file that could go, never the other way round."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._hashes: set[int] = set()
        self.update(paths)

    def update(self, paths: Iterable[str]) -> None:
        self._hashes.update(hash(comparable(path)) for path in paths)

    def __contains__(self, path: str) -> bool:
        return hash(comparable(path)) in self._hashes

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
