"""Mistakes planted in backups and restores."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from calve.archive import backups
from calve.archive.backups import Needed
from calve.backup import deletion, publish
from calve.backup import kind as backing_up
from calve.backup import task as storing
from calve.clickhouse.pins import shadow
from calve.restore import attach as attaching
from calve.restore import receiver
from calve.tasks import attempts
from support.simulator.bugs import bug


@bug("a backup under way does not say which parts of others it relies on (D9)", "archives")
def no_intent() -> Iterator[None]:
    with patch.object(storing, "declare_intent", lambda *_: None):
        yield


@bug("what an earlier backup has stored is believed to be there still (P15)", "archives")
def believed_to_stand() -> Iterator[None]:
    with (
        patch.object(storing, "_stands", lambda *_: True),
        patch.object(storing, "_is_whole", lambda *_: True),
    ):
        yield


class _NothingNeeded:
    """The backups of a location, to somebody who forgets what they need."""

    def __getattr__(self, name: str) -> Any:
        return getattr(backups, name)

    def needed(self, _: Any) -> Needed:
        return Needed(places=frozenset(), unreadable=())


@bug("a delete takes the parts that other backups name too (P16)", "archives")
def delete_takes_shared() -> Iterator[None]:
    with patch.object(deletion, "backups", _NothingNeeded()):
        yield


@bug("a backup is given up without a tombstone in its manifest's place (P15)", "manifests")
def no_tombstone() -> Iterator[None]:
    def decided(location: Any, plan: Any) -> Any:
        key = plan.backup_key
        if not location.storage.exists(location.manifest(key)):
            return None
        found = backups.read(location, key)
        return found if getattr(found, "process_id", "") == plan.process_id else None

    with patch.object(publish, "_decided", decided):
        yield


@bug("what attempts that lost have stored is never looked for (T13)", "archives")
def lost_attempts_stay() -> Iterator[None]:
    with patch.object(publish, "_places_of", lambda *_: []):
        yield


@bug("giving a backup up takes what others have of it, its own retry too", "archives")
def undo_takes_shared() -> Iterator[None]:
    with patch.object(publish, "backups", _NothingNeeded()):
        yield


@bug("what another plan of the process has left is taken for this one's (D1)", "copies")
def forgotten_plans() -> Iterator[None]:
    with (
        patch.object(attempts, "made_before", lambda *_: 0),
        patch.object(backing_up, "made_before", lambda *_: 0),
    ):
        yield


@bug("a pin whose name is held already is taken once more (D5)", "copies")
def held_pins() -> Iterator[None]:
    with patch.object(shadow, "exists", lambda *_: False):
        yield


@bug("a restored table never gets its own settings back", "archives")
def still_for_ever() -> Iterator[None]:
    with patch.object(attaching, "let_move", lambda *_: None):
        yield


@bug("a restore that is cancelled is taken for finished", "archives")
def taken_for_finished() -> Iterator[None]:
    with patch.object(attaching, "is_finished", lambda _: True):
        yield


@bug("what a restore has staged stays on the target's disk", "archives")
def staged_files_stay() -> Iterator[None]:
    with patch.object(attaching, "remove_state", lambda *_, **__: []):
        yield


@bug("the table that gathers parts for one that was there is left", "archives")
def gathering_tables_stay() -> Iterator[None]:
    with (
        patch.object(attaching, "drop_gathering", lambda *_: None),
        patch.object(receiver, "drop_gathering", lambda *_: None),
    ):
        yield
