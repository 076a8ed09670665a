"""`spark.read.format("calve")`: processes, backups and workers of a server, as tables of Spark."""

import pickle
from collections.abc import Iterator
from datetime import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve import Client
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.values import Selection
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.data_source import records
from calve.data_source.records import CalveDataSource
from calve.model.errors import UsageError
from calve.model.process import ProcessQuery
from calve.sql.tables import TABLES
from support.long_process import begin_a_long_one
from support.served import Served


@pytest.fixture(scope="module")
def calve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calve]:
    made = tmp_path_factory.mktemp("records")
    (made / "calve.toml").write_text(render())
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
        )
        session.execute("INSERT INTO db.t SELECT number, number % 5 FROM numbers(100)")
    with Calve(load_config(made / "calve.toml", environ={})) as opened:
        opened.export("db.t", "lake.ns.t", Selection(all=True))
        begin_a_long_one(opened.registry, tasks=1100)
        yield opened


@pytest.fixture(scope="module")
def url(calve: Calve) -> Iterator[str]:
    assert calve.config.file
    served = Served(calve.config.file.parent)
    yield served.url
    served.close()


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    spark.dataSource.register(CalveDataSource)
    return spark.read.format("calve").option("url", url).options(**options).load()


def test_processes_are_the_servers(spark: SparkSession, calve: Calve, url: str) -> None:
    found = load(spark, url, table="processes").orderBy("id").collect()
    known = sorted(calve.processes(ProcessQuery()), key=lambda one: one.id)
    assert [(row.id, row.state, row.partitions, row.tasks_total) for row in found] == [
        (one.id, one.state.value, list(one.partitions), one.tasks.total) for one in known
    ]
    assert {row.created_at.timestamp() for row in found} == {int(one.created_at.timestamp()) for one in known}
    # One job for all: each is a table, with rows or without.
    others = {name: load(spark, url, table=name) for name in ("tasks", "events", "backups", "workers")}
    counts = [others[name].selectExpr(f"'{name}' AS name", "1 AS one") for name in others]
    union = counts[0].union(counts[1]).union(counts[2]).union(counts[3])
    assert {row.name: row["count"] for row in union.groupBy("name").count().collect()} == {
        "tasks": 1100,
        "events": len(calve.events([one.id for one in known])),
    }
    [table] = load(spark, url, table="tables").where("destination = 'lake.ns.t'").collect()
    assert (table.kind, table.live, table.last_success_at) == ("export", 5, None)


def rows_of(table: str, url: str, token: str = "") -> list[dict[str, object]]:
    """What the driver reads, without a job of Spark."""
    source = CalveDataSource({"url": url, "table": table, "token": token})
    names = [column.split()[0] for column in source.schema().split(", ")]
    return [
        dict(zip(names, row, strict=True)) for page in source.reader(None).partitions() for row in page.rows
    ]


@pytest.mark.parametrize("table", ["processes", "tasks", "events", "tables", "backups", "workers"])
def test_a_table_has_the_rows_and_columns_of_calve_sql(url: str, table: str) -> None:
    with Client(url) as client:
        selected = client.sql(f"SELECT * FROM calve.{table}")
    found = rows_of(table, url)
    plain = [{name: _plain(value) for name, value in row.items()} for row in found]
    assert sorted(map(str, plain)) == sorted(map(str, selected))


def _plain(value: object) -> object:
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value


def test_rows_are_read_on_the_driver_and_the_token_stays_there(
    calve: Calve, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_ROWS", 4)
    text = calve.token_new("viewer")["token"]
    reader = CalveDataSource({"url": url, "table": "processes", "token": text}).reader(None)
    assert text not in repr(reader)
    pages = reader.partitions()
    assert [len(page.rows) for page in pages] == [4, 2]
    assert text.encode() not in pickle.dumps((reader, pages))
    assert [row[0] for page in pages for row in reader.read(page)] == [
        one.id for one in calve.processes(ProcessQuery())
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"table": "secrets"},
            "unknown table 'secrets': tables are backups, events, holds, processes, schedules, tables, tasks, workers",
        ),
        (
            {},
            "option table is missing: tables are backups, events, holds, processes, schedules, tables, tasks, workers",
        ),
        (
            {"pasword": "hunter2"},
            "unknown option 'pasword': options are url, table, token, token_file, ca_file",
        ),
    ],
)
def test_what_it_does_not_know_is_refused_in_a_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        CalveDataSource(options).schema()
    assert caught.value.message == said


def test_every_type_of_a_column_is_one_of_spark() -> None:
    for table in TABLES.values():
        for _, kind in table.schema.columns:
            if table.schema.name.startswith("calve."):
                assert records.spark_type(kind) in {
                    "STRING",
                    "BIGINT",
                    "BOOLEAN",
                    "TIMESTAMP",
                    "ARRAY<STRING>",
                }
