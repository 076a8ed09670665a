"""Tables as lakes have them, optimized while others write: what every reader sees stays the same.

One made by Spark, with everything that rewrites must respect at once: merge-on-read and equality deletes,
evolved partition specs and schemas, a branch and a tag. One made by Calve's own exports.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from calve.iceberg.publish.publish import publish
from calve.iceberg.verify import verify
from calve.model.states import ProcessState
from calve.spark.actions import ActionTable
from support.equality_deletes import delete_equal
from support.lake import IDENTIFIER, make_table, make_work, rows_of
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark
FIRST_DAY = 19723  # 2024-01-01
Write = Callable[[], object]


def meanwhile(monkeypatch: pytest.MonkeyPatch, *writes: Write) -> list[Write]:
    """Other writers commit one after another, each between a look of a rewrite and its commit. What
    is left of them."""
    look, left = ActionTable.marked, list(writes)

    def looking(table: ActionTable, step: str) -> dict[str, str] | None:
        found = look(table, step)
        if left:
            left.pop(0)()
        return found

    monkeypatch.setattr(ActionTable, "marked", looking)
    return left


def make_it_all(lake: OptimizeScene) -> int:
    """A table of spec and schema generations with deletes of every kind; the tagged snapshot."""
    lake.make("ns.t", files=13)
    delete_equal(lake.catalog_, ("ns", "t"), "id", [2, 4, 6], partition=(FIRST_DAY,))
    table = lake.table("ns.t")
    tagged = table.metadata.snapshots[-1].snapshot_id
    table.manage_snapshots().create_tag(tagged, "month-end").create_branch(tagged, "audit").commit()
    with lake.table("ns.t").update_schema() as schema:
        schema.rename_column("name", "title")
        schema.add_column("more", schema._schema.find_type("id"))
    with lake.table("ns.t").update_spec() as spec:
        spec.add_field("id", "bucket[2]", "shard")
    lake.sql(
        "INSERT INTO lake.ns.t.branch_audit VALUES (9999, DATE'2024-01-01', 'only in the branch', 1)",
        "INSERT INTO lake.ns.t SELECT id, DATE'2024-01-02' AS day, concat('n', id) AS title, id * 2 AS more"
        " FROM range(200, 230, 1, 6)",
        "DELETE FROM lake.ns.t WHERE id % 10 = 7",
    )
    return tagged


def test_P19_a_table_with_everything_is_optimized_while_others_append_and_delete(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_it_all(lake)
    seen = {at: lake.rows(*at) for at in (("ns.t", "'month-end'"), ("ns.t.branch_audit", ""))}
    expected = [row for row in lake.rows("ns.t") if row["id"] not in (8, 11)]
    added = [{"id": id_, "day": "2024-01-01", "title": "meanwhile", "more": id_} for id_ in (301, 302)]
    left = meanwhile(
        monkeypatch,
        lambda: delete_equal(lake.catalog_, ("ns", "t"), "id", [8], partition=(FIRST_DAY,), spec_id=0),
        lambda: lake.sql("INSERT INTO lake.ns.t VALUES (301, DATE'2024-01-01', 'meanwhile', 301)"),
        lambda: lake.sql("DELETE FROM lake.ns.t WHERE id = 11"),
        lambda: lake.sql("INSERT INTO lake.ns.t VALUES (302, DATE'2024-01-01', 'meanwhile', 302)"),
    )
    process = lake.optimize("ns.t", full=True)
    assert process.state is ProcessState.COMPLETED and not left, process.error
    assert [task.attempt for task in lake.store.tasks(process.id)] == [3], "both deletes were conflicts"
    assert in_order(lake.rows("ns.t")) == in_order(expected + added)
    for at, rows in seen.items():
        assert lake.rows(*at) == rows, f"{at}: time travel and branches are as they were"


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_a_table_that_calve_filled_is_optimized_and_its_exports_stay_provable(lake: OptimizeScene) -> None:
    make_table(lake.catalog_)
    works = [
        make_work(lake.catalog_, [(1, range(n * 10, n * 10 + 10))], keys=((f"p{n}", f"k{n}"),))
        for n in range(12)
    ]
    snapshots = []
    for work in works:
        answer = publish(lake.catalog_, work.process_id, work.plan, work.receipts, "", lambda _: None)
        snapshots.append(str(answer.snapshot_id))  # type: ignore[union-attr]
    before = lake.rows("ns.events")
    process = lake.optimize("ns.events")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.table("ns.events").inspect.files().num_rows == 1
    assert lake.rows("ns.events") == before and rows_of(lake.catalog_) == list(range(120))
    for work, snapshot_id in zip(works, snapshots, strict=True):
        assert f"calve-{work.process_id}" in lake.table("ns.events").refs()
        assert verify(lake.catalog_, work.plan, work.receipts, snapshot_id).ok
        again = publish(lake.catalog_, work.process_id, work.plan, work.receipts, "", lambda _: None)
        assert str(again.snapshot_id) == snapshot_id, "found, not published twice"  # type: ignore[union-attr]
    assert lake.catalog_.load_table(IDENTIFIER).scan().to_arrow().num_rows == 120
