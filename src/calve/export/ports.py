"""What an export reaches, by the names of the configuration. The application implements it."""

from typing import Protocol

from calve.clickhouse.source import LiveSource, Source
from calve.destination.address import DestinationAddress
from calve.destination.port import Destination
from calve.export.choices import Choices
from calve.export.request import ExportRequest
from calve.model.limits import Limits


class ExportPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def choices(self) -> Choices:
        """What the configuration says about types; a request adds its own casts."""

    def source(self, name: str) -> LiveSource: ...

    def backup(self, name: str, source: str, *, unsigned: bool = False) -> Source:
        """A backup as a source; `source` is the one that it was made from."""

    def destination(self, address: DestinationAddress) -> Destination: ...


def source_of(ports: ExportPorts, request: ExportRequest) -> Source:
    """What the request exports from."""
    if request.from_backup:
        return ports.backup(request.from_backup, request.source, unsigned=request.unsigned)
    return ports.source(request.source)
