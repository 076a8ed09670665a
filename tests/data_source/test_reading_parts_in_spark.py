"""`spark.read.format("mergetree")`: the same rows, types and filters as ClickHouse has them."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds

from calve.app.backups.requests import BackupReach
from calve.backup import submit
from calve.backup.request import BackupOptions
from calve.clickhouse.tables import Column
from calve.data_source.filters import condition
from calve.data_source.options import Options
from calve.export.choices import Choices
from calve.export.columns import map_columns
from calve.model.errors import UsageError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place
from support.sparks import java_options

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


def load(spark: SparkSession, place: Place, table: str = "db.events", **options: str) -> DataFrame:
    source = f"chdb://{place.folder / 'clickhouse'}"
    return spark.read.format("mergetree").options(source=source, **options).load(table)


def test_rows_and_types_are_those_of_an_exported_table(spark: SparkSession, place: Place) -> None:
    frame = load(spark, place)
    assert dict(frame.dtypes) == {
        "id": "decimal(20,0)", "n": "int", "at": "timestamp", "day": "date", "f": "double", "s": "string",
        "u": "string", "fs": "binary", "e": "string", "tags": "array<bigint>",
        "m": "map<string,decimal(10,2)>", "t": "struct<a:int,b:array<string>>",
    }  # fmt: skip
    assert not frame.schema["id"].nullable and frame.schema["s"].nullable
    rows = [row.asDict(recursive=True) for row in frame.orderBy("day", "id").toLocalIterator()]
    assert len(rows) == 2 * (300 - 3), "deleted rows stay away"
    first = next(row for row in rows if row["id"] == 51)
    assert first["at"].timestamp() == 1_700_000_000.174
    assert {key: str(value) for key, value in first.items() if key in ("n", "day", "s", "u", "e")} == {
        "n": "-49", "day": "2024-01-24", "s": "é51", "u": "00000000-0000-0000-0000-000000000007", "e": "a",
    }  # fmt: skip
    assert bytes(first["fs"]) == b"ab\0\0" and first["f"] == 17.0
    assert first["tags"] == [51, 4294967295] and str(first["m"]["k"]) == "12.75"
    assert first["t"] == {"a": 51, "b": [None, "x"]}
    assert math.isnan(next(row for row in rows if row["id"] == 50)["f"])
    [source] = place.select("SELECT sum(id) AS ids, sum(n) AS n FROM db.events")
    assert (sum(int(row["id"]) for row in rows), sum(row["n"] for row in rows)) == (
        source["ids"],
        source["n"],
    )


def test_filters_give_what_they_give_without_pushing_them_down(spark: SparkSession, place: Place) -> None:
    alone, pushing = load(spark, place).cache(), load(spark, place, pushdown="true")
    for where in (
        "n >= 150 AND n < 160 AND s LIKE 'é2%'",
        "id IN (1, 2, 299) AND day >= DATE'2024-02-01'",
        "at < timestamp_micros(1700000000130000L) AND e = 'b'",
        "s IS NULL AND f > 30",
    ):
        pushed, given = (
            sorted(row["id"] for row in frame.where(where).select("id").collect())
            for frame in (pushing, alone)
        )
        assert pushed == given and pushed, where
    alone.unpersist()


def test_partitions_columns_and_ranges_are_chosen_by_options(spark: SparkSession, place: Place) -> None:
    frame = load(spark, place, partitions="202402", columns="n, day")
    assert frame.columns == ["n", "day"] and frame.count() == 297
    assert {str(row["day"])[:7] for row in frame.select("day").distinct().collect()} == {"2024-02"}
    big = load(spark, place, "db.big", split_mb="4")
    assert big.rdd.getNumPartitions() >= 3, "one part, several Spark partitions"
    assert big.count() == big.select("id").distinct().count() == 200_000


def test_a_freeze_is_read_as_it_was_when_it_was_taken(spark: SparkSession, place: Place) -> None:
    place.execute(
        "CREATE TABLE db.thawing (id Int64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.thawing SELECT number FROM numbers(10)",
        "ALTER TABLE db.thawing FREEZE WITH NAME 'nightly-1'",
        "TRUNCATE TABLE db.thawing",
    )
    frozen = load(spark, place, "db.thawing", frozen="nightly-1")
    assert sorted(row["id"] for row in frozen.collect()) == list(range(10))
    assert load(spark, place, "db.thawing").collect() == []
    with pytest.raises(PySparkException, match="the freeze other has no parts"):
        load(spark, place, "db.thawing", frozen="other").collect()


def test_a_signed_backup_is_read_though_its_source_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    runner = LocalRunner(slots=1)
    place = Place(tmp_path, runner)
    config = tmp_path / "calve.toml"
    config.write_text(config.read_text().replace('# signing_key = ""', 'signing_key = "k3y"'))
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.kept (id Int64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
        "INSERT INTO db.kept SELECT number, toString(number) FROM numbers(20)",
    )
    with place.app() as app:
        reach = BackupReach(app)
        request = submit.request_of(reach, "b", "main", ("db.*",), BackupOptions(mutations="refuse"))
        [process] = place.finish(app, [submit.submit(reach, app.store, request).process.id])
    runner.close()
    assert process.state is ProcessState.COMPLETED, process.error
    shutil.rmtree(tmp_path / "clickhouse")
    read = spark.read.format("mergetree").options(backup="b", backups=str(tmp_path / "backups"))
    assert sorted((row["id"], row["s"]) for row in read.load("db.kept").collect()) == [
        (number, str(number)) for number in range(20)
    ]
    assert read.option("partitions", "1").load("db.kept").count() == 10
    by_config = spark.read.format("mergetree").options(backup="b", config=str(config))
    assert by_config.load("db.kept").count() == 20
    with pytest.raises(PySparkException, match="is signed with another key"):
        by_config.option("signing_key", "another").load("db.kept")


def test_a_configuration_names_the_source(spark: SparkSession, place: Place) -> None:
    read = spark.read.format("mergetree").option("config", str(place.folder / "calve.toml"))
    assert read.load("main:db.events").count() == read.load("db.events").count() == 594


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colunms": "id"}, "unknown option 'colunms'; did you mean 'columns'?"),
        ({"path": "db.evnts"}, "db.evnts does not exist (hint: did you mean db.events?)"),
        ({"partitions": "209901"}, "db.events has no partition 209901 (hint: it has 202401"),
        ({"columns": "idd"}, "table db.events has no column idd (hint: it has id, n, at"),
        ({"source": "/data"}, "invalid embedded source '/data'"),
        ({"source": "chdb:///no/such/folder"}, "/no/such/folder"),
        (
            {"source": "", "backup": "b", "backups": "/no/backups"},
            "there is no backup 'b' in file:///no/backups",
        ),
        ({"source": "", "config": "/no/calve.toml"}, "/no/calve.toml"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    spark: SparkSession, place: Place, options: dict[str, str], words: str
) -> None:
    given = {"source": f"chdb://{place.folder / 'clickhouse'}", "path": "db.events"} | options
    with pytest.raises(PySparkException) as met:
        spark.read.format("mergetree").options(**given).load().collect()
    shown = str(met.value)
    assert words in shown.splitlines()[0]
    assert "Traceback" not in shown and "calve/" not in shown


@pytest.mark.usefixtures("sparks")  # beside the others, for their place; its own Spark is in its program
def test_the_example_of_the_docs_runs(place: Place) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "spark_data_source.py", f"chdb://{place.folder / 'clickhouse'}", "db.events"],
        capture_output=True, text=True, timeout=300, cwd=place.folder,
        env={**os.environ, "SPARK_SUBMIT_OPTS": java_options()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "594" in done.stdout and "decimal(20,0)" in done.stdout


def test_columns_without_a_type_are_refused_by_name_unless_left_out(
    spark: SparkSession, place: Place
) -> None:
    place.execute(
        "CREATE TABLE db.wide (id Int64, w Int256) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.wide VALUES (1, 2)",
    )
    with pytest.raises(PySparkException, match="w: Int256"):
        load(spark, place, "db.wide")
    assert load(spark, place, "db.wide", columns="id").collect()[0]["id"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "db.t"}, "either the option source"),
        ({"path": "db.t", "source": "chdb:///x", "backup": "b", "backups": "/b"}, "either"),
        ({"path": "db.t", "backup": "b"}, "go together"),
        ({"source": "chdb:///x"}, "no table given"),
        ({"path": "db.t", "source": "chdb:///x", "colunms": "a"}, "unknown option 'colunms'"),
        ({"path": "db.t", "source": "chdb:///x", "colunms": "a"}, "did you mean 'columns'"),
        ({"path": "db.t", "source": "chdb:///x", "zzz": "a"}, "the options are path, config, source"),
        ({"path": "db.t", "source": "chdb:///x", "split_mb": "0"}, "not a number of megabytes"),
        ({"path": "db.t", "source": "chdb:///x", "pushdown": "yes"}, "invalid pushdown 'yes'"),
        (
            {"path": "db.t", "backup": "b", "backups": "/b", "signing_key_file": "/no/key"},
            "read signing_key_file",
        ),
        ({"path": "db.t", "config": "/no/calve.toml"}, "/no/calve.toml"),
    ],
)
def test_options_that_cannot_be_are_usage_errors(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Options.of(options)


@pytest.mark.parametrize(
    ("one", "sql"),
    [
        (ds.EqualTo(("n",), 5), "n` = toInt64('5')"),
        (ds.LessThan(("s",), "a'b"), "s` < unhex('612762')"),
        (ds.In(("n",), (1, None)), "IN (toInt64('1'))"),
        (ds.IsNull(("s",)), "isNull("),
        (ds.GreaterThan(("f",), 1.5), None),  # NaN is greater in Spark, and not in ClickHouse
        (ds.EqualTo(("t", "a"), 5), None),
        (ds.StringContains(("s",), "x"), None),
        (ds.Not(ds.EqualTo(("n",), 5)), None),
    ],
)
def test_only_filters_that_mean_no_less_to_clickhouse_are_pushed_down(one: Any, sql: str | None) -> None:
    kinds = {"n": "Int32", "s": "String", "f": "Float64", "t": "Tuple(a Int8)"}
    mapping = map_columns([Column(name=name, type=kind) for name, kind in kinds.items()], Choices())
    found = condition(one, {column.name: column for column in mapping.columns})
    assert found is None if sql is None else found is not None and sql in found
