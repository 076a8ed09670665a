"""A table of very many tiny files: health in a moment, one rewrite, the same rows."""

import json

import pytest

from calve.iceberg.health.report import health
from calve.model.states import ProcessState
from support.lake import IDENTIFIER, arrow, make_table
from support.many_files import repeat_file
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_tiny_files_become_one_and_every_row_is_there_as_often(
    lake: OptimizeScene, count: int
) -> None:
    make_table(lake.catalog_).append(arrow(range(10), 1))
    repeat_file(lake.catalog_, IDENTIFIER, count - 1)
    found = health(lake.catalog_, IDENTIFIER)
    assert (found.files, found.rows, found.small_files) == (count, 10 * count, count)
    assert (found.most_in_need[0].partition, found.most_in_need[0].files) == ("month=1", count)
    process = lake.optimize("ns.events", orphans=False)
    assert process.state is ProcessState.COMPLETED, process.error
    result = json.loads(process.result)
    assert (result["rewritten_files"], result["added_files"]) == (count, 1)
    rows = lake.table("ns.events").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == sorted(list(range(10)) * count)
    assert set(rows["name"].to_pylist()) == {f"row {number}" for number in range(10)}
