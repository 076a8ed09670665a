"""Proving a backup: every object is there, whole, and, as far as it is read, bit for bit as written."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from calve.kinds.backup.location import Location
from calve.kinds.backup.manifest import Manifest, PartEntry
from calve.kinds.backup.stored import PartIndex, Problem, StoredFile, check_sizes, read_index, read_object
from calve.model.errors import NotFoundError, PermanentError

PARTS_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """A problem, and whose it is."""

    problem: Problem
    tables: tuple[str, ...]
    part: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    name: str
    parts: int
    objects: int
    bytes: int
    read_bytes: int  # that were read back and compared
    flaws: tuple[Flaw, ...] = field(default=())

    @property
    def whole(self) -> bool:
        return not self.flaws


def verify(location: Location, manifest: Manifest, *, read_share: float = 0.0) -> Verified:
    """Presence, sizes and all hashes of indexes; of the data, `read_share` (0 to 1) of the objects,
    drawn anew each time."""
    tables: dict[str, list[str]] = {}
    for table in manifest.tables:
        for part in table.parts:
            tables.setdefault(part.place, []).append(f"{table.database}.{table.name}")
    parts = list(manifest.places.values())
    foreign = _foreign(location, manifest)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        looks = list(pool.map(lambda part: _look(location, part, read_share), parts))
    flaws = [
        Flaw(problem=problem, tables=tuple(dict.fromkeys(tables[part.place])), part=part.name)
        for part, look in zip(parts, looks, strict=True)
        for problem in look.problems
    ]
    return Verified(
        name=manifest.name,
        parts=len(parts),
        objects=sum(look.objects for look in looks),
        bytes=sum(part.bytes for part in parts),
        read_bytes=sum(look.read_bytes for look in looks),
        flaws=(*foreign, *flaws),
    )


@dataclass(frozen=True, kw_only=True)
class _Look:
    problems: tuple[Problem, ...]
    objects: int = 0
    read_bytes: int = 0


def _look(location: Location, part: PartEntry, read_share: float) -> _Look:
    try:
        index = read_index(location, part.place, part.address, part.index_sha256)
    except PermanentError as error:
        if error.code != "backup_damaged":
            raise
        return _Look(problems=(Problem(object=location.index(part.place), what=_reason(error)),), objects=1)
    problems = list(check_sizes(location, part.place, index))
    drawn = _drawn(index, read_share)
    with tempfile.TemporaryDirectory(prefix="calve-verify-") as folder:
        problems += _read(location, part, drawn, Path(folder), {one.object for one in problems})
    objects = 1 + sum(file.object is not None for file in index.files)
    return _Look(problems=tuple(problems), objects=objects, read_bytes=sum(file.bytes for file in drawn))


def _read(
    location: Location, part: PartEntry, files: Sequence[StoredFile], folder: Path, told: set[str]
) -> Iterator[Problem]:
    for file in files:
        problem = read_object(location, part.place, file, folder)
        if problem is not None and problem.object not in told:
            yield problem


def _drawn(index: PartIndex, share: float) -> list[StoredFile]:
    """Objects to read back. What is inside of the index was compared with it."""
    draw = random.SystemRandom().random
    return [file for file in index.files if file.object is not None and draw() < share]


def _foreign(location: Location, manifest: Manifest) -> tuple[Flaw, ...]:
    """A manifest that was copied here, or that outlived its location (P15)."""
    try:
        found = location.identity()
    except NotFoundError:
        found = "none"
    if found == manifest.location_id:
        return ()
    what = "the manifest was written to another location, or this one was emptied since"
    where = f"{location.url}/backups/{manifest.name}@{manifest.number}.json"
    return (Flaw(problem=Problem(object=where, what=what), tables=(), part=""),)


def _reason(error: PermanentError) -> str:
    return error.message.rpartition(": ")[2]
