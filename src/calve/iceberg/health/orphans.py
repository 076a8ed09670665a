"""The files at a table's location, those that its metadata refers to, and which of the rest may go. Says;
never deletes.

The invariants (D15): nothing younger than the longest possible export; nothing of a live process,
or of one whose files wait for a retry; no `calve-…` file of a process that this store does not
know, however old: another store may know it; none of a process that wrote to another table.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlparse

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from calve.destination.names import is_receipt, process_of
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.entries import read_entries
from calve.iceberg.publish.manifests import manifests_of
from calve.iceberg.publish.marks import is_unguarded
from calve.model.errors import RefusedError
from calve.objects.uri import comparable, is_below


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


_WRITES_TO = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_METADATA_FILE = re.compile(r"^(.*)/metadata/[^/]+\.metadata\.json(?:\.gz)?$")


class Owner(StrEnum):
    """What this store says about the process that a file is named after."""

    UNKNOWN = "unknown"
    LIVE = "live"  # or its files are kept for a retry
    ENDED = "ended"
    OTHERS = "others"  # it wrote to another table, whose data lies in this one's folder


@dataclass(frozen=True, kw_only=True)
class Orphans:
    """What was found."""

    removable: tuple[TableFile, ...] = ()
    young: int = 0  # too young to judge
    of_live: int = 0
    of_unknown: int = 0  # of a process that this store does not know
    of_others: int = 0  # of another table, inside this one's folder
    elsewhere: tuple[str, ...] = ()  # where the table also writes, which is not listed
    looked_at: int = 0

    @property
    def bytes(self) -> int:
        return sum(found.bytes for found in self.removable)


def find_orphans(
    table: Table, reachable: PathSet, *, older_than: datetime, owner: Callable[[str], Owner]
) -> Orphans:
    """List the table's location and judge what nothing refers to. Receipts are not among it: they
    are not orphans, and have an age of their own. None, where released rows are unguarded."""
    if is_unguarded(table.metadata):
        return Orphans()
    location = table.metadata.location
    files = [
        found
        for found in list_files(table, location)
        if not is_receipt(found.path) and (not _hidden(found.path) or _sidecar_of(found.path))
    ]
    found = judge(files, reachable, own=location, older_than=older_than, owner=owner)
    return replace(found, elsewhere=elsewhere(table.metadata))


def elsewhere(metadata: TableMetadata) -> tuple[str, ...]:
    """Where a table writes outside its location. Other tables may write there too, and nothing there
    says whose a file is: it is never looked into."""
    named = [metadata.properties[name] for name in _WRITES_TO if name in metadata.properties]
    return tuple(dict.fromkeys(path for path in named if not is_below(path, metadata.location)))


def _hidden(path: str) -> bool:
    """Half-written files of others; every tool leaves such names alone."""
    return path.rsplit("/", 1)[-1].startswith((".", "_"))


def _sidecar_of(path: str) -> str | None:
    """Hadoop keeps a checksum `.<name>.crc` beside a local file: it stays and goes with it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else None


def judge(
    files: Iterable[TableFile],
    reachable: PathSet,
    *,
    own: str,
    older_than: datetime,
    owner: Callable[[str], Owner],
) -> Orphans:
    """Pure. `own` is the table's location."""
    files = list(files)
    foreign = _tables_inside(files, own)
    removable: list[TableFile] = []
    young = of_live = of_unknown = of_others = 0
    owners: dict[str, Owner] = {}
    for found in files:
        if (_sidecar_of(found.path) or found.path) in reachable:
            continue
        if foreign and comparable(found.path).startswith(foreign):
            of_others += 1
            continue
        process = process_of(found.path)
        if process is not None and process not in owners:
            owners[process] = owner(process)
        whose = Owner.ENDED if process is None else owners[process]
        if whose is Owner.UNKNOWN:
            of_unknown += 1
        elif whose is Owner.LIVE:
            of_live += 1
        elif whose is Owner.OTHERS:
            of_others += 1
        elif found.modified_at >= older_than:
            young += 1
        else:
            removable.append(found)
    return Orphans(
        removable=tuple(removable),
        young=young,
        of_live=of_live,
        of_unknown=of_unknown,
        of_others=of_others,
        looked_at=len(files),
    )


def _tables_inside(files: Iterable[TableFile], own: str) -> tuple[str, ...]:
    """Folders of other tables below this one: whatever is in them is theirs."""
    mine = comparable(own).rstrip("/")
    bases = {comparable(match.group(1)) for found in files if (match := _METADATA_FILE.match(found.path))}
    return tuple(f"{base}/" for base in bases - {mine})
