"""Proving a backup: every object is there, whole, and, as far as it is read, bit for bit as written."""

import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from calve.archive.location import Location
from calve.archive.manifest import Manifest, PartEntry
from calve.archive.parts import Problem, StoredFile, check_sizes, read_index, read_object
from calve.model.errors import DamagedError, NotFoundError, PermanentError

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
    process_id: str  # that made it, in the store where it was made
    parts: int
    objects: int
    bytes: int
    read_bytes: int  # that were read back and compared
    flaws: tuple[Flaw, ...] = field(default=())

    @property
    def whole(self) -> bool:
        return not self.flaws


def verify(
    location: Location,
    manifest: Manifest,
    *,
    read_share: float = 0.0,
    parts: slice = slice(None),
    folder: Path | None = None,
) -> Verified:
    """Presence, sizes and all hashes of indexes; of the data, `read_share` (0 to 1) of the bytes, drawn
    anew each time. `parts`: these of the stored parts alone. `folder`: where what is read back
    lies for a moment, if not in the temporary folder."""
    tables: dict[str, list[str]] = {}
    for table in manifest.tables:
        for part in table.parts:
            tables.setdefault(part.place, []).append(f"{table.database}.{table.name}")
    chosen = list(manifest.places.values())[parts]
    foreign = _foreign(location, manifest)
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        looks = list(pool.map(lambda part: _look(location, part), chosen))
        drawn = _drawn(list(zip(chosen, looks, strict=True)), read_share)
        read = list(pool.map(lambda item: _read(location, folder, *item), drawn))
    found: dict[str, list[Problem]] = {
        part.place: list(look.problems) for part, look in zip(chosen, looks, strict=True)
    }
    for (part, _), problem in zip(drawn, read, strict=True):
        told = {one.object for one in found[part.place]}
        found[part.place] += [problem] if problem is not None and problem.object not in told else []
    flaws = [
        Flaw(problem=problem, tables=tuple(dict.fromkeys(tables[part.place])), part=part.name)
        for part in chosen
        for problem in found[part.place]
    ]
    return Verified(
        name=manifest.name,
        process_id=manifest.process_id,
        parts=len(chosen),
        objects=sum(look.objects for look in looks),
        bytes=sum(part.bytes for part in chosen),
        read_bytes=sum(file.bytes for _, file in drawn),
        flaws=(*foreign, *flaws),
    )


@dataclass(frozen=True, kw_only=True)
class _Look:
    problems: tuple[Problem, ...]
    objects: int = 0
    files: tuple[
        StoredFile, ...
    ] = ()  # that are objects of their own; the others were compared with the index


def _look(location: Location, part: PartEntry) -> _Look:
    try:
        index = read_index(location, part.place, part.address, part.index_sha256)
    except DamagedError as error:
        return _Look(problems=(Problem(object=location.index(part.place), what=_reason(error)),), objects=1)
    files = tuple(file for file in index.files if file.object is not None)
    return _Look(
        problems=tuple(check_sizes(location, part.place, index)), objects=1 + len(files), files=files
    )


def _drawn(looks: Sequence[tuple[PartEntry, _Look]], share: float) -> list[tuple[PartEntry, StoredFile]]:
    """Objects to read back, at random, until their bytes are that share of all: of a few, at least one."""
    files = [(part, file) for part, look in looks for file in look.files]
    wanted = share * sum(file.bytes for _, file in files)
    random.SystemRandom().shuffle(files)
    drawn: list[tuple[PartEntry, StoredFile]] = []
    for item in files:
        if wanted <= 0:
            break
        drawn.append(item)
        wanted -= item[1].bytes
    return drawn


def _read(location: Location, above: Path | None, part: PartEntry, file: StoredFile) -> Problem | None:
    with tempfile.TemporaryDirectory(prefix="calve-verify-", dir=above) as folder:
        return read_object(location, part.place, file, Path(folder))


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
