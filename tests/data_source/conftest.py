from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from calve.data_source.mergetree import MergeTreeDataSource
from support.place import Place
from support.sparks import LOCAL, Sparks


@pytest.fixture(scope="module")
def spark(sparks: Sparks) -> SparkSession:
    sparks.runner(LOCAL).warm()
    session = SparkSession.builder.config("spark.sql.python.filterPushdown.enabled", "true").getOrCreate()
    session.dataSource.register(MergeTreeDataSource)
    return session


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(Path(tmp_path_factory.mktemp("data-source")))
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64, n Int32, at DateTime64(3, 'Asia/Tokyo'), day Date, f Float64,"
        " s Nullable(String), u UUID, fs FixedString(4), e Enum8('a' = 1, 'b' = 2), tags Array(UInt32),"
        " m Map(String, Decimal(10, 2)), t Tuple(a UInt8, b Array(Nullable(String))))"
        " ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        *(
            "INSERT INTO db.events SELECT number AS id, number - 100, fromUnixTimestamp64Milli(1700000000123 + number),"
            f" toDate('2024-0{month}-01') + number % 28, if(number % 50 = 0, nan, number / 3),"
            " if(number % 5 = 0, NULL, concat('é', toString(number))), toUUID('00000000-0000-0000-0000-000000000007'),"
            " 'ab', if(number % 2, 'a', 'b'), [number, 4294967295], map('k', number / 4), (number % 200, [NULL, 'x'])"
            " FROM numbers(300)"
            for month in (1, 2)
        ),
        "SYSTEM START MERGES",
        "DELETE FROM db.events WHERE id % 100 = 99",
        "CREATE TABLE db.big (id UInt64, s FixedString(64)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.big SELECT number, randomFixedString(64) FROM numbers(200000)",
    )
    return place
