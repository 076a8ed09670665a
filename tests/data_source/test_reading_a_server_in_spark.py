"""`spark.read.format("mergetree")` over a live server: the same rows, and no more of them than needed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.data_source import mergetree
from calve.data_source.mergetree import FilteringReader
from calve.data_source.options import Options
from calve.model.errors import UsageError
from support.clickhouse_front import FrontOptions, FrontUser, clickhouse_front
from support.clickhouse_server import ServerOptions as OldOptions
from support.clickhouse_server import User, clickhouse_server
from support.network_proxy import NetworkProxy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "canary-Pa55word-of-spark"
TIMEZONE = "America/St_Johns"  # an offset of half an hour: a shift cannot hide
EVENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, n Int32, at DateTime, day Date, s Nullable(String), e Enum8('a' = 1, 'b' = 2),"
    " price Decimal(12, 2), tags Array(String), pair Nested(k String, v UInt8))"
    " ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id SETTINGS index_granularity = 1024",
    *(
        "INSERT INTO db.events SELECT number AS id, number - 100, toDateTime(1700000000 + number),"
        f" toDate('2024-0{month}-01') + number % 28, if(number % 5 = 0, NULL, concat('é', toString(number))),"
        " if(number % 2, 'a', 'b'), toDecimal64(number, 2) / 4, ['x', toString(number)], ['k'], [7]"
        " FROM numbers(20000)"
        for month in (1, 2)
    ),
)


class Server:
    """A running server, and a source to look at it with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._source = ServerSource("main", ServerOptions(url=url, password=PASSWORD, id="test"))

    def run(self, *statements: str) -> None:
        with self._source.visit() as session:
            for statement in statements:
                session.execute(statement)

    def number(self, sql: str) -> int:
        with self._source.visit() as session:
            return int(session.rows(sql)[0]["n"])

    def options(self, **more: str) -> dict[str, str]:
        return {"source": self.url, "password": PASSWORD, **more}


