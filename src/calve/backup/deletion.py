"""Deleting backups: mark, read, sweep (D9, P16). Only what no other backup names is removed.

A delete that dies anywhere is taken up by the next one: the mark says what was meant, and the
manifest, which goes last, says what is still to be removed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeVar

from calve.archive import backups
from calve.archive.backups import Tombstone
from calve.archive.location import Key, Location, checked_name
from calve.archive.manifest import Manifest, salvaged_places
from calve.backup.plan import intended
from calve.model.errors import DamagedError, NotFoundError, TemporaryError, UsageError

_OBJECTS_AT_ONCE = 1000
_LOOKS = 5  # at listings that may be behind


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """What became of a delete."""

    name: str
    parts: int = 0  # removed
    bytes: int = 0
    shared: int = 0  # parts that other backups name
    awaited: int = 0  # parts that a backup under way relies on: they go with the next delete or prune
    held: int = 0  # parts that a backup which cannot be read may need: they go once that one is gone
    held_by: tuple[str, ...] = ()
    damaged: bool = False  # its own manifest could not be read: parts that it named illegibly stay


def delete(location: Location, name: str) -> Deleted:
    """The backup is gone for every reader once this has begun; its space, once it has ended. Asked
    again after it died half-way, it goes on. One whose manifest is damaged is deleted like any other."""
    checked_name(name)
    for _ in range(_LOOKS):
        if (key := _begun(location, name)) is not None:
            return sweep(location, key)
        backups.find(location, name, unsigned=True)  # raises, naming those that there are
        # It was completed since the listing, or a listing is behind: look again.
    raise TemporaryError(
        f"backup {name!r} is there, and the listing of {location.url} does not show it",
        code="listing_behind",
        hint=f"nothing was deleted; run it again: calve backup delete {name}",
    )


def _begun(location: Location, name: str) -> Key | None:
    """What is marked now, or was; None where no listing shows it."""
    keys = location.keys()
    standing = sorted((key for key in keys.standing if key.name == name), key=lambda key: -key.number)
    for key in standing:
        found = _read(location, key)
        if not isinstance(found, Tombstone):
            mark(location, key, found.process_id if found else "")
            return key
    return next((key for key in keys.decided & keys.marked if key.name == name), None)


def mark(location: Location, key: Key, process_id: str) -> None:
    text = json.dumps({"process_id": process_id})
    # if we die here, the backup is marked: no reader sees it, and the next delete or prune sweeps it
    location.storage.put_if_absent(location.mark(key), text.encode())


def unfinished(location: Location) -> list[Key]:
    """Deletes that have begun and not ended."""
    keys = location.keys()
    return sorted(keys.decided & keys.marked, key=str)


def sweep(location: Location, key: Key) -> Deleted:
    """Remove what a marked backup alone needed. Intents are read before manifests: a backup that is
    decided in between is found by its manifest. While a backup that stands cannot be read nothing is
    removed, because it may need anything."""
    relied_on = intended(location)
    needed = backups.needed(location)
    try:
        doomed = _read(location, key)
        places = _places(location, key, doomed)
    except NotFoundError:
        return Deleted(name=key.name)
    shared = [place for place in places if place in needed.places]
    own = [place for place in places if place not in needed.places]
    awaited = [place for place in own if _address(place) in relied_on]
    free = [place for place in own if _address(place) not in relied_on]
    held, free = (free, []) if needed.unreadable else ([], free)
    remove_parts(location, free)
    if not awaited and not held:
        # if we die here, the manifest is there and marked: sweeping again finds nothing but it
        location.storage.delete([location.manifest(key)])
    return Deleted(
        name=key.name,
        parts=len(free),
        bytes=sum(places[place] for place in free),
        shared=len(shared),
        awaited=len(awaited),
        held=len(held),
        held_by=needed.unreadable if held else (),
        damaged=doomed is None,
    )


def _read(location: Location, key: Key) -> Manifest | Tombstone | None:
    """None for one that is damaged."""
    try:
        return backups.read(location, key)
    except DamagedError:
        return None


def _places(location: Location, key: Key, doomed: Manifest | Tombstone | None) -> dict[str, int]:
    """The stored parts that the doomed one names, with their bytes."""
    match doomed:
        case Manifest():
            return {place: part.bytes for place, part in doomed.places.items()}
        case Tombstone():
            return {}
        case None:
            text = location.storage.read(location.manifest(key)).decode("utf-8", "replace")
            there = [
                place for place in salvaged_places(text) if location.storage.exists(location.index(place))
            ]
            return {place: sum(location.storage.sizes(location.files(place)).values()) for place in there}


def _address(place: str) -> str:
    return place.rsplit("/", 1)[-1]


def remove_parts(location: Location, places: Sequence[str]) -> None:
    """The index first: without one there is no part."""
    for start in range(0, len(places), _OBJECTS_AT_ONCE):
        some = places[start : start + _OBJECTS_AT_ONCE]
        # if we die here, files are left without an index; removing again takes them
        location.storage.delete([location.index(place) for place in some])
        for place in some:
            location.storage.delete(location.storage.list(location.files(place)))


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """How many of each. At least one has to be given: nothing is deleted by default."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    def __post_init__(self) -> None:
        counts = [getattr(self, item.name) for item in fields(self)]
        if min(counts) < 0 or not any(counts):
            raise UsageError(
                "nothing says what to keep",
                code="keep_nothing",
                hint="give at least one of --keep-last, --keep-daily, --keep-weekly, --keep-monthly, --keep-yearly",
            )


def kept(items: Sequence[T], at: Callable[[T], datetime], keep: Keep) -> list[T]:
    """Those to keep, newest first. A day without a backup uses up no count."""
    newest_first = sorted(items, key=at, reverse=True)
    chosen: set[int] = set(range(min(keep.last, len(newest_first))))
    periods: tuple[tuple[int, Callable[[datetime], tuple[int, ...]]], ...] = (
        (keep.daily, lambda day: (day.year, day.month, day.day)),
        (keep.weekly, lambda day: tuple(day.isocalendar()[:2])),
        (keep.monthly, lambda day: (day.year, day.month)),
        (keep.yearly, lambda day: (day.year,)),
    )
    for count, period in periods:
        seen: set[tuple[int, ...]] = set()
        for place, item in enumerate(newest_first):
            which = period(at(item))
            if which not in seen and len(seen) < count:
                seen.add(which)
                chosen.add(place)
    return [item for place, item in enumerate(newest_first) if place in chosen]
