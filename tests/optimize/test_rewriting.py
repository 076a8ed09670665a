"""Tables that Spark made, optimized by the real control plane: the same rows in better files."""

import json

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from calve.model.states import ProcessState
from calve.optimize.request import parse_sort
from support.lake import repeat_ids
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark


def test_many_small_files_become_one_for_each_partition_and_no_row_changes(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=13)
    assert lake.table("ns.t").inspect.files().num_rows == 26
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before
    assert lake.table("ns.t").inspect.files().num_rows == 2
    result = json.loads(process.result)
    assert (result["rewritten_files"], result["added_files"]) == (26, 2)
    assert result["after"]["score"] > result["before"]["score"]
    head = lake.table("ns.t").current_snapshot()
    again = lake.optimize("ns.t")
    assert again.state is ProcessState.COMPLETED
    assert again.tasks.total == 0, "what is healthy is left alone"
    assert lake.table("ns.t").current_snapshot() == head


def test_several_tasks_commit_side_by_side(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=13)
    lake.sql("DELETE FROM lake.ns.t WHERE day = DATE'2024-01-01' AND id % 4 = 0")
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert (process.tasks.total, process.tasks.done) == (2, 2)
    assert lake.rows("ns.t") == before and len(before) == 97
    assert lake.table("ns.t").inspect.files().num_rows == 2


def test_evolved_specs_and_schemas_keep_every_row_and_end_under_the_newest_spec(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=3, rows=30)
    with lake.table("ns.t").update_schema() as schema:
        schema.rename_column("name", "title")
        schema.add_column("more", schema._schema.find_type("id"))
    with lake.table("ns.t").update_spec() as spec:
        spec.add_field("id", "bucket[2]", "shard")
    lake.sql(
        "INSERT INTO lake.ns.t SELECT id, DATE'2024-01-02' AS day, concat('n', id) AS title, id * 2 AS more"
        " FROM range(100, 120, 1, 3)"
    )
    lake.sql("DELETE FROM lake.ns.t WHERE id IN (4, 104)")
    before = lake.rows("ns.t")
    assert len(before) == 48
    process = lake.optimize("ns.t", full=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before
    files = lake.table("ns.t").inspect.files().to_pylist()
    assert {file["spec_id"] for file in files} == {1}
    assert {file["content"] for file in files} == {0}


def test_rows_are_sorted_where_that_is_asked_for(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=2, rows=40)
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t", sort=parse_sort("id desc"))
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before
    for path in lake.table("ns.t").inspect.files()["file_path"].to_pylist():
        ids = pq.read_table(path.removeprefix("file:"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True) and len(ids) == 20


@pytest.mark.parametrize("sort", ["day, id desc", "zorder(id, day)", "table"])
def test_a_table_made_with_a_sort_order_of_its_own_is_sorted_otherwise(
    lake: OptimizeScene, sort: str
) -> None:
    """Tables that an export makes; those of an earlier release lack the sort order 0."""
    lake.make("ns.t", files=2, rows=40)
    made = lake.table("ns.t")
    order = SortOrder(
        SortField(source_id=made.schema().find_field("id").field_id, transform=IdentityTransform())
    )
    own = made.catalog.create_table(
        ("ns", "own"), made.schema(), partition_spec=made.spec(), sort_order=order
    )
    assert [one.order_id for one in own.metadata.sort_orders] == [1]
    own.append(made.scan().to_arrow())
    before = lake.rows("ns.own")
    process = lake.optimize("ns.own", sort=parse_sort(sort))
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.own") == before


def test_a_table_that_spark_cannot_open_for_repeated_ids_is_made_readable(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=13)
    before = lake.rows("ns.t")
    repeat_ids(lake.table("ns.t"))
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before


def test_branches_and_tags_stay_readable_as_they_were(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=13)
    tagged = lake.rows("ns.t")
    table = lake.table("ns.t")
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_tag(head.snapshot_id, "month-end").create_branch(
        head.snapshot_id, "audit"
    ).commit()
    lake.sql("INSERT INTO lake.ns.t.branch_audit VALUES (9999, DATE'2024-01-01', 'only in the branch')")
    lake.sql("DELETE FROM lake.ns.t WHERE id < 50")
    on_branch, on_main = lake.rows("ns.t.branch_audit"), lake.rows("ns.t")
    process = lake.optimize("ns.t", full=True)
    lake.clock.advance(days=30)
    later = lake.optimize("ns.t")
    assert (process.state, later.state) == (ProcessState.COMPLETED, ProcessState.COMPLETED)
    assert json.loads(later.result)["expired"]["snapshots"] > 0
    assert json.loads(later.result)["expired"]["files"] > 0
    assert lake.rows("ns.t", at="'month-end'") == tagged
    assert lake.rows("ns.t.branch_audit") == on_branch
    assert lake.rows("ns.t") == on_main


def test_many_manifests_become_few(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=1, rows=2)
    lake.sql("ALTER TABLE lake.ns.t SET TBLPROPERTIES ('commit.manifest-merge.enabled'='false')")
    lake.sql(*(lake.insert("ns.t", range(number, number + 2)) for number in range(100, 124, 2)))
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t", orphans=False)
    assert process.state is ProcessState.COMPLETED, process.error
    result = json.loads(process.result)
    assert result["before"]["manifests"] == 13 and result["after"]["manifests"] <= 2
    assert lake.rows("ns.t") == before
