"""The layout of a backup location: the one place that names its objects.

    calve-location.json                    the location's own identity, made with the first backup
    backups/<name>@<n>.json                the manifest, put last; or a tombstone in its place
    backups/<name>@<n>.deleted.json        the mark of a delete
    parts/<process>/<task>-<attempt>/<address>.json     a stored part's index, put after its files
    parts/<process>/<task>-<attempt>/<address>/<k>      its files, by number
    under-way/<process>/…                  intents and receipts of a backup under way

Nothing is ever overwritten: a process and an attempt are in the name of whatever they write, and
`n` counts what a name was used for, so that a late put of a backup that was given up or deleted
meets a name that is taken.

The address of a part: a hash of its files, so that equal content is stored once and another
content under the same part name is never taken for it (P17). Where the location is encrypted, the
hash is keyed (`vault`), and manifests, indexes and files are sealed under the same names.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from calve.archive.vault import Vault
from calve.model.errors import DamagedError, NotFoundError, PermanentError, UsageError
from calve.objects.storage import Storage

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLACE = re.compile(r"[a-z0-9]{1,64}/\d{1,10}-\d{1,10}/[0-9a-f]{40}")
_KEY = re.compile(r"(?P<name>[^@/]+)@(?P<number>\d+)(?P<deleted>\.deleted)?\.json")


def checked_name(name: str) -> str:
    """A backup's name, if it can be one: it becomes part of an object's name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid backup name {name!r}",
            code="backup_name",
            hint="use letters, digits, dots, dashes and underscores, at most 100: nightly-2026-01-31",
        )
    return name


def segment(name: str) -> str:
    """A name out of a manifest, an index or a receipt that becomes one segment of a path. Whoever can
    write to the location can write anything there: a name never leads out of its folder (T9)."""
    if not isinstance(name, str) or name in ("", ".", "..") or re.search(r"[/\\\0]", name):
        raise _unsafe(name)
    return name


def _place(place: str) -> str:
    """The place of a stored part, as this module makes them."""
    if not isinstance(place, str) or not _PLACE.fullmatch(place):
        raise _unsafe(place)
    return place


def _unsafe(name: object) -> PermanentError:
    return DamagedError(
        f"the backup is damaged: unsafe name {name!r}",
        code="backup_damaged",
        hint="Calve never writes such a name: find out who changed the backup before you use it",
    )


