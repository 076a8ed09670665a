"""`spark.read.format("calve")`: processes, backups and workers of a server, as tables of Spark."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.values import Selection
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.data_source import records
from calve.data_source.records import CalveDataSource
from calve.model.errors import UsageError
from calve.model.process import ProcessQuery
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
    assert load(spark, url, table="exports").where("destination = 'lake.ns.t'").count() == 5
    assert load(spark, url, table="backups").collect() == []
    assert load(spark, url, table="workers").columns[:3] == ["id", "host", "state"]


def test_pages_are_read_on_the_driver_and_the_token_stays_there(
    calve: Calve, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_PAGE", 2)
    text = calve.token_new("viewer")["token"]
    reader = CalveDataSource({"url": url, "token": text}).reader(None)
    assert text not in repr(reader)
    pages = reader.partitions()
    assert [len(page.rows) for page in pages] == [2, 2, 1]
    assert text.encode() not in pickle.dumps((reader, pages))
    assert [row[0] for page in pages for row in reader.read(page)] == [
        one.id for one in calve.processes(ProcessQuery())
    ]


@pytest.mark.parametrize("options", [{"table": "secrets"}, {"pasword": "hunter2"}])
def test_what_it_does_not_know_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        CalveDataSource(options).schema()
    assert "hunter2" not in caught.value.message
