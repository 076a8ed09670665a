"""Deleting backups: mark, read, sweep (D9, P16). Only what no other backup names is removed.

A delete that dies anywhere is taken up by the next one: the mark says what was meant, and the
manifest, which goes last, says what is still to be removed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from calve.kinds.backup import intents, shelf
from calve.kinds.backup.location import Key, Location
from calve.kinds.backup.manifest import Manifest
from calve.model.errors import NotFoundError

_OBJECTS_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """What became of a delete."""

    name: str
    parts: int  # removed
    bytes: int
    shared: int  # parts that other backups name
    awaited: int  # parts that a backup under way relies on: they go with the next delete or prune


def delete(location: Location, name: str) -> Deleted:
    """The backup is gone for every reader once this has begun; its space, once it has ended. Asked
    again after it died half-way, it goes on."""
    try:
        manifest = shelf.find(location, name)
    except NotFoundError:
        begun = [key for key in unfinished(location) if key.name == name]
        if not begun:
            raise
        return sweep(location, begun[0])
    mark(location, manifest)
    return sweep(location, Key(name=manifest.name, number=manifest.number))


def mark(location: Location, manifest: Manifest) -> None:
    key = Key(name=manifest.name, number=manifest.number)
    text = json.dumps({"process_id": manifest.process_id})
    # if we die here, the backup is marked: no reader sees it, and the next delete or prune sweeps it
    location.storage.put_if_absent(location.mark(key), text.encode())


def unfinished(location: Location) -> list[Key]:
    """Deletes that have begun and not ended."""
    keys = location.keys()
    return sorted(keys.decided & keys.marked, key=str)


def sweep(location: Location, key: Key) -> Deleted:
    """Remove what a marked backup alone needed. Intents are read before manifests: a backup that is
    decided in between is found by its manifest."""
    relied_on = intents.relied_on(location)
    named = {place for manifest in shelf.standing(location) for place in manifest.places}
    try:
        doomed = shelf.read(location, key)
    except NotFoundError:
        return Deleted(name=key.name, parts=0, bytes=0, shared=0, awaited=0)
    places = doomed.places if isinstance(doomed, Manifest) else {}
    shared = {place for place in places if place in named}
    awaited = {place for place, part in places.items() if place not in named and part.address in relied_on}
    free = [place for place in places if place not in shared and place not in awaited]
    remove_parts(location, free)
    if not awaited:
        # if we die here, the manifest is there and marked: sweeping again finds nothing but it
        location.storage.delete([location.manifest(key)])
    return Deleted(
        name=key.name,
        parts=len(free),
        bytes=sum(places[place].bytes for place in free),
        shared=len(shared),
        awaited=len(awaited),
    )


def remove_parts(location: Location, places: Sequence[str]) -> None:
    """The index first: a part without one is no part."""
    for start in range(0, len(places), _OBJECTS_AT_ONCE):
        some = places[start : start + _OBJECTS_AT_ONCE]
        # if we die here, files are left without an index; removing again takes them
        location.storage.delete([location.index(place) for place in some])
        for place in some:
            location.storage.delete(location.storage.list(location.files(place)))
