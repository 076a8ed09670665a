"""What an export reaches, by the names of the configuration. The application implements it."""

from typing import Any, Protocol

from pyiceberg.catalog import Catalog

from calve.archive.location import Location
from calve.clickhouse.source import Source
from calve.export.choices import Choices
from calve.model.limits import Limits
from calve.objects.storage import Storage


class ExportPorts(Protocol):
    """Each call is cheap and connects to nothing: services are met when they are used."""

    @property
    def limits(self) -> Limits: ...

    @property
    def choices(self) -> Choices:
        """What the configuration says about types; a request adds its own casts."""

    def source(self, name: str) -> Source: ...

    def catalog(self, name: str) -> Catalog: ...

    def storage(self, catalog: str, table: tuple[str, ...] = ()) -> Storage:
        """Where a catalog's tables keep their files; of one table, with keys that are lent for it."""

    def storage_properties(self, catalog: str, table: tuple[str, ...] = ()) -> dict[str, str]:
        """What an executor needs to build the same storage. Never stored: it may hold secrets."""

    def lending(self, catalog: str) -> dict[str, Any]:
        """What an executor needs to ask the catalog for new keys; {} where it lends none. Never stored."""

    def backups(self) -> Location:
        """Where backups are kept."""

    def backup_properties(self) -> dict[str, str]:
        """What an executor needs to open the same. Never stored: it may hold secrets."""
