"""A stored part: its files as objects, and an index that names each with its size and hash.

The index is put after the last file, so a part whose index is there is whole. Files of a few
bytes, of which a part has many, are kept inside of the index: one object in place of a dozen.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from calve.archive.location import Location, PartFile, address_of, part_files
from calve.archive.manifest import PartEntry
from calve.archive.vault import CHUNK_BYTES, BrokenSeal, KeyMissingError, is_sealed
from calve.model.codec import decode
from calve.model.errors import CalveError, DamagedError, NotFoundError, PermanentError
from calve.model.record import Record

INLINE_BYTES = 4096
FILES_AT_ONCE = 4
_MOST_INDEX_BYTES = 1 << 31
Bring = Callable[[PartFile], AbstractContextManager[Path]]
PARTS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    name: str  # below the part's folder
    bytes: int
    sha256: str
    object: int | None = None  # its number; None when it is inside of the index
    data: str = ""  # base64
    stored: int | None = None  # bytes of the object, where it is sealed; None where it is as the file is

    def __post_init__(self) -> None:
        """An index is data from outside: its names never lead out of the part's folder (T9)."""
        pure = PurePosixPath(self.name)
        numbered = self.object is None or (type(self.object) is int and self.object >= 0)
        if self.stored is not None and (type(self.stored) is not int or self.stored < 0):
            numbered = False
        if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in self.name or not numbered:
            raise DamagedError(
                f"the backup is damaged: unsafe file {self.name!r} (object {self.object!r}) in a part's index",
                code="backup_damaged",
                hint="Calve never writes such a name: find out who changed the backup before you use it",
            )


@dataclass(frozen=True, kw_only=True)
class PartIndex(Record):
    address: str
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Where a part went."""

    place: str
    index_sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One object that is not as it should be."""

    object: str
    what: str  # "missing", "short", …

    def __str__(self) -> str:
        return f"{self.object}: {self.what}"


@contextmanager
def pools() -> Iterator[tuple[Executor, Executor]]:
    """For the parts of a task, and for their files: however many parts there are, so many files are on
    their way at once, and memory is bounded with them."""
    with ThreadPoolExecutor(PARTS_AT_ONCE) as parts, ThreadPoolExecutor(FILES_AT_ONCE) as files:
        yield parts, files


@contextmanager
def _at_hand(file: PartFile) -> Iterator[Path]:
    yield file.path


def store(
    location: Location,
    part: Path,
    address: str,
    generation: str,
    pool: Executor,
    *,
    hard_links: bool = False,
    bring: Bring = _at_hand,
) -> Stored:
    """Copy or link a part's files, then put its index. `generation` is this attempt's own: nobody else
    writes there, and nothing that is there is ever changed. `bring` has a file's bytes for a moment."""
    place = f"{generation}/{address}"
    files = part_files(part)
    large = [file for file in files if file.bytes > INLINE_BYTES]
    # if we die here, some objects are left without an index: nothing refers to them, and undoing the
    # process removes them
    numbers = range(len(large))

    def upload(number: int) -> StoredFile:
        with bring(large[number]) as path:
            return _upload(location, place, number, replace(large[number], path=path), hard_links)

    def inlined(file: PartFile) -> StoredFile:
        with bring(file) as path:
            return _inlined(replace(file, path=path))

    kept = list(pool.map(upload, numbers))
    location.storage.flush([_object(location, place, number) for number in numbers])
    kept += pool.map(inlined, (file for file in files if file.bytes <= INLINE_BYTES))
    plain = address_of(part)
    if location.vault.address(plain) != address and location.vault.was_address(address, plain):
        raise PermanentError(
            "[backup] encryption_key was changed while this backup was under way",
            code="backup_key_changed",
            hint="run the command again: it starts over with the key that is configured now",
        )
    if location.vault.address(plain) != address:
        raise PermanentError(
            f"part {part} is not the one that was planned: its files have changed",
            code="part_changed",
            hint="a freeze never changes: check the disk, then run the backup again",
        )
    index = PartIndex(address=address, files=tuple(sorted(kept, key=lambda file: file.name)))
    data = index.to_json().encode()
    if location.vault.seals:
        data = b"".join(location.vault.seal([data], location.name(location.index(place))))
    # if we die here, the index is there or not; another attempt stores the part elsewhere
    location.storage.put_if_absent(location.index(place), data)
    return Stored(place=place, index_sha256=hashlib.sha256(data).hexdigest(), bytes=index.bytes)


def _upload(location: Location, place: str, number: int, file: PartFile, hard_links: bool) -> StoredFile:
    uri = _object(location, place, number)
    if location.vault.seals:
        return _sealed(location, uri, number, file)
    if hard_links and file.never_changes:
        location.storage.link(file.path, uri)
    else:
        location.storage.upload(file.path, uri, flush=False)
    digest = _sha256_of(file.path)
    return StoredFile(name=file.name, bytes=file.bytes, sha256=digest, object=number)


