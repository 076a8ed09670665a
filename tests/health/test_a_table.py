"""Health of real tables, read from metadata alone."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.partitions import any_of, partition_filter, partition_name
from calve.iceberg.health.report import health
from calve.iceberg.health.stats import Place
from calve.model.errors import NotFoundError
from support.equality_deletes import delete_equal
from support.lake import BY_MONTH, SCHEMA, arrow, make_table, sqlite_properties
from support.position_deletes import delete_rows


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("lake", sqlite_properties(tmp_path))


def test_an_empty_table_is_healthy(catalog: Catalog) -> None:
    make_table(catalog)
    found = health(catalog, ("ns", "events"))
    assert (found.score, found.files, found.findings) == (100, 0, ())


def test_a_missing_table_is_said_to_be_missing(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError):
        health(catalog, ("ns", "nothing"))


def test_small_files_deletes_and_the_partitions_most_in_need_are_counted(catalog: Catalog) -> None:
    table = make_table(catalog)
    for number in range(12):
        table.append(arrow(range(number * 10, number * 10 + 10), 1))
    table.append(arrow(range(1000, 1010), 2))
    path = next(task.file.file_path for task in table.scan().plan_files() if task.file.partition[0] == 2)
    delete_rows(catalog, ("ns", "events"), path, [0, 1, 2])
    delete_equal(catalog, ("ns", "events"), "id", [1001], partition=(2,))
    found = health(catalog, ("ns", "events"))
    assert (found.files, found.rows, found.partitions) == (13, 130, 2)
    assert (found.position_delete_files, found.equality_delete_files, found.deleted_rows) == (1, 1, 4)
    assert [(item.partition, item.level) for item in found.most_in_need] == [
        ("month=1", "minor"),
        ("month=2", "major"),
    ]
    assert found.score < 70
    assert found.findings[0].command == "calve optimize lake.ns.events"
    assert found.orphans is None


def test_orphans_are_looked_for_only_when_asked(catalog: Catalog, tmp_path: Path) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    lost = Path(table.location().removeprefix("file://")) / "data" / "lost.parquet"
    lost.write_bytes(b"x" * 100)
    found = health(catalog, ("ns", "events"), orphans=True)
    assert found.orphans is not None
    assert (found.orphans.files, found.orphans.young) == (0, 1), "a file of this minute is not judged"


def test_a_filter_selects_one_partition_and_null_is_a_partition_too() -> None:
    assert partition_filter(BY_MONTH, SCHEMA, (7,)) == {"type": "eq", "term": "month", "value": 7}
    assert partition_filter(BY_MONTH, SCHEMA, (None,)) == {"type": "is-null", "term": "month"}
    one, two, three = ({"type": "eq", "term": "month", "value": number} for number in (1, 2, 3))
    assert any_of([one, two, three]) == {
        "type": "or",
        "left": one,
        "right": {"type": "or", "left": two, "right": three},
    }


def test_a_partition_has_a_name_that_people_read(catalog: Catalog) -> None:
    table = make_table(catalog)
    assert partition_name(table.metadata, Place(spec_id=0, values=(3,))) == "month=3"
    assert partition_name(table.metadata, Place(spec_id=0, values=(None,))) == "month=null"
