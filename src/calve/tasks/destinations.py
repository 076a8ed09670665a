"""The destinations that there are: the only place that names their implementations.

A new one is a folder with a `destination` module that has `configuration`, `open_destination` and
`placement`, a line
here, and the spelling of its address in `calve.destination.names`.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from calve.destination.address import ICEBERG, PARQUET, DestinationAddress
from calve.destination.plan import DestinationPlan
from calve.destination.port import Destination, Placement
from calve.model.limits import Limits

_MODULES = {ICEBERG: "calve.iceberg.destination", PARQUET: "calve.parquet.destination"}


class Reach(Protocol):
    """What an implementation may ask of the application."""

    @property
    def limits(self) -> Limits: ...

    def catalog(self, name: str) -> Catalog: ...

    def catalog_properties(self, name: str) -> dict[str, Any]:
        """A catalog's configuration with the keys of its storage. Never stored."""

    def location_properties(self, uri: str) -> dict[str, str]:
        """Endpoint and keys for a folder. Never stored."""


def configuration(address: DestinationAddress, reach: Reach) -> dict[str, Any]:
    """What a destination is opened with. A change of it, such as of keys, means to open it again."""
    found: dict[str, Any] = _module(address.form).configuration(address, reach)
    return found


def open_destination(address: DestinationAddress, reach: Reach) -> Destination:
    opened: Destination = _module(address.form).open_destination(address, reach)
    return opened


def placement(plan: DestinationPlan, spec: PartitionSpec, schema: Schema) -> Placement:
    placed: Placement = _module(plan.form).placement(plan, spec, schema)
    return placed


def _module(form: str) -> ModuleType:
    return import_module(_MODULES[form])
