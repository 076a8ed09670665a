from collections.abc import Iterator

import pytest
from three_readers import Readers

from support.local_runner import LocalRunner
from support.place import kept_place
from support.spark_sql import SparkSql


@pytest.fixture(scope="package")
def readers(
    tmp_path_factory: pytest.TempPathFactory, spark_sql: SparkSql, runner: LocalRunner
) -> Iterator[Readers]:
    """One source, one catalog and one Spark for all tables of these tests."""
    # All partitions of a table in one process: these tests are about values.
    folder = tmp_path_factory.mktemp("round-trip")
    with kept_place(folder, runner, CALVE_LIMITS__COMMITS_PER_EXPORT="1") as place:
        place.execute("CREATE DATABASE db")
        yield Readers(place, spark_sql.catalog("lake", uri=place.catalog_uri, warehouse=place.warehouse))