def _sealed(location: Location, uri: str, number: int, file: PartFile) -> StoredFile:
    """One pass over the file: hashed, compressed, encrypted and sent, a chunk at a time."""
    digest, sizes = hashlib.sha256(), [0, 0]

    def pieces() -> Iterator[bytes]:
        nonlocal digest
        digest, sizes[:] = hashlib.sha256(), [0, 0]
        for piece in location.vault.seal(plain(), location.name(uri)):
            sizes[1] += len(piece)
            yield piece

    def plain() -> Iterator[bytes]:
        for piece in _pieces(file.path):
            digest.update(piece)
            sizes[0] += len(piece)
            yield piece

    location.storage.write(pieces, uri, flush=False)
    return StoredFile(
        name=file.name, bytes=sizes[0], sha256=digest.hexdigest(), object=number, stored=sizes[1]
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _object(location: Location, place: str, number: int) -> str:
    return f"{location.files(place)}/{number}"


def _inlined(file: PartFile) -> StoredFile:
    data = file.path.read_bytes()
    return StoredFile(
        name=file.name,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        data=base64.b64encode(data).decode(),
    )


def read_index(location: Location, place: str, address: str, index_sha256: str) -> PartIndex:
    """DamagedError names the object that is not as it was written."""
    where = location.index(place)
    try:
        data = location.storage.read(where)
    except NotFoundError:
        raise _damaged(Problem(object=where, what="missing")) from None
    if hashlib.sha256(data).hexdigest() != index_sha256:
        raise _damaged(Problem(object=where, what="its content does not match its checksum"))
    try:
        if is_sealed(data):
            data = b"".join(location.vault.open([data], location.name(where), most=_MOST_INDEX_BYTES))
        index = decode(PartIndex, json.loads(data))
    except (BrokenSeal, ValueError) as error:
        raise _damaged(Problem(object=where, what=f"it does not read as an index ({error})")) from None
    if index.address != address:
        raise _damaged(Problem(object=where, what="it is the index of another part"))
    return index


def check_sizes(location: Location, place: str, index: PartIndex) -> Iterator[Problem]:
    """Objects of a part that are missing or of another size. One listing."""
    found = location.storage.sizes(location.files(place))
    for file in index.files:
        if file.object is None:
            continue
        where = _object(location, place, file.object)
        size = found.get(where)
        if size is None:
            yield Problem(object=where, what=f"missing (file {file.name})")
        elif size != (expected := file.bytes if file.stored is None else file.stored):
            yield Problem(object=where, what=f"{size} bytes where {expected} were written (file {file.name})")


def refuse_damaged(location: Location, part: PartEntry) -> PartIndex:
    """The index of a part all of whose objects are there in their sizes."""
    index = read_index(location, part.place, part.address, part.index_sha256)
    for problem in check_sizes(location, part.place, index):
        raise _damaged(problem)
    return index


def fetch(location: Location, part: PartEntry, folder: Path) -> int:
    """Put a part's files into a new folder, every byte checked; the bytes. What fails leaves a folder
    that is not whole: give it a name that nobody takes for whole."""
    index = read_index(location, part.place, part.address, part.index_sha256)
    # if we die here, the folder is left unfinished; another attempt uses another
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for problem in pool.map(lambda file: _download(location, part.place, file, folder), index.files):
            if problem is not None:
                raise _damaged(problem)
    return index.bytes


def read_object(location: Location, place: str, file: StoredFile, folder: Path) -> Problem | None:
    """Read one object back and compare its hash; nothing is kept."""
    target = folder / "object"
    problem = _download_to(location, place, file, target)
    target.unlink(missing_ok=True)
    return problem


def _download(location: Location, place: str, file: StoredFile, folder: Path) -> Problem | None:
    target = folder / PurePosixPath(file.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    return _download_to(location, place, file, target)


def _download_to(location: Location, place: str, file: StoredFile, target: Path) -> Problem | None:
    if file.object is None:
        target.write_bytes(base64.b64decode(file.data))
        where = location.index(place)
    else:
        where = _object(location, place, file.object)
        try:
            if file.stored is None:
                location.storage.download(where, target)
            else:
                _unseal(location, where, file, target)
        except NotFoundError:
            return Problem(object=where, what=f"missing (file {file.name})")
        except (BrokenSeal, KeyMissingError) as broken:
            return Problem(object=where, what=f"{broken} (file {file.name})")
    size = target.stat().st_size
    if size != file.bytes:
        return Problem(object=where, what=f"{size} bytes where {file.bytes} were written (file {file.name})")
    if _sha256_of(target) != file.sha256:
        return Problem(object=where, what=f"its content does not match its checksum (file {file.name})")
    return None


def _unseal(location: Location, where: str, file: StoredFile, target: Path) -> None:
    sealed = target.with_name(f"{target.name}.calve-sealed")
    try:
        # if we die here, the folder is left unfinished, as with any other file
        location.storage.download(where, sealed)
        with target.open("wb") as out:
            out.writelines(location.vault.open(_pieces(sealed), location.name(where), most=file.bytes))
    finally:
        sealed.unlink(missing_ok=True)


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(problem: Problem) -> CalveError:
    return DamagedError(
        f"the backup is damaged: {problem}",
        code="backup_damaged",
        hint="calve backup verify NAME --read-data 100% lists everything that is",
    )
