"""The queries of docs/parquet.md read exactly what is committed, whatever else lies in the folder (T13)."""

import re
import shutil
from pathlib import Path

import duckdb
import pytest
from plain_place import PlainPlace, globbed, listed, rows_of

from support.spark_sql import SparkSql

PAGE = Path(__file__).parents[2] / "docs" / "parquet.md"


def queries(engine: str, out: Path) -> list[str]:
    """The statements that the page gives for an engine, on this folder."""
    block = re.search(rf"^{engine} .*?```sql\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    return [one.strip() for one in block[1].replace("/data/out", str(out)).split(";") if one.strip()]


@pytest.fixture
def crowded(place: PlainPlace, out: Path) -> Path:
    """Two partitions, one of them exported again by force, beside a file of an attempt that lost."""
    place.one(out, "1")
    place.one(out, "2")
    place.one(out, "1", force=True)
    file = listed(out)[0]
    shutil.copy(file, file.with_name(re.sub(r"-0-1-0.parquet$", "-0-7-0.parquet", file.name)))
    assert rows_of(globbed(out)).num_rows == 150
    return out


def test_T13_clickhouse_reads_what_is_committed(place: PlainPlace, crowded: Path) -> None:
    [query] = queries("ClickHouse", crowded)
    assert sorted(int(row["id"]) for row in place.select(query)) == list(range(100))


def test_T13_arrow_reads_the_files_of_the_list(crowded: Path) -> None:
    assert sorted(rows_of(listed(crowded)).column("id").to_pylist()) == list(range(100))


def test_T13_duckdb_reads_what_is_committed(crowded: Path) -> None:
    *before, query = queries("DuckDB", crowded)
    with duckdb.connect() as connection:
        for statement in before:
            connection.execute(statement)
        found = connection.sql(query).project("id").fetchall()
    assert sorted(found) == [(number,) for number in range(100)]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_T13_spark_reads_what_is_committed(place: PlainPlace, crowded: Path, spark_sql: SparkSql) -> None:
    view, query = queries("Spark", crowded)
    catalog = spark_sql.catalog("lake", uri=place.catalog_uri, warehouse=place.warehouse)
    catalog.execute(view)
    found = catalog.query(query)
    assert sorted(int(one) for one in found.column("id").to_pylist()) == list(range(100))
