"""Intents: a backup under way says which contents it relies on, before it skips storing one (D9).

A create puts its intent and only then looks whether the backup that has the part still stands. A
delete puts its mark, and only then reads the intents. Whichever way they meet, one sees the
other: the create stores the part itself, or the delete leaves it. An intent counts until its
backup is decided: by its manifest, which then speaks for itself, or by a tombstone.
"""

import json
from collections.abc import Sequence

from calve.archive.location import Key, Location
from calve.model.errors import NotFoundError, PermanentError


def declare(location: Location, uri: str, key: Key, addresses: Sequence[str]) -> None:
    """Twice is harmless."""
    text = json.dumps({"key": str(key), "addresses": sorted(addresses)})
    # if we die here, some contents are kept for a backup that may never be: until it is decided
    location.storage.put_if_absent(uri, text.encode())


def relied_on(location: Location) -> frozenset[str]:
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
            raise PermanentError(
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
