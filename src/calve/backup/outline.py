"""The outline of a part whose files are objects of a bucket: a folder with the part's names and sizes, in which only
the descriptions (`*.txt`, `*.json`) have their bytes. It has the part's address, rows and columns, and costs a few small
reads. Data comes file by file, when it is stored, so that an executor needs room for a few files and not for parts.

What the source told of a part is checked against the part's own checksums: each file must have an object of its size,
and a file without a byte, which has no object, is known from there alone.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from calve.archive.location import DESCRIPTIONS, Location, PartFile
from calve.archive.parts import Bring
from calve.archive.vault import is_sealed
from calve.clickhouse.engine import folders
from calve.clickhouse.parts import checksums
from calve.clickhouse.parts.links import FileObject
from calve.model.errors import CalveError, DamagedError, NotFoundError, PermanentError
from calve.model.record import Record
from calve.objects.storage import Storage
from calve.objects.uri import Uri

T = TypeVar("T")

_MOST_BYTES = 1 << 31
_CHECKSUMS = "checksums.txt"


@dataclass(frozen=True, kw_only=True)
class PartObjects(Record):
    """Every file of a part, those without a byte too. Kept beside a backup under way, not in its plan: a table of many
    columns and parts has millions."""

    files: tuple[FileObject, ...]

    def put(self, location: Location, uri: str) -> None:
        """Names of columns are among them: sealed as all that a backup stores is."""
        data = self.to_json().encode()
        if location.vault.seals:
            data = b"".join(location.vault.seal([data], location.name(uri)))
        # if we die here, a small object is left that goes with the process's others
        location.storage.put_if_absent(uri, data)

    @classmethod
    def get(cls, location: Location, uri: str) -> "PartObjects":
        data = location.storage.read(uri)
        if is_sealed(data):
            data = b"".join(location.vault.open([data], location.name(uri), most=_MOST_BYTES))
        return cls.from_json(data.decode())


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """The buckets of the source's disks, each with keys of its own."""

    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)  # by place
    connect_seconds: float = 5.0
    call_seconds: float = 15.0
    _opened: dict[str, Storage] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, file: FileObject) -> bytes:
        if not file.bytes:
            return b""
        data = self._asked(file, lambda storage: storage.read(file.uri))
        _refuse_size(file, len(data))
        return data

    def download(self, file: FileObject, target: Path) -> None:
        if not file.bytes:
            target.touch()
            return
        self._asked(file, lambda storage: storage.download(file.uri, target))
        _refuse_size(file, target.stat().st_size)

    def _asked(self, file: FileObject, act: Callable[[Storage], T]) -> T:
        place = Uri.parse(file.uri).place
        if place not in self._opened:
            self._opened[place] = Storage(
                dict(self.properties.get(place, {})),
                connect_seconds=self.connect_seconds,
                call_seconds=self.call_seconds,
            )
        try:
            return act(self._opened[place])
        except NotFoundError:
            raise _not_there(file) from None


def outline(buckets: Buckets, files: tuple[FileObject, ...], folder: Path) -> PartObjects:
    """Make the part's outline in a new folder; all of its files."""
    found = {file.name: file for file in files}
    for file in files:
        _refuse_unsafe(file.name)
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix in DESCRIPTIONS:
            target.write_bytes(buckets.read(file))
        else:
            with target.open("wb") as hole:
                os.truncate(hole.fileno(), file.bytes)
    for name in [name for name in found if PurePosixPath(name).name == _CHECKSUMS]:
        below = PurePosixPath(name).parent
        for inner, size in checksums.sizes((folder / name).read_bytes()).items():
            whole = str(below / inner)
            _refuse_unsafe(whole)
            if (folder / whole).is_dir():
                continue  # a projection, which has checksums of its own
            if whole not in found and not size:
                (folder / whole).touch()
                found[whole] = FileObject(name=whole, bytes=0, uri="")
            _refuse_other(whole, found.get(whole), size)
    return PartObjects(files=tuple(sorted(found.values(), key=lambda file: file.name)))


def bringing(buckets: Buckets, listed: PartObjects, room: Path) -> Bring:
    """How the files of an outline are had, one at a time and for a moment each."""
    objects = {file.name: file for file in listed.files}

    @contextmanager
    def bring(file: PartFile) -> Iterator[Path]:
        if not file.never_changes or not file.bytes:
            yield file.path  # the outline has it
            return
        target = room / secrets.token_hex(8)
        try:
            buckets.download(objects[file.name], target)
            yield target
        finally:
            target.unlink(missing_ok=True)

    return bring


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that ends with the block, or with this process."""
    made = folders.make()
    try:
        yield made.path
    finally:
        made.remove()


def _refuse_unsafe(name: str) -> None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in name:
        raise DamagedError(f"the source names a file {name!r} in a part", code="part_unreadable")


def _refuse_size(file: FileObject, size: int) -> None:
    if size != file.bytes:
        raise PermanentError(
            f"{file.uri} has {size} bytes where the server says {file.bytes} (file {file.name})",
            code="object_differs",
            hint="is that the bucket of this very disk? See disks under [source.…], and run CHECK TABLE at the source",
        )


def _refuse_other(name: str, file: FileObject | None, size: int) -> None:
    if file is None or file.bytes != size:
        told = "no object" if file is None else f"an object of {file.bytes} bytes"
        raise PermanentError(
            f"the server names {told} for file {name} of a part, whose checksums say {size} bytes",
            code="object_differs",
            hint="run CHECK TABLE at the source",
        )


def _not_there(file: FileObject) -> CalveError:
    return PermanentError(
        f"{file.uri} is not there (file {file.name} of a part)",
        code="object_missing",
        hint="is that the bucket of this very disk? See disks under [source.…], and run CHECK TABLE at the source",
    )
