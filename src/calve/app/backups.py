"""Backups as a person asks for them: the application as the kinds see it, and what commands share."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from calve.app.storages import properties_of
from calve.app.wiring import App
from calve.archive import backups
from calve.archive.location import Location
from calve.archive.manifest import Manifest
from calve.backup import deletion
from calve.backup.deletion import Deleted, Keep, kept
from calve.backup.kind import BackupKind
from calve.clickhouse.source import LiveSource
from calve.model.errors import RefusedError
from calve.model.limits import Limits
from calve.objects.storage import Storage
from calve.restore.kind import RestoreKind


class BackupReach:
    """The application as backups and restores see it."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def limits(self) -> Limits:
        return self._app.limits

    @property
    def hard_links(self) -> bool:
        return self._app.config.backup_hard_links

    def source(self, name: str) -> LiveSource:
        return self._app.source(name)

    def location(self) -> Location:
        limits = self._app.limits
        storage = Storage(
            self.location_properties(),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
        )
        config = self._app.config
        return Location(config.backup_url, storage, signing_key=config.backup_signing_key)

    def location_properties(self) -> dict[str, str]:
        return properties_of(self._app.config, self._app.config.backup_url)


def backup_kind(app: App) -> BackupKind:
    return BackupKind(BackupReach(app))


def restore_kind(app: App) -> RestoreKind:
    return RestoreKind(BackupReach(app))


@dataclass(frozen=True, kw_only=True)
class Line:
    """One backup in a list."""

    name: str
    manifest: Manifest | None
    own_bytes: int = 0  # that no other backup shares: what deleting it frees
    error: str = ""
    hint: str = ""


def lines(location: Location) -> list[Line]:
    """Oldest first, damaged ones too."""
    found = backups.listed(location)
    uses = Counter(place for one in found if one.manifest for place in one.manifest.places)
    return [
        Line(
            name=one.key.name,
            manifest=one.manifest,
            own_bytes=_own_bytes(one.manifest, uses) if one.manifest else 0,
            error=one.error.message if one.error else "",
            hint=one.error.hint if one.error else "",
        )
        for one in found
    ]


def stored_bytes(found: Sequence[Line]) -> int:
    """What all of them take together, shared parts once."""
    places: dict[str, int] = {}
    for line in found:
        if line.manifest:
            places |= {place: part.bytes for place, part in line.manifest.places.items()}
    return sum(places.values())


def _own_bytes(manifest: Manifest, uses: Mapping[str, int]) -> int:
    return sum(part.bytes for place, part in manifest.places.items() if uses[place] == 1)


def delete_backup(app: App, name: str) -> Deleted:
    location = BackupReach(app).location()
    _refuse_used(app, name)
    return deletion.delete(location, name)


@dataclass(frozen=True, kw_only=True)
class Pruned:
    kept: tuple[str, ...]
    deleted: tuple[Deleted, ...]  # or, for a dry run, what would be
    unreadable: tuple[str, ...]  # kept, and nothing that they may need is removed: that is, no part


def prune(app: App, keep: Keep, *, dry_run: bool) -> Pruned:
    """Delete what the rules do not keep, and take up deletes that did not come to their end. A backup
    that cannot be read counts for no rule and stays, until it is deleted by its name."""
    location = BackupReach(app).location()
    found = backups.listed(location)
    whole = [one.manifest for one in found if one.manifest]
    standing = kept(whole, lambda one: datetime.fromisoformat(one.created_at), keep)
    doomed = [one.name for one in whole if one not in standing]
    deleted: list[Deleted] = []
    for name in doomed:
        if dry_run:
            deleted.append(Deleted(name=name))
            continue
        _refuse_used(app, name)
        deleted.append(deletion.delete(location, name))
    if not dry_run:
        earlier = [key for key in deletion.unfinished(location) if key.name not in doomed]
        deleted += [deletion.sweep(location, key) for key in earlier]
    return Pruned(
        kept=tuple(one.name for one in standing),
        deleted=tuple(deleted),
        unreadable=tuple(sorted({one.key.name for one in found if one.error})),
    )


def _refuse_used(app: App, name: str) -> None:
    """A restore or an export that reads it, as far as this store knows. Others fail, and say why."""
    for process in app.store.live():
        request = json.loads(process.request)
        if name in (request.get("backup"), request.get("from_backup")):
            raise RefusedError(
                f"process {process.id} reads backup {name} ({process.kind} to {process.destination})",
                code="backup_in_use",
                hint=f"calve wait {process.id}, or calve cancel {process.id}",
            )
