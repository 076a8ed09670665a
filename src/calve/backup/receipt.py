"""What a finished attempt of a backup leaves: where each part is, and the hash of its index, which
names every file with its size and checksum."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from calve.archive.location import Key, Location
from calve.model.errors import DamagedError, NotFoundError
from calve.model.record import Record


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
            key = str(intent["key"])
            named = [str(address) for address in intent["addresses"]]
        except NotFoundError:
            continue  # its backup was decided since the listing
        except (ValueError, KeyError, TypeError):
            raise DamagedError(
                f"{uri} is damaged: what a backup under way relies on is not known, so nothing is deleted",
                code="backup_damaged",
                hint=f"once no backup is under way, delete {uri}",
            ) from None
        if key not in undecided:
            undecided[key] = _is_undecided(location, Key.parse(key))
        if undecided[key]:
            addresses.update(named)
    return frozenset(addresses)


def _is_undecided(location: Location, key: Key) -> bool:
    exists = location.storage.exists
    return not exists(location.manifest(key)) and not exists(location.mark(key))
