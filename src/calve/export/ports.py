"""What an export reaches, by the names of the configuration. The application implements it."""

from typing import Protocol

from calve.archive.location import Location
from calve.clickhouse.source import Source
from calve.destination.address import DestinationAddress
from calve.destination.port import Destination
from calve.export.choices import Choices
from calve.model.limits import Limits


class ExportPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def choices(self) -> Choices:
        """What the configuration says about types; a request adds its own casts."""

    def source(self, name: str) -> Source: ...

    def destination(self, address: DestinationAddress) -> Destination: ...

    def backups(self) -> Location:
        """Where backups are kept."""

    def backup_properties(self) -> dict[str, str]:
        """What an executor needs to open the same. Never stored: it may hold secrets."""
