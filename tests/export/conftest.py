from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.spark.runner import SparkRunner
from support.place import Place, kept_place
from support.sparks import LOCAL, Sparks

EVENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, day Date, at DateTime64(3), score Float64, note Nullable(String),"
    " tag LowCardinality(String), tags Array(String), counts Map(String, UInt32), price Decimal(12, 2))"
    " ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY (day, id)",
    *(
        f"INSERT INTO db.events SELECT number + {first}, toDate('2024-0{month}-01') + number % 28,"
        " toDateTime64('2024-01-01 00:00:00.123', 3, 'UTC') + number, number / 3,"
        " if(number % 5 = 0, NULL, toString(number)), toString(number % 7), [toString(number % 3)],"
        f" map('k', number % 11), number / 100 FROM numbers(500)"
        for month in (1, 2, 3)
        for first in (0, 10000)
    ),
)


@pytest.fixture
def runner(request: pytest.FixtureRequest, sparks: Sparks) -> SparkRunner:
    """In one JVM, unless a test asks for executors that are processes of their own too (D16)."""
    return sparks.runner(getattr(request, "param", LOCAL))


@pytest.fixture
def place(tmp_path: Path, runner: SparkRunner) -> Iterator[Place]:
    with kept_place(tmp_path, runner) as place:
        place.execute(*EVENTS)
        yield place
