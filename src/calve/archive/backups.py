"""The backups of a location: all that stand, or one by name. A manifest is trusted before it is used."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from calve.archive.location import Key, Location, checked_name
from calve.archive.manifest import Manifest, damaged, refuse_unsigned
from calve.archive.vault import BrokenSeal, KeyMissingError
from calve.model.errors import CalveError, DamagedError, NotFoundError, PermanentError, RefusedError


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """What stands where a manifest would: this use of the name was given up."""

    process_id: str

    def to_json(self) -> str:
        return json.dumps({"fenced": True, "process_id": self.process_id})


def read(location: Location, key: Key, *, trusted: bool = False) -> Manifest | Tombstone:
    """NotFoundError while nothing is decided. With `trusted`, RefusedError for one that the location's
    key, where it has one, did not sign: ask so before using what a manifest says."""
    where, way_out = location.manifest(key), _way_out(key)
    data = location.storage.read(where).decode("utf-8", "replace")
    try:
        data = location.vault.open_text(data, location.name(where))
    except BrokenSeal as error:
        raise damaged(where, str(error), way_out) from None
    except KeyMissingError as error:
        raise KeyMissingError(
            f"backup {key.name} is {error.message}", code=error.code, hint=error.hint
        ) from None
    try:
        document = json.loads(data)
        if isinstance(document, dict) and document.get("fenced"):
            return Tombstone(process_id=str(document["process_id"]))
    except (ValueError, KeyError, RecursionError):
        raise damaged(where, "it is not a manifest", way_out) from None
    manifest = Manifest.from_json(data, where, way_out)
    if (manifest.name, manifest.number) != (key.name, key.number):
        raise damaged(where, f"it is the manifest of {manifest.name}@{manifest.number}", way_out)
    if trusted and location.signing_key:
        refuse_unsigned(data, where, location.signing_key)
    return manifest


def to_put(location: Location, key: Key, manifest: Manifest) -> bytes:
    """A manifest as it is stored: signed, then encrypted, as far as there are keys."""
    text = manifest.to_json(location.signing_key)
    return location.vault.seal_text(text, location.name(location.manifest(key))).encode()


def _way_out(key: Key) -> str:
    return (
        f"restore that object from a copy or from the storage's versions; or give up the backup: "
        f"calve backup delete {key.name}"
    )


def find(location: Location, name: str, *, unsigned: bool = False) -> Manifest:
    """The backup of that name. NotFoundError names those that there are; RefusedError for one that is
    not signed, where it has to be, unless `unsigned` ones are accepted."""
    checked_name(name)
    keys = location.keys()
    for key in sorted((key for key in keys.standing if key.name == name), key=lambda key: -key.number):
        found = read(location, key, trusted=not unsigned)
        if isinstance(found, Manifest):
            return found
    names = sorted({key.name for key in keys.standing})
    shown = ", ".join(names[-5:]) or "none"
    raise NotFoundError(
        f"there is no backup {name!r} in {location.url}",
        code="no_backup",
        hint=f"existing backups: {shown}; see: calve backup list",
    )


def same(location: Location, key: Key, process_id: str, *, unsigned: bool = False) -> Manifest:
    """The backup that a plan was made from, and no other of its name. NotFoundError if it is gone."""
    gone = NotFoundError(
        f"backup {key.name} was deleted from {location.url} in the meantime",
        code="backup_deleted",
        hint="see: calve backup list",
    )
    if location.storage.exists(location.mark(key)):
        raise gone
    try:
        found = read(location, key, trusted=not unsigned)
    except NotFoundError:
        raise gone from None
    if isinstance(found, Tombstone) or found.process_id != process_id:
        raise gone
    return found


@dataclass(frozen=True, kw_only=True)
class Needed:
    """What the backups that stand need: all of it only if every one of them can be read."""

    places: frozenset[str]
    unreadable: tuple[str, ...]  # names of backups that may need anything

    def refuse_unreadable(self, what: str) -> None:
        """Call this before deleting what an unreadable backup may need."""
        if self.unreadable:
            names = ", ".join(self.unreadable)
            raise DamagedError(
                f"{what}: backup {names} cannot be read, so what it needs is unknown",
                code="backup_damaged",
                hint=f"calve backup show {self.unreadable[0]} says why; to give it up: calve backup delete {names}",
            )


def needed(location: Location) -> Needed:
    """To decide what may be deleted. One that is encrypted with a key that is not here may need anything."""
    places: set[str] = set()
    unreadable: set[str] = set()
    for one in listed(location):
        if one.manifest is None:
            unreadable.add(one.key.name)
        else:
            places.update(one.manifest.places)
    return Needed(places=frozenset(places), unreadable=tuple(sorted(unreadable)))


def readable(location: Location) -> Iterator[Manifest]:
    """Backups to take parts from, by falling name: those of last night first, where names are dates.
    A damaged one, and one that is not signed as it has to be, is passed over."""
    for key in sorted(location.keys().standing, key=str, reverse=True):
        try:
            found = read(location, key, trusted=True)
        except (NotFoundError, PermanentError, RefusedError):
            continue
        if isinstance(found, Manifest):
            yield found


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One line of a list: a backup, or the reason why it cannot be read."""

    key: Key
    manifest: Manifest | None
    error: CalveError | None = None


def listed(location: Location) -> list[Listed]:
    """Every backup, oldest first, damaged ones too."""
    found: list[Listed] = []
    for key in location.keys().standing:
        try:
            one = read(location, key)
        except NotFoundError:
            continue
        except (DamagedError, KeyMissingError) as error:
            found.append(Listed(key=key, manifest=None, error=error))
            continue
        if isinstance(one, Manifest):
            found.append(Listed(key=key, manifest=one))
    return sorted(found, key=lambda one: (one.manifest.created_at if one.manifest else "", one.key.name))
