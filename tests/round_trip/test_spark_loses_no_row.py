"""The engine's defaults make other readers lose rows silently (W1 to W5): asked with filters and
deletes, by Spark first of all, since that is where each of these was seen."""

from collections.abc import Iterator
from typing import Any

import pytest
from three_readers import Readers

from calve.model.states import ProcessState

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PRECISIONS = (1, 5, 9, 10, 18, 19, 20, 28, 38)
LONG = "repeat('x', 5000)"
STATEMENTS = {
    "moments": (
        "CREATE TABLE db.moments (id Int32, a DateTime('Asia/Tokyo'), b DateTime64(0), c DateTime64(3, 'UTC'),"
        " d DateTime64(6, 'America/New_York')) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.moments SELECT number, toDateTime(1700000000 + number), 1700000000 + number,"
        " fromUnixTimestamp64Milli(1700000000123 + number), fromUnixTimestamp64Micro(-1700000000123456 + number)"
        " FROM numbers(50)",
    ),
    "decimals": (
        f"CREATE TABLE db.decimals (id Int32, u UInt64, {', '.join(f'd{p} Decimal({p}, 0)' for p in PRECISIONS)})"
        " ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.decimals SELECT number, 18446744073709551615 - number,"
        f" {', '.join(f'number % 10 AS d{p}' for p in PRECISIONS)} FROM numbers(50)",
    ),
    "texts": (
        "CREATE TABLE db.texts (id Int32, s String) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.texts SELECT number, multiIf(number = 0, {LONG}, number = 1, concat({LONG}, 'y'),"
        " number = 2, '', toString(number)) FROM numbers(20)",
    ),
    "zeros": (
        "CREATE TABLE db.zeros (id Int32, f Float64, g Nullable(Float32)) ENGINE = MergeTree PARTITION BY id ORDER BY id",
        "INSERT INTO db.zeros SELECT number, [-1., -0., 0., 1.][number + 1] AS f, f FROM numbers(4)",
    ),
    "uuids": (
        "CREATE TABLE db.uuids (id Int32, u UUID, n Nullable(UUID)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.uuids SELECT number, reinterpretAsUUID(unhex(repeat(leftPad(hex(number * 16), 2, '0'), 16))) AS u,"
        " if(number = 3, NULL, u) FROM numbers(16)",
    ),
} | {
    name: (
        f"CREATE TABLE db.{name} (id Int32, f Float64, g Nullable(Float32)) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{name} SELECT number, if(number % 4 = 0, nan, number - 8) AS f, if(number = 5, NULL, f) FROM numbers(16)",
    )
    for name in ("nans", "nans_by_pyiceberg")
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(readers: Readers) -> Iterator[Readers]:
    place = readers.place
    with place.app() as app:
        for statements in STATEMENTS.values():
            place.execute(*statements)
        ids = [one for name in STATEMENTS for one in place.submit(app, f"db.{name}", f"lake.ns.{name}")]
        for process in place.finish(app, ids):
            assert process.state is ProcessState.COMPLETED, process.error
    yield readers


def ids(lake: Readers, table: str, where: str) -> list[int]:
    found: list[int] = lake.spark.query(f"SELECT id FROM lake.ns.{table} WHERE {where} ORDER BY id")[
        "id"
    ].to_pylist()
    return found


def by_all(wanted: list[int]) -> dict[str, list[int]]:
    return dict.fromkeys(("pyiceberg", "clickhouse", "spark"), wanted)


def source_ids(lake: Readers, table: str, where: str) -> list[int]:
    return [row["id"] for row in lake.place.select(f"SELECT id FROM db.{table} WHERE {where} ORDER BY id")]


def test_W1_spark_finds_every_instant_by_equality_and_range(lake: Readers) -> None:
    for column, first in (
        ("a", 1_700_000_000_000_000),
        ("b", 1_700_000_000_000_000),
        ("c", 1_700_000_000_123_000),
    ):
        step = 1_000 if column == "c" else 1_000_000
        for number in (0, 7, 49):
            literal = f"timestamp_micros({first + number * step}L)"
            assert ids(lake, "moments", f"{column} = {literal}") == [number], column
            assert ids(lake, "moments", f"{column} < {literal}") == list(range(number)), column
    assert ids(lake, "moments", "d = timestamp_micros(-1700000000123456L)") == [0]


def test_P4_spark_reads_a_uint64_as_the_number_that_it_is(lake: Readers) -> None:
    found = lake.spark.query("SELECT max(u) AS high, min(u) AS low FROM lake.ns.decimals").to_pylist()
    assert [int(value) for value in found[0].values()] == [2**64 - 1, 2**64 - 50]
    assert ids(lake, "decimals", "u = 18446744073709551600") == [15]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_W2_spark_finds_every_decimal_by_equality(lake: Readers, precision: int) -> None:
    for number in (0, 3, 9):
        literal = f"CAST({number} AS DECIMAL({precision}, 0))"
        assert ids(lake, "decimals", f"d{precision} = {literal}") == list(range(number, 50, 10))


def test_W2_a_delete_by_a_decimal_takes_exactly_its_rows(lake: Readers) -> None:
    lake.spark.execute("DELETE FROM lake.ns.decimals WHERE d20 = 7")
    left = [number for number in range(50) if number % 10 != 7]
    assert lake.ids("decimals") == by_all(left)


def test_W3_text_beyond_what_footers_keep_is_found_and_outlives_deletes(lake: Readers) -> None:
    long = "repeat('x', 5000)"
    for where in (f"s = {long}", f"s > {long}", f"s >= {long}", "s = ''", "s < '0'", "s > 'w'", "s = '19'"):
        found = ids(lake, "texts", where)
        assert found and found == source_ids(lake, "texts", where), where
    lake.spark.execute("DELETE FROM lake.ns.texts WHERE s < 'x'")
    assert lake.ids("texts") == by_all([0, 1])


def test_W3_a_zero_is_a_zero_whatever_its_sign(lake: Readers) -> None:
    """Each is alone in its file, where only statistics and dictionaries can hide it."""
    for column in ("f", "g"):
        for zero in ("0.0D", "-0.0D"):
            for sign, wanted in (("=", [1, 2]), (">=", [1, 2, 3]), ("<=", [0, 1, 2]), (">", [3]), ("<", [0])):
                assert ids(lake, "zeros", f"{column} {sign} {zero}") == wanted, (column, sign, zero)


def _nan_rows_left(lake: Readers, table: str) -> None:
    kept: list[Any] = [number for number in range(16) if number % 4 == 0 or number - 8 >= 100]
    assert lake.ids(table) == by_all(kept)


def test_W4_a_delete_below_a_number_keeps_the_NaN_rows(lake: Readers) -> None:
    lake.spark.execute("DELETE FROM lake.ns.nans WHERE f < 100")
    _nan_rows_left(lake, "nans")


def test_W4_a_delete_by_pyiceberg_keeps_the_NaN_rows_too(lake: Readers) -> None:
    lake.place.table("lake.ns.nans_by_pyiceberg").delete("f < 100")
    _nan_rows_left(lake, "nans_by_pyiceberg")


def test_W5_spark_finds_and_deletes_by_uuid(lake: Readers) -> None:
    known = lake.place.select("SELECT id, toString(u) AS u FROM db.uuids ORDER BY id")
    assert len({row["u"] for row in known}) == 16
    for row in known:
        assert ids(lake, "uuids", f"u = '{row['u']}'") == [row["id"]]
    assert ids(lake, "uuids", f"n = '{known[15]['u']}'") == [15]
    assert ids(lake, "uuids", "n IS NULL") == [3]
    lake.spark.execute(f"DELETE FROM lake.ns.uuids WHERE u = '{known[9]['u']}'")
    left = [number for number in range(16) if number != 9]
    assert lake.ids("uuids") == by_all(left)
