"""Backups and restores as a front asks for them, and the application as their kinds see it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from calve.app.destination import backup_properties, properties_of
from calve.app.policies.release_backup import needed
from calve.app.wiring import App
from calve.archive import backups as archived
from calve.archive.left_out import LeftOut, left_out
from calve.archive.location import Location
from calve.archive.manifest import Manifest
from calve.archive.vault import KeyMissingError
from calve.backup import deletion, verification
from calve.backup.deletion import Deleted, Keep, kept
from calve.backup.kind import BackupKind
from calve.backup.request import BackupOptions
from calve.backup.submit import new_process as new_backup
from calve.backup.submit import request_of as backup_request
from calve.backup.submit import submit as submit_backup
from calve.backup.verification import Verified
from calve.clickhouse.source import LiveSource
from calve.control.client import Submitted
from calve.control.ports import Store
from calve.model.errors import RefusedError
from calve.model.limits import Limits
from calve.model.process import NewProcess
from calve.model.record import fields_of
from calve.objects.storage import Storage
from calve.objects.uri import Uri
from calve.policy.schedule import Schedule
from calve.restore.kind import RestoreKind
from calve.restore.preview import RestorePreview, check_agreed, preview
from calve.restore.submit import RestoreOptions
from calve.restore.submit import request_of as restore_request
from calve.restore.submit import submit as submit_restore


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
        return self._app.source_with_disks(name)

    def disks_are_near(self, source: str) -> bool:
        return self._app.config.source(source).disks_at == "worker"

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
        return backup_properties(self._app.config)

    def bucket_properties(self, source: str) -> dict[str, dict[str, str]]:
        disks = self._app.config.source(source).disks.values()
        buckets = {uri for uri in disks if "://" in uri}
        return {Uri.parse(uri).place: properties_of(self._app.config, uri) for uri in sorted(buckets)}


def backup_kind(app: App) -> BackupKind:
    return BackupKind(BackupReach(app))


def restore_kind(app: App) -> RestoreKind:
    return RestoreKind(BackupReach(app))


@dataclass(frozen=True, kw_only=True)
class BackupEntry:
    """One backup of the location; `manifest` is None where it cannot be read."""

    name: str
    manifest: Manifest | None
    own_bytes: int = 0  # that no other backup shares: what deleting it frees
    error: str = ""
    hint: str = ""
    lacks_key: bool = False  # it is encrypted, with a key that is not configured

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return left_out(self.manifest) if self.manifest else ()


def entries(app: App) -> list[BackupEntry]:
    """Oldest first, damaged ones too."""
    found = archived.listed(app.backups())
    uses = Counter(place for one in found if one.manifest for place in one.manifest.places)
    return [
        BackupEntry(
            name=one.key.name,
            manifest=one.manifest,
            own_bytes=_own_bytes(one.manifest, uses) if one.manifest else 0,
            error=one.error.message if one.error else "",
            hint=one.error.hint if one.error else "",
            lacks_key=isinstance(one.error, KeyMissingError),
        )
        for one in found
    ]


def entry(app: App, name: str) -> BackupEntry:
    """NotFoundError where there is none; an error of its own where it cannot be read."""
    wanted = archived.find(app.backups(), name, unsigned=True)
    return next(one for one in entries(app) if one.manifest and one.manifest.process_id == wanted.process_id)


def _own_bytes(manifest: Manifest, uses: Mapping[str, int]) -> int:
    return sum(part.bytes for place, part in manifest.places.items() if uses[place] == 1)


def verify(app: App, name: str, *, read_share: float = 0.0) -> Verified:
    location = app.backups()
    return verification.verify(location, archived.find(location, name), read_share=read_share)


def create(
    app: App,
    store: Store,
    name: str,
    tables: Sequence[str],
    options: BackupOptions | None = None,
    *,
    source: str = "",
) -> Submitted:
    """Queue a backup of the tables that the patterns mean now."""
    reach = BackupReach(app)
    request = backup_request(reach, name, source or app.config.default_source, tables, options)
    return submit_backup(reach, store, request)


def scheduled(app: App, schedule: Schedule, name: str) -> NewProcess:
    """A backup that a schedule asks for, of the tables that its patterns mean now."""
    reach = BackupReach(app)
    options = BackupOptions(
        mutations="wait", ignore_row_policies=schedule.ignore_row_policies, rbac=schedule.rbac
    )
    request = backup_request(reach, name, schedule.source, schedule.tables, options, schedule=schedule.name)
    return new_backup(reach, app.store, request)


def restore(
    app: App, store: Store, name: str, options: RestoreOptions | None = None, *, source: str = ""
) -> Submitted:
    reach, target = BackupReach(app), source or app.config.default_source
    app.config.source(target)
    request = restore_request(reach, name, target, options)
    if options and options.plan_hash:
        check_agreed(preview(reach, app.store, request), options.plan_hash)
    return submit_restore(reach, store, request)


def restore_preview(
    app: App, name: str, options: RestoreOptions | None = None, *, source: str = ""
) -> RestorePreview:
    """What a restore would make. Changes nothing."""
    reach, target = BackupReach(app), source or app.config.default_source
    app.config.source(target)
    return preview(reach, app.store, restore_request(reach, name, target, options))


def delete_backup(app: App, name: str) -> Deleted:
    refuse_used(app, name)
    return deletion.delete(app.backups(), name)


@dataclass(frozen=True, kw_only=True)
class Pruned:
    kept: tuple[str, ...]
    deleted: tuple[Deleted, ...]  # or, for a dry run, what would be
    unreadable: tuple[str, ...]  # kept, and nothing that they may need is removed: that is, no part


def prune(app: App, keep: Keep, *, dry_run: bool) -> Pruned:
    """Delete what the rules do not keep, and take up deletes that did not come to their end. A backup
    that cannot be read counts for no rule and stays, until it is deleted by its name."""
    location = app.backups()
    found = archived.listed(location)
    whole = [one.manifest for one in found if one.manifest]
    standing = kept(whole, lambda one: datetime.fromisoformat(one.created_at), keep)
    doomed = [one.name for one in whole if one not in standing]
    pinned = needed(app, doomed)
    doomed = [name for name in doomed if name not in pinned]
    deleted: list[Deleted] = []
    for name in doomed:
        deleted.append(Deleted(name=name) if dry_run else delete_backup(app, name))
    if not dry_run:
        earlier = [key for key in deletion.unfinished(location) if key.name not in doomed]
        deleted += [deletion.sweep(location, key) for key in earlier]
    return Pruned(
        kept=tuple(one.name for one in whole if one.name not in doomed),
        deleted=tuple(deleted),
        unreadable=tuple(sorted({one.key.name for one in found if one.error})),
    )


def refuse_used(app: App, name: str) -> None:
    """A restore or an export that reads it, as far as this store knows; or rows that were dropped, of which it has the only copy
    beside the lake. Others fail, and say why."""
    if release := needed(app, [name]).get(name):
        raise RefusedError(
            f"backup {name} has the only copy beside the lake of partition {release.partition}, which was dropped"
            f" from {release.place}",
            code="backup_pinned",
            hint="it is kept as long as the release is",
        )
    for process in app.store.live():
        request = fields_of(process.request)
        if name in (request.get("backup"), request.get("from_backup")):
            raise RefusedError(
                f"process {process.id} reads backup {name} ({process.kind} to {process.destination})",
                code="backup_in_use",
                hint=f"calve wait {process.id}, or calve cancel {process.id}",
            )
