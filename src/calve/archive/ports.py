"""What backups and restores reach, by the names of the configuration. The application implements it."""

import secrets
from typing import Protocol

from calve.archive.location import Location
from calve.clickhouse.source import LiveSource
from calve.model.limits import Limits
from calve.model.reach import Service


class BackupPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def hard_links(self) -> bool:
        """Whether files are linked to the location instead of copied."""

    def source(self, name: str) -> LiveSource:
        """With its disks, wherever they are seen."""

    def disks_are_near(self, source: str) -> bool:
        """Whether the worker sees them, and executors do not."""

    def location(self) -> Location:
        """The one of `[backup]`."""

    def location_properties(self) -> dict[str, str]:
        """What an executor needs to open the same. Never stored: it may hold secrets."""

    def bucket_properties(self, source: str) -> dict[str, dict[str, str]]:
        """The same for the buckets of a source's disks in object storage, each by its place."""


def probe(ports: BackupPorts, service: Service) -> None:
    """Return if what was down answers again. The location has to take a write: gateways answer reads
    before they take data."""
    if service.is_source:
        with ports.source(service.name).visit() as session:
            session.rows("SELECT 1 AS one", what="probing")
        return
    location = ports.location()
    uri = f"{location.under_way('probe')}/{secrets.token_hex(8)}"
    # if we die here, an object of a few bytes is left, whose name says what it was
    location.storage.put_if_absent(uri, b"calve")
    location.storage.delete([uri])
