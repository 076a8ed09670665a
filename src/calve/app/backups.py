"""Backups as a person asks for them: the application as the kinds see it, and what commands share."""

from calve.app.wiring import App
from calve.kinds.backup.kind import BackupKind
from calve.kinds.backup.location import Location
from calve.kinds.restore.kind import RestoreKind
from calve.lake.storage import Storage
from calve.model.limits import Limits
from calve.source.ports import Source

_PROPERTIES = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "virtual_addressing": "s3.force-virtual-addressing",
}


class BackupReach:
    """The application as backups and restores see it."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def limits(self) -> Limits:
        return self._app.limits

    def source(self, name: str) -> Source:
        return self._app.source(name)

    def location(self) -> Location:
        limits = self._app.limits
        storage = Storage(
            self.location_properties(),
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
        )
        return Location(self._app.config.backup_url, storage)

    def location_properties(self) -> dict[str, str]:
        """Of the longest `[storage."…"]` that the location lies in."""
        url, storages = self._app.config.backup_url, self._app.config.storages
        fitting = [prefix for prefix in storages if url.startswith(prefix)]
        if not fitting:
            return {}
        section = storages[max(fitting, key=len)]
        return {
            theirs: section[ours].lower() if ours == "virtual_addressing" else section[ours]
            for ours, theirs in _PROPERTIES.items()
            if section.get(ours)
        }


def backup_kind(app: App) -> BackupKind:
    return BackupKind(BackupReach(app))


def restore_kind(app: App) -> RestoreKind:
    return RestoreKind(BackupReach(app))
