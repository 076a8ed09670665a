"""What a backup reaches, by the names of the configuration. The application implements it."""

from typing import Protocol

from calve.archive.location import Location
from calve.clickhouse.source import Source
from calve.model.limits import Limits

LANE = "backup:"  # how lanes and needs name a backup location


class BackupPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def hard_links(self) -> bool:
        """Whether files are linked to the location in place of being copied."""

    def source(self, name: str) -> Source: ...

    def location(self) -> Location:
        """The one of `[backup]`."""

    def location_properties(self) -> dict[str, str]:
        """What an executor needs to open the same. Never stored: it may hold secrets."""
