"""From what is due to tasks: pure, but for a real table's metadata."""

import json
from pathlib import Path

import pytest
from pyiceberg.table import Table

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.due import Level, evaluate
from calve.iceberg.health.partitions import TRUE
from calve.iceberg.health.settings import MIB, Settings
from calve.iceberg.health.stats import Deletes, PartitionStats, Place, TableStats
from calve.model.errors import UsageError
from calve.optimize.plan import TASK_PARTITIONS, OptimizePlan, TaskSpec, options_of, tasks_of
from calve.optimize.request import OptimizeRequest, SortBy, SortColumn, parse_sort
from support.lake import make_table, sqlite_properties


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(open_catalog("lake", sqlite_properties(tmp_path)))


def stats(*parts: PartitionStats) -> TableStats:
    return TableStats(partitions={part.place: part for part in parts})


def fragments(month: int, *, files: int = 12, size: int = MIB, spec_id: int = 0) -> PartitionStats:
    return PartitionStats(
        place=Place(spec_id=spec_id, values=(month,)), files=files, rows=100, bytes=files * size,
        fragments=files, fragment_bytes=files * size, oldest_sequence=1,
    )  # fmt: skip


def planned(table: Table, found: TableStats, *, most: int = 0) -> tuple[TaskSpec, ...]:
    return tasks_of(table.metadata, found, Settings(), evaluate(found, Settings(), now_ms=0), most=most)


def test_small_partitions_share_a_task_and_large_ones_have_their_own(table: Table) -> None:
    small = [fragments(month) for month in range(TASK_PARTITIONS + 1)]
    assert len(planned(table, stats(*small))) == 2
    large = [fragments(month, files=100, size=16 * MIB) for month in range(3)]
    tasks = planned(table, stats(*large))
    assert [task.partitions for task in tasks] == [("month=0",), ("month=1",), ("month=2",)]
    assert tasks[1].filter == {"type": "eq", "term": "month", "value": 1}


def test_partitions_that_are_rewritten_otherwise_have_another_task(table: Table) -> None:
    deleted = fragments(2, files=2)
    deleted.deletes[(1, 2)] = Deletes(files=1, rows=50)
    tasks = planned(table, stats(fragments(1), deleted))
    assert {(task.level, task.position_deletes) for task in tasks} == {("minor", False), ("major", True)}


def test_at_most_so_many_tasks_the_neediest_first(table: Table) -> None:
    large = [fragments(month, files=100 + month, size=16 * MIB) for month in range(5)]
    assert [task.files for task in planned(table, stats(*large), most=2)] == [104, 103]


def test_data_under_several_specs_is_one_task_without_a_filter(table: Table) -> None:
    found = stats(fragments(1), fragments(2, spec_id=7))
    [task] = planned(table, found)
    assert task.filter == TRUE and task.files == 24


def test_minor_leaves_everything_but_fragments_alone() -> None:
    options = options_of(Level.MINOR, Settings(), deletes=True, several_specs=False)
    assert options["min-file-size-bytes"] == str(16 * MIB + 1)
    assert "delete-file-threshold" not in options and "rewrite-all" not in options


def test_P18_each_task_is_one_commit() -> None:
    for level in Level:
        options = options_of(level, Settings(), deletes=False, several_specs=False)
        assert options["partial-progress.enabled"] == "false"


def test_L12_what_an_older_or_newer_version_stored_is_read() -> None:
    old = {"process_id": "p", "catalog": "lake", "identifier": ["ns", "t"], "uuid": "u", "location": "l",
           "base_snapshot_id": None, "full": False, "expire": True, "orphans": True, "from_the_future": 1}  # fmt: skip
    assert OptimizePlan.from_json(json.dumps(old)).before == {}
    assert (
        TaskSpec.from_json('{"filter": {}, "level": "minor", "files": 1, "bytes": 1, "x": 1}').options == {}
    )
    assert (
        OptimizeRequest.from_json('{"catalog": "lake", "identifier": ["a", "b"], "x": 1}').name == "lake.a.b"
    )


def test_a_request_survives_the_store() -> None:
    request = OptimizeRequest(
        catalog="lake", identifier=("a", "b"), full=True, sort=parse_sort("x desc, `y z`")
    )
    assert OptimizeRequest.from_json(request.to_json()) == request


def test_sort_orders_are_read() -> None:
    assert parse_sort("day, id desc nulls first") == SortBy(
        columns=(SortColumn(name="day"), SortColumn(name="id", direction="desc", nulls="NULLS_FIRST"))
    )
    assert parse_sort("zorder(x, y)") == SortBy(zorder=("x", "y"))
    assert parse_sort("TABLE") == SortBy(table=True)
    for text in ("", "a b c", "zorder()", "a,,b"):
        with pytest.raises(UsageError):
            parse_sort(text)