def load(spark: SparkSession, server: Server, table: str = "db.events", **more: str) -> DataFrame:
    return spark.read.format("mergetree").options(**server.options(**more)).load(table)


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    users = {"default": FrontUser(password=PASSWORD), "reader": FrontUser(password=PASSWORD, readonly=1)}
    with clickhouse_front(
        tmp_path_factory.mktemp("today"), FrontOptions(users=users, timezone=TIMEZONE)
    ) as front:
        server = Server(front.url)
        server.run(*EVENTS, "DELETE FROM db.events WHERE id % 100 = 99")
        yield server


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Debian's server of 2018: no lightweight deletes, no ranges of a part, none of today's functions."""
    users = {"default": User(password=PASSWORD)}
    with clickhouse_server(
        tmp_path_factory.mktemp("old"), OldOptions(users=users, timezone=TIMEZONE)
    ) as server:
        made = Server(server.url)
        made.run(*EVENTS)
        yield made


@pytest.fixture(params=["today", "old"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def test_rows_and_instants_are_those_of_the_server(spark: SparkSession, server: Server) -> None:
    frame = load(spark, server)
    assert dict(frame.dtypes) == {
        "id": "decimal(20,0)", "n": "int", "at": "timestamp", "day": "date", "s": "string", "e": "string",
        "price": "decimal(12,2)", "tags": "array<string>", "pair": "array<struct<k:string,v:int>>",
    }  # fmt: skip
    assert frame.count() == server.number("SELECT count() AS n FROM db.events")
    [row] = frame.where("id = 51 AND month(day) = 1").collect()
    assert row["at"].timestamp() == 1_700_000_051, "whatever the zone of the server"
    assert (row["n"], str(row["day"]), row["s"], row["e"], str(row["price"]), row["tags"]) == (
        -49, "2024-01-24", "é51", "a", "12.75", ["x", "51"],
    )  # fmt: skip
    assert [pair.asDict() for pair in row["pair"]] == [{"k": "k", "v": 7}]
    total = frame.selectExpr("sum(id)", "sum(n)", "count(s)").collect()[0]
    asked = ("sum(toInt64(id))", "sum(n)", "count(s)")
    assert [int(value) for value in total] == [
        server.number(f"SELECT {one} AS n FROM db.events") for one in asked
    ]


@pytest.mark.parametrize(
    ("at", "where"),
    [
        ("today", "id IN (1, 2, 299) AND day >= DATE'2024-02-01' AND s LIKE 'é2%'"),
        ("today", "at < timestamp_micros(1700000007000000L) AND e = 'b' AND price >= 0.5 AND s IS NOT NULL"),
        ("old", "at < timestamp_micros(1700000007000000L) AND n >= -98 AND e = 'b'"),
    ],
    ids=["texts-and-days", "instants-and-decimals", "old"],
)
def test_filters_that_the_server_takes_change_no_result(
    spark: SparkSession, request: pytest.FixtureRequest, at: str, where: str
) -> None:
    server: Server = request.getfixturevalue(at)
    frames = (load(spark, server, pushdown="true"), load(spark, server))
    pushed, alone = (
        sorted((row["day"], row["id"]) for row in frame.where(where).collect()) for frame in frames
    )
    assert pushed == alone and pushed


def test_only_the_columns_and_rows_that_are_needed_cross_the_network(
    spark: SparkSession, today: Server
) -> None:
    def bytes_of(frame: DataFrame) -> int:
        before = proxy.counts.answer_bytes
        frame.write.format("noop").mode("overwrite").save()
        return proxy.counts.answer_bytes - before

    with NetworkProxy(int(today.url.rsplit(":", 1)[1])) as proxy:
        through = Server(proxy.url)
        whole = bytes_of(load(spark, through))
        narrow = bytes_of(load(spark, through, columns="n, tags"))
        few = bytes_of(load(spark, through, columns="n, tags", pushdown="true").where("n < 10"))
    assert whole > 2 * narrow > 8 * few, (whole, narrow, few)


def test_parts_and_ranges_of_them_are_spark_partitions(
    spark: SparkSession, today: Server, old: Server
) -> None:
    today.run(
        "CREATE TABLE db.big (id UInt64, s FixedString(64)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.big SELECT number, randomFixedString(64) FROM numbers(60000)",
    )
    old.run(
        "CREATE TABLE db.big (id UInt64, s FixedString(64)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.big SELECT number, toFixedString(hex(rand64(1)), 64) FROM numbers(60000)",
    )
    for server, least, most in ((today, 3, 99), (old, 1, 1)):
        big = load(spark, server, "db.big", split_mb="1")
        assert least <= big.rdd.getNumPartitions() <= most, "an old server has no ranges"
        assert big.count() == big.select("id").distinct().count() == 60_000
    chosen = load(spark, today, partitions="202402", columns="day")
    assert chosen.count() == 19_800 and chosen.rdd.getNumPartitions() == 1


def test_a_user_who_may_only_read_reads(spark: SparkSession, today: Server, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    frame = (
        spark.read.format("mergetree")
        .options(source=today.url, user="reader", password_file=str(file), columns="n", pushdown="true")
        .load("db.events")
    )
    assert frame.where("n < 0").count() == 2 * (100 - 1)


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_P7_a_part_that_was_merged_away_meanwhile_fails_its_task(
    spark: SparkSession, today: Server, pushdown: str
) -> None:
    """With a filter at the server no row comes of such a part, and none is missed by counting either."""
    today.run(
        "CREATE OR REPLACE TABLE db.moving (id Int64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.moving SELECT number FROM numbers(10)",
        "INSERT INTO db.moving SELECT number FROM numbers(10, 10)",
    )
    rows = load(spark, today, "db.moving", pushdown=pushdown).where("id >= 5").rdd
    assert rows.getNumPartitions() == 1
    today.run("OPTIMIZE TABLE db.moving FINAL")
    with pytest.raises(Exception, match="the part was merged, mutated or dropped since it was planned"):
        rows.collect()


def test_row_policies_hide_from_spark_what_they_hide_from_the_user(
    spark: SparkSession, tmp_path: Path
) -> None:
    policies = {"system.row_policies": "(SELECT 'mine' AS name, 'db' AS database, 't' AS table)"}
    users = {"default": FrontUser(password=PASSWORD)}
    with clickhouse_front(tmp_path / "front", FrontOptions(users=users, stand_ins=policies)) as front:
        server = Server(front.url)
        server.run(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id Int64) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number FROM numbers(10)",
        )
        assert load(spark, server, "db.t").count() == 10, "the server says how many there are"


def test_P22_a_password_is_in_no_plan_error_or_text_of_an_object(spark: SparkSession, today: Server) -> None:
    frame = load(spark, today, columns="n", pushdown="true").where("n < 0")
    execution = frame._jdf.queryExecution()
    shown = [execution.toString(), execution.stringWithStats(), frame._jdf.schema().json()]
    shown += [str(execution.logical().toJSON()), execution.executedPlan().treeString()]
    options = Options.of({"path": "db.events", **today.options()})
    reader = mergetree.MergeTreeReader(options, StructType([StructField("n", IntegerType())]))
    partitions = reader.partitions()
    assert PASSWORD in json.loads(partitions[0].payload)["reader"]["access"].values(), "executors do get it"
    shown += [repr(options), repr(reader), repr(reader.found), repr(partitions)]
    with pytest.raises(PySparkException) as failed:
        load(spark, Server(today.url), "db.events", password=f"wrong-{PASSWORD}").collect()
    assert "user" in str(failed.value)
    shown.append(str(failed.value))
    assert not [text for text in shown if PASSWORD in text]


def test_conditions_too_long_for_a_url_or_open_to_settings_stay_here(today: Server) -> None:
    schema = StructType([StructField("n", IntegerType()), StructField("s", StringType())])
    options = Options.of({"path": "db.events", **today.options(columns="n, s")})
    reader = FilteringReader(options, schema)
    many = ds.In(("n",), tuple(range(5000)))
    taken = [many, ds.LessThan(("n",), 7), ds.EqualTo(("s",), "x")]
    assert reader.pushFilters(taken) == taken, "Spark evaluates every one again"
    detail = json.loads(reader.partitions()[0].payload)["relation"]["detail"]
    assert detail["where"] == "(`s` = unhex('78')) AND (`n` < toInt64('7'))"
    assert len(reader.where) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": "chdb:///x", "user": "me"}, "option user needs a server"),
        ({"source": "http://h:1", "frozen": "f"}, "a freeze is read as files"),
        ({"source": "http://h:1", "password": "a", "password_file": "/b"}, "not both"),
        ({"source": "http://h:1", "password_file": "/no/such/file"}, "cannot read password_file"),
    ],
)
def test_options_that_do_not_fit_a_server_are_usage_errors(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Options.of({"path": "db.t", **options})


def test_the_example_of_the_docs_reads_a_server(
    spark: SparkSession, today: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    page = (ROOT / "docs" / "spark-data-source.md").read_text()
    [example] = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "http://" in text]
    example = example.replace("http://clickhouse:8123", today.url).replace(
        "/run/secrets/clickhouse", str(file)
    )
    exec(example, {"spark": spark})
    assert re.search(r"\|\s*a\|\s*98\|", capsys.readouterr().out), "rows of January with an id below 200"
