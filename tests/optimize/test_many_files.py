"""A table of ten thousand tiny files: health in a moment, one rewrite, the same rows."""

import json

import pytest

from calve.iceberg.health.report import health
from calve.model.states import ProcessState
from support.lake import IDENTIFIER, arrow, make_table
from support.many_files import repeat_file
from support.optimizing import OptimizeScene

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
FILES = 10_000


def test_ten_thousand_tiny_files_become_one_and_every_row_is_there_as_often(lake: OptimizeScene) -> None:
    make_table(lake.catalog_).append(arrow(range(10), 1))
    repeat_file(lake.catalog_, IDENTIFIER, FILES - 1)
    found = health(lake.catalog_, IDENTIFIER)
    assert (found.files, found.rows, found.small_files) == (FILES, 10 * FILES, FILES)
    assert (found.most_in_need[0].partition, found.most_in_need[0].files) == ("month=1", FILES)
    process = lake.optimize("ns.events", orphans=False)
    assert process.state is ProcessState.COMPLETED, process.error
    result = json.loads(process.result)
    assert (result["rewritten_files"], result["added_files"]) == (FILES, 1)
    rows = lake.table("ns.events").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == sorted(list(range(10)) * FILES)
    assert set(rows["name"].to_pylist()) == {f"row {number}" for number in range(10)}
