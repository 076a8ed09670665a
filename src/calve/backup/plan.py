"""The plan of a backup, every part to be stored, once, in tasks of one table each; and its tasks' receipts.

The plan is written after the freezes and before the first copy, and never changed. It names no secret. A
receipt says where each part is, and gives the hash of its index, which names every file with its size and
checksum.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from calve.archive.location import Key, Location
from calve.archive.manifest import Manifest, PartEntry, damaged
from calve.archive.vault import BrokenSeal, Vault
from calve.backup.frozen import Frozen
from calve.model.errors import DamagedError, NotFoundError
from calve.model.record import Record

PARTS_A_TASK = 500


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One content to be stored; parts that are equal share it."""

    address: str
    path: str  # of the frozen part's folder
    bytes: int
    rows: int
    objects: str = ""  # in place of a path: the listing of its objects (`outline.PartObjects`)


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """A part that is stored already: by a backup that stands, or by the process that this one retries."""

    place: str
    index_sha256: str
    key: str  # of that backup; "" for what was adopted


@dataclass(frozen=True, kw_only=True)
class PinSpan:
    """The tasks that read a pin: from `first`, before `end`."""

    pin: str
    first: int
    end: int


@dataclass(frozen=True, kw_only=True)
class BackupPlan(Record):
    process_id: str
    key: str  # of the manifest to be
    location: str
    location_id: str
    manifest: str  # JSON, without places; encrypted if the backup is, because it may hold secrets
    uploads: tuple[Upload, ...]
    tasks: tuple[tuple[int, int], ...]  # ranges of uploads
    pins: tuple[PinSpan, ...]
    reuse: Mapping[str, Reuse] = field(default_factory=dict)  # by address
    bytes: int = 0  # of all uploads: what progress is measured by
    version: int = 1

    @property
    def backup_key(self) -> Key:
        return Key.parse(self.key)

    def draft(self, vault: Vault) -> Manifest:
        try:
            text = vault.open_text(self.manifest, draft_context(self.process_id))
        except BrokenSeal as error:
            raise damaged("the plan's manifest", str(error)) from None
        return Manifest.from_json(text, "the plan's manifest")

    @property
    def spent_pins(self) -> tuple[str, ...]:
        return tuple(span.pin for span in self.pins if span.first == span.end)


def draft_context(process_id: str) -> str:
    return f"plan of {process_id}"


def divide(
    frozen: Sequence[tuple[str, Frozen]], *, task_bytes_mb: int
) -> tuple[tuple[Upload, ...], tuple[tuple[int, int], ...], tuple[PinSpan, ...]]:
    """Uploads, tasks and spans of `(pin, what it holds)`. A task reads one pin, so that a pin is
    needed no longer once its tasks are done; a content that several tables have is stored from the
    first of them."""
    uploads: list[Upload] = []
    tasks: list[tuple[int, int]] = []
    spans: list[PinSpan] = []
    seen: set[str] = set()
    for pin, one in frozen:
        first = len(tasks)
        mine = list(_new(one, seen))
        tasks += _ranges(mine, len(uploads), max(1, task_bytes_mb) * 1_000_000)
        uploads += mine
        spans.append(PinSpan(pin=pin, first=first, end=len(tasks)))
    return tuple(uploads), tuple(tasks), tuple(spans)


def _new(one: Frozen, seen: set[str]) -> Iterable[Upload]:
    parts = one.table.parts if one.table else ()
    listings = one.objects or ("",) * len(parts)
    for part, path, objects in zip(parts, one.paths, listings, strict=True):
        if part.address not in seen:
            seen.add(part.address)
            yield Upload(address=part.address, path=path, bytes=part.bytes, rows=part.rows, objects=objects)


def _ranges(uploads: Sequence[Upload], offset: int, budget: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    start, held = 0, 0
    for at, upload in enumerate(uploads):
        if at > start and (held + upload.bytes > budget or at - start >= PARTS_A_TASK):
            ranges.append((offset + start, offset + at))
            start, held = at, 0
        held += upload.bytes
    if uploads:
        ranges.append((offset + start, offset + len(uploads)))
    return ranges


def placed(draft: Manifest, places: Mapping[str, tuple[str, str]], *, moved_bytes: int) -> Manifest:
    """The manifest with every part's place and its index's hash, by address."""

    def put(part: PartEntry) -> PartEntry:
        place, digest = places[part.address]
        return replace(part, place=place, index_sha256=digest)

    tables = tuple(replace(table, parts=tuple(map(put, table.parts))) for table in draft.tables)
    return replace(draft, tables=tables, moved_bytes=moved_bytes)


@dataclass(frozen=True, kw_only=True)
class PartReceipt:
    address: str
    place: str
    index_sha256: str
    bytes: int
    moved: bool  # stored by this attempt; otherwise it was there


@dataclass(frozen=True, kw_only=True)
class BackupReceipt(Record):
    process_id: str
    task: int
    attempt: int
    parts: tuple[PartReceipt, ...]
    rows: int
    bytes: int  # of all parts, moved or not
    moved_bytes: int
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)  # of these, by phase
    version: int = 1


def declare_intent(location: Location, uri: str, key: Key, addresses: Sequence[str]) -> None:
    """Twice is harmless."""
    text = json.dumps({"key": str(key), "addresses": sorted(addresses)})
    # if we die here, some contents are kept for a backup that may never be: until it is decided
    location.storage.put_if_absent(uri, text.encode())


def intended(location: Location) -> frozenset[str]:
    """The addresses that undecided backups rely on. To be read before the manifests are: a backup
    that is decided in between is found there."""
    addresses: set[str] = set()
    undecided: dict[str, bool] = {}
    for uri in location.storage.list(location.all_under_way):
        if not uri.rsplit("/", 1)[-1].startswith("intent-"):
            continue
        try:
            intent = json.loads(location.storage.read(uri))
            text, key = str(intent["key"]), Key.parse(str(intent["key"]))
            named = [str(address) for address in intent["addresses"]]
        except NotFoundError:
            continue  # its backup was decided since the listing
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamagedError(
                f"{uri} is damaged: what a backup under way relies on is not known, so nothing is deleted",
                code="backup_damaged",
                hint=f"once no backup is under way, delete {uri}",
            ) from None
        if text not in undecided:
            undecided[text] = _is_undecided(location, key)
        if undecided[text]:
            addresses.update(named)
    return frozenset(addresses)


def _is_undecided(location: Location, key: Key) -> bool:
    exists = location.storage.exists
    return not exists(location.manifest(key)) and not exists(location.mark(key))
