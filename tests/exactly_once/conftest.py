from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.limits import Limits
from support.catalog_faults import FaultySqlCatalog
from support.lake import make_table, sqlite_properties


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FaultySqlCatalog]:
    """A SQLite catalog with the table in it; faults can be armed."""
    properties = dict(open_catalog("lake", sqlite_properties(tmp_path)).properties)
    opened = FaultySqlCatalog("lake", Limits(), properties)
    make_table(opened)
    yield opened
    opened.close()
