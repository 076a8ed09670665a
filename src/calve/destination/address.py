"""How a destination is written down, and which implementation serves it. Pure; imports no client.

The only module that tells the forms apart: a catalog's name never has a `/`, a folder's URI always does. Stored
requests and plans keep `catalog` and `identifier` as they are here. A new form is a folder with a `destination`
module that has `configuration`, `open_destination` and `placement`, a line here, and the spelling of its address.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self

from calve.model import reach
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.model.reach import Service

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from calve.destination.plan import DestinationPlan
    from calve.destination.port import Destination, Placement


ICEBERG = "iceberg"
PARQUET = "parquet"
_FOLDER_IDENTIFIER = ("files",)  # stored where an Iceberg table has its namespace and name
_BUCKET = re.compile(r"s3[an]?://[^/]+")


@dataclass(frozen=True, kw_only=True)
class DestinationAddress:
    """A table of a configured catalog, or a folder: `catalog` is then the folder's full URI."""

    catalog: str
    identifier: tuple[str, ...]  # namespace (one name or more) and table
    storage: str = ""  # a folder's: the [storage] section that a worker must have

    @classmethod
    def folder(cls, uri: str, storage: str = "") -> Self:
        return cls(catalog=uri.rstrip("/"), identifier=_FOLDER_IDENTIFIER, storage=storage)

    @property
    def form(self) -> str:
        """Which implementation serves it."""
        return PARQUET if is_folder(self.catalog) else ICEBERG

    @property
    def lane(self) -> Service:
        """What is down together waits together: a catalog, or the bucket that a folder is in."""
        if self.form == ICEBERG:
            return reach.catalog(self.catalog)
        bucket = _BUCKET.match(self.catalog)
        return reach.storage(bucket[0] if bucket else self.catalog)

    @property
    def needs(self) -> tuple[Service, ...]:
        """What a worker's configuration must have. A local folder, and a bucket whose keys come from
        the environment, are in no configuration: any worker that reaches the source may try."""
        if self.form == ICEBERG:
            return (reach.catalog(self.catalog),)
        return (reach.storage(self.storage),) if self.storage else ()

    def __str__(self) -> str:
        return f"{self.catalog}/" if self.form == PARQUET else ".".join((self.catalog, *self.identifier))


def is_folder(text: str) -> bool:
    """Whether DEST, as typed or as stored, is a folder of plain Parquet."""
    return "/" in text


def parse_table_name(text: str) -> DestinationAddress:
    """`catalog.namespace.table`. UsageError for anything else."""
    catalog, *identifier = text.split(".")
    if len(identifier) < 2 or not catalog or not all(identifier):
        raise UsageError(
            f"invalid destination {text!r}",
            code="destination_name",
            hint="use catalog.namespace.table, for example lake.ns.events,"
            " or a path with a / for plain Parquet",
        )
    return DestinationAddress(catalog=catalog, identifier=tuple(identifier))


_MODULES = {ICEBERG: "calve.iceberg.destination", PARQUET: "calve.parquet.destination"}


class Reach(Protocol):
    """What an implementation may ask of the application."""

    @property
    def limits(self) -> Limits: ...

    def catalog(self, name: str) -> "Catalog": ...

    def catalog_properties(self, name: str) -> dict[str, Any]:
        """A catalog's configuration with the keys of its storage. Never stored."""

    def location_properties(self, uri: str) -> dict[str, str]:
        """Endpoint and keys for a folder. Never stored."""


def configuration(address: DestinationAddress, reach: Reach) -> dict[str, Any]:
    """What a destination is opened with. A change of it, such as of keys, means to open it again."""
    found: dict[str, Any] = _module(address.form).configuration(address, reach)
    return found


def open_destination(address: DestinationAddress, reach: Reach) -> "Destination":
    opened: Destination = _module(address.form).open_destination(address, reach)
    return opened


def placement(plan: "DestinationPlan", spec: "PartitionSpec", schema: "Schema") -> "Placement":
    placed: Placement = _module(plan.form).placement(plan, spec, schema)
    return placed


def _module(form: str) -> ModuleType:
    return import_module(_MODULES[form])


RECEIPTS = "calve.receipts"  # where receipts go, for buckets that take nothing but tables
SORT_ORDER_IDS = "calve.sort-order-ids"  # whether sorted files say so; see `tables.tells_sort_orders`
_TYPES_BY_SCHEME = {
    "http": "rest", "https": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql", "postgres": "sql",
}  # fmt: skip


def catalog_type(entry: Mapping[str, Any]) -> str:
    """`sql`, `rest`, `hive`, `glue`, …; where no type is given, by the URI as PyIceberg does. "" if unknown."""
    scheme = str(entry.get("uri", "")).partition(":")[0].partition("+")[0]
    return str(entry.get("type", "")).lower() or _TYPES_BY_SCHEME.get(scheme, "")


def property_text(value: Any) -> str:
    """Properties are text; TOML's booleans and numbers are not."""
    return str(value).lower() if isinstance(value, bool) else str(value)
