"""Reading a location: which backups stand, and one of them by name."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from calve.kinds.backup.location import Key, Keys, Location, checked_name
from calve.kinds.backup.manifest import Manifest, damaged
from calve.model.errors import NotFoundError, PermanentError


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """What stands where a manifest would: this use of the name was given up."""

    process_id: str

    def to_json(self) -> str:
        return json.dumps({"fenced": True, "process_id": self.process_id})


def read(location: Location, key: Key) -> Manifest | Tombstone:
    """NotFoundError while nothing is decided."""
    where = location.manifest(key)
    data = location.storage.read(where).decode("utf-8", "replace")
    try:
        document = json.loads(data)
        if isinstance(document, dict) and document.get("fenced"):
            return Tombstone(process_id=str(document["process_id"]))
    except (ValueError, KeyError):
        raise damaged(where, "it is no manifest") from None
    manifest = Manifest.from_json(data, where)
    if (manifest.name, manifest.number) != (key.name, key.number):
        raise damaged(where, f"it is the manifest of {manifest.name}@{manifest.number}")
    return manifest


def find(location: Location, name: str) -> Manifest:
    """The backup of that name. NotFoundError names those that there are."""
    checked_name(name)
    keys = location.keys()
    for key in sorted((key for key in keys.standing if key.name == name), key=lambda key: -key.number):
        found = read(location, key)
        if isinstance(found, Manifest):
            return found
    names = sorted({key.name for key in keys.standing})
    shown = ", ".join(names[-5:]) or "none"
    raise NotFoundError(
        f"there is no backup {name!r} in {location.url}",
        code="no_backup",
        hint=f"there are {shown}; see: calve backup list",
    )


def same(location: Location, key: Key, process_id: str) -> Manifest:
    """The backup that a plan was made from, and no other of its name. NotFoundError if it is gone."""
    gone = NotFoundError(
        f"backup {key.name} was deleted from {location.url} meanwhile",
        code="backup_deleted",
        hint="calve backup list shows those that there are",
    )
    if location.storage.exists(location.mark(key)):
        raise gone
    try:
        found = read(location, key)
    except NotFoundError:
        raise gone from None
    if isinstance(found, Tombstone) or found.process_id != process_id:
        raise gone
    return found


def standing(location: Location, keys: Keys | None = None) -> Iterator[Manifest]:
    """Every backup, newest use of a name first. One that is damaged is an error: whoever decides what
    may be deleted has to know all that is needed."""
    keys = keys or location.keys()
    for key in sorted(keys.standing, key=lambda key: (-key.number, key.name)):
        try:
            found = read(location, key)
        except NotFoundError:
            continue  # deleted since the listing
        if isinstance(found, Manifest):
            yield found


def readable(location: Location) -> Iterator[Manifest]:
    """Backups to take parts from, by falling name: those of last night first, where names are dates.
    A damaged one is passed over."""
    for key in sorted(location.keys().standing, key=str, reverse=True):
        try:
            found = read(location, key)
        except (NotFoundError, PermanentError):
            continue
        if isinstance(found, Manifest):
            yield found


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One line of a list: a backup, or the reason why it cannot be read."""

    key: Key
    manifest: Manifest | None
    error: PermanentError | None = None


def listed(location: Location) -> list[Listed]:
    """Every backup, oldest first, damaged ones too."""
    found: list[Listed] = []
    for key in location.keys().standing:
        try:
            one = read(location, key)
        except NotFoundError:
            continue
        except PermanentError as error:
            found.append(Listed(key=key, manifest=None, error=error))
            continue
        if isinstance(one, Manifest):
            found.append(Listed(key=key, manifest=one))
    return sorted(found, key=lambda one: (one.manifest.created_at if one.manifest else "", one.key.name))