class LocationChangedError(PermanentError):
    """The location was emptied or replaced since the work began."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """The `number`-th use of a backup's name."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Key":
        name, _, number = text.rpartition("@")
        return cls(name=name, number=int(number))


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys that the location has: manifests (or tombstones), and marks of deletes."""

    decided: frozenset[Key]
    marked: frozenset[Key]

    @property
    def standing(self) -> frozenset[Key]:
        return self.decided - self.marked

    def next_of(self, name: str) -> Key:
        used = [key.number for key in self.decided | self.marked if key.name == name]
        return Key(name=name, number=max(used, default=0) + 1)


class Location:
    """A folder or a prefix of a bucket."""

    def __init__(self, url: str, storage: Storage, *, signing_key: str = "") -> None:
        self.url = url.rstrip("/")
        self.storage = storage
        self.vault = Vault.of(storage.properties)  # how what is stored is sealed
        self.signing_key = signing_key  # of manifests; "" where they are not signed

    def name(self, uri: str) -> str:
        """Of an object, below the location: what its seal is bound to, wherever the location is copied."""
        return uri.removeprefix(f"{self.url}/")

    def manifest(self, key: Key) -> str:
        return f"{self.url}/backups/{key}.json"

    def mark(self, key: Key) -> str:
        return f"{self.url}/backups/{key}.deleted.json"

    def index(self, place: str) -> str:
        return f"{self.url}/parts/{_place(place)}.json"

    def files(self, place: str) -> str:
        return f"{self.url}/parts/{_place(place)}"

    def parts_of(self, process_id: str) -> str:
        return f"{self.url}/parts/{segment(process_id)}"

    @property
    def all_under_way(self) -> str:
        return f"{self.url}/under-way"

    def under_way(self, process_id: str) -> str:
        return f"{self.url}/under-way/{segment(process_id)}"

    def intent(self, process_id: str, task: int, attempt: int) -> str:
        return f"{self.under_way(process_id)}/intent-{task}-{attempt}.json"

    def objects(self, process_id: str, pin: str, number: int) -> str:
        """Where the files of a pinned part are, while its backup is under way."""
        return f"{self.under_way(process_id)}/objects-{segment(pin)}-{number}.json"

    def receipt(self, process_id: str, task: int, attempt: int) -> str:
        return f"{self.under_way(process_id)}/receipt-{task}-{attempt}.json"

    def keys(self) -> Keys:
        """One listing. Whatever is not named as ours is left alone."""
        decided: set[Key] = set()
        marked: set[Key] = set()
        for uri in self.storage.list(f"{self.url}/backups"):
            found = _KEY.fullmatch(uri.rsplit("/", 1)[-1])
            if found is not None:
                key = Key(name=found["name"], number=int(found["number"]))
                (marked if found["deleted"] else decided).add(key)
        return Keys(decided=frozenset(decided), marked=frozenset(marked))

    # -- identity -----------------------------------------------------------------------------------

    def identity(self) -> str:
        """What makes this location itself: a bucket that was emptied and filled anew is another one,
        and nothing that was written to the first stands there (P15). NotFoundError before the
        first backup."""
        data = self.storage.read(f"{self.url}/calve-location.json")
        try:
            return str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PermanentError(
                f"{self.url}/calve-location.json is damaged",
                code="location_damaged",
                hint="restore that object from the storage's versions, or use another [backup] url",
            ) from None

    def made_identity(self) -> str:
        """The identity, made if there is none. Racing callers get the same."""
        try:
            return self.identity()
        except NotFoundError:
            fresh = json.dumps({"id": secrets.token_hex(16), "made_by": "calve"}).encode()
            # if we die here, the location has an identity and no backup yet
            self.storage.put_if_absent(f"{self.url}/calve-location.json", fresh)
            return self.identity()

    def refuse_another(self, identity: str) -> None:
        """LocationChangedError if this is not the location that a plan was made for."""
        try:
            found = self.identity()
        except NotFoundError:
            found = "none"
        if found != identity:
            raise LocationChangedError(
                f"{self.url} is no longer the location this work began with: it was emptied or replaced",
                code="location_changed",
                hint="start again: what was written before may be lost",
            )


DESCRIPTIONS = frozenset({".txt", ".json"})
ADDRESS_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class PartFile:
    """One file below a part's folder, projections' included."""

    name: str  # relative, with "/"
    path: Path
    bytes: int

    @property
    def never_changes(self) -> bool:
        """Columns, marks and indexes are written once; ClickHouse may rewrite descriptions."""
        return PurePosixPath(self.name).suffix not in DESCRIPTIONS


def part_files(part: Path) -> list[PartFile]:
    """Every file, by name."""
    try:
        found = [
            PartFile(name=path.relative_to(part).as_posix(), path=path, bytes=path.stat().st_size)
            for path in _walk(part)
        ]
    except OSError as error:
        raise _unreadable(part, error) from None
    return sorted(found, key=lambda file: file.name)


def address_of(part: Path) -> str:
    listed = []
    for file in part_files(part):
        described = ""
        if file.path.suffix in DESCRIPTIONS:
            try:
                described = hashlib.sha256(file.path.read_bytes()).hexdigest()
            except OSError as error:
                raise _unreadable(part, error) from None
        listed.append([file.name, file.bytes, described])
    if not any(name == "checksums.txt" for name, _, _ in listed):
        raise PermanentError(
            f"part {part} has no checksums.txt: it is damaged, or from a ClickHouse older than backups know",
            code="part_unreadable",
            hint="run CHECK TABLE at the source",
        )
    text = json.dumps(listed, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ADDRESS_LENGTH]


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry)
        else:
            yield entry


def _unreadable(part: Path, error: OSError) -> PermanentError:
    return PermanentError(
        f"part {part} cannot be read: {error.strerror} ({Path(error.filename or '').name})",
        code="part_unreadable",
        hint="give the user that runs Calve read access to the source's files, at the same path",
    )
