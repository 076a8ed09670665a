"""What an optimize reaches, by the names of the configuration. The application implements it."""

from collections.abc import Mapping
from typing import Any, Protocol

from pyiceberg.catalog import Catalog

from calve.control.ports import StoreReader, TaskOrder, TaskResult
from calve.model.limits import Limits


class OptimizePorts(Protocol):
    """Each call but `run_on_driver` is cheap and connects to nothing."""

    @property
    def limits(self) -> Limits: ...

    @property
    def store(self) -> StoreReader:
        """To know which process a file belongs to; never written."""

    def catalog(self, name: str) -> Catalog: ...

    def catalog_properties(self, name: str) -> Mapping[str, Any]:
        """What opens the same catalog in Spark. May hold secrets: never stored."""

    def run_on_driver(self, order: TaskOrder) -> TaskResult:
        """Run one order that is not a task of its own, and wait for its end."""
