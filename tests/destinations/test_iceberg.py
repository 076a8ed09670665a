"""Iceberg tables keep the destination's contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.destination.names import DestinationAddress
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.destination import IcebergDestination
from calve.model.limits import Limits
from calve.testing.contracts.destination import DestinationContract
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import sqlite_properties

ADDRESS = DestinationAddress(catalog="lake", identifier=("ns", "events"))
LOST = Fault(told=Told.TIMEOUT, landing=Landing.LANDED, reading=Reading.UNREADABLE)


class IcebergStage:
    def __init__(self, folder: Path) -> None:
        self._properties = dict(open_catalog("lake", sqlite_properties(folder)).properties)
        self._opened: list[FaultySqlCatalog] = []

    def open(self) -> IcebergDestination:
        return IcebergDestination(ADDRESS, self._catalog(), self._properties, Limits())

    def open_losing_answers(self) -> IcebergDestination:
        catalog = self._catalog()
        catalog.arm(LOST)
        return IcebergDestination(ADDRESS, catalog, self._properties, Limits())

    def visible(self) -> list[int]:
        found = self._catalog().load_table(ADDRESS.identifier).scan().to_arrow()
        return sorted(found.column("id").to_pylist())

    def _catalog(self) -> FaultySqlCatalog:
        self._opened.append(FaultySqlCatalog("lake", Limits(), self._properties))
        return self._opened[-1]

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()


class TestIceberg(DestinationContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[IcebergStage]:  # type: ignore[override]
        stage = IcebergStage(tmp_path)
        yield stage
        stage.close()
