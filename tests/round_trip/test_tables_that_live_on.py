"""After the export the table is everybody's: columns are renamed and widened, partitions are asked for."""

import pytest
from pyiceberg.types import LongType
from three_readers import Readers

from calve.model.states import ProcessState

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(readers: Readers) -> Readers:
    place = readers.place
    place.execute(
        "CREATE TABLE db.renamed (id Int32, a Int32, b String, t Tuple(x Int32, y String)) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.renamed SELECT number, number * 2, toString(number), (number, 'y') FROM numbers(10)",
        # one part that spans days, countries and the null partition
        "CREATE TABLE db.spanning (id Int32, at DateTime('Asia/Tokyo'), country Nullable(String)) ENGINE = MergeTree"
        " ORDER BY id",
        "INSERT INTO db.spanning SELECT number, toDateTime('2024-01-01 00:00:00', 'UTC') + number * 3600,"
        " [NULL, 'a/b', '', 'é'][number % 4 + 1] FROM numbers(96)",
    )
    place.execute(
        "CREATE TABLE db.lengthy (id Int32, s String) ENGINE = MergeTree PARTITION BY s ORDER BY id",
        "INSERT INTO db.lengthy SELECT number, concat(repeat('é/', 300), toString(number % 2)) FROM numbers(4)",
    )
    with place.app() as app:
        ids = place.submit(app, "db.renamed", "lake.ns.renamed")
        ids += place.submit(app, "db.spanning", "lake.ns.spanning", partition_by="day(at), country")
        ids += place.submit(app, "db.lengthy", "lake.ns.lengthy")
        for process in place.finish(app, ids):
            assert process.state is ProcessState.COMPLETED, process.error
    return readers


def test_P1_renamed_moved_and_widened_columns_are_found_by_their_ids(lake: Readers) -> None:
    before = lake.rows("renamed")
    assert before["pyiceberg"] == before["clickhouse"] == before["spark"]
    with lake.place.table("lake.ns.renamed").update_schema() as update:
        update.rename_column("a", "b_too")
        update.rename_column("t.x", "z")
        update.update_column("a", LongType())
        update.move_first("b")
        update.add_column("later", LongType())
    for reader, rows in lake.rows("renamed").items():
        assert {number: [row[1], row[2], row[0], row[3], row[4]] for number, row in rows.items()} == {
            number: [*row, None] for number, row in before["pyiceberg"].items()
        }, reader
    assert lake.spark.query("SELECT id FROM lake.ns.renamed WHERE b_too = 18")["id"].to_pylist() == [9]


def test_P13_a_part_that_spans_partitions_is_filed_under_each_and_spark_prunes_by_them(lake: Readers) -> None:
    files = lake.spark.query(
        "SELECT partition.at_day AS day, partition.country AS country, sum(record_count) AS n"
        " FROM lake.ns.spanning.files GROUP BY ALL"
    ).to_pylist()
    found = {(str(row["day"]), row["country"]): row["n"] for row in files}
    source = lake.place.select(
        "SELECT toString(toDate(at, 'UTC')) AS day, country, count() AS n FROM db.spanning GROUP BY ALL"
    )
    assert found == {(row["day"], row["country"]): row["n"] for row in source}
    assert len(found) == 16
    day = "at >= TIMESTAMP'2024-01-02 00:00:00' AND at < TIMESTAMP'2024-01-03 00:00:00'"
    for where, ids in (
        (f"{day} AND country IS NULL", range(24, 48, 4)),
        ("country = 'a/b'", range(1, 96, 4)),
        ("country = ''", range(2, 96, 4)),
    ):
        rows = lake.spark.query(f"SELECT id FROM lake.ns.spanning WHERE {where} ORDER BY id")
        assert rows["id"].to_pylist() == list(ids), where


def test_D10_a_partition_value_longer_than_a_file_name_chooses_a_folder_all_the_same(lake: Readers) -> None:
    files = list(lake.place.table("lake.ns.lengthy").scan().plan_files())
    folders = {file.file.file_path.rsplit("/", 2)[1] for file in files}
    assert len(folders) == 2 and all(len(folder) < 255 for folder in folders)
    rows = lake.rows("lengthy")
    assert rows["pyiceberg"] == rows["clickhouse"] == rows["spark"]
    assert {number: row[1][-1] for number, row in rows["spark"].items()} == {0: "0", 1: "1", 2: "0", 3: "1"}
    where = "s = concat(repeat('é/', 300), '1')"
    found = lake.spark.query(f"SELECT id FROM lake.ns.lengthy WHERE {where} ORDER BY id")
    assert found["id"].to_pylist() == [1, 3]
