"""Tables of Iceberg's format v3, made by Spark: deletion vectors and row lineage.

PyIceberg reads such a table's metadata and cannot write it, so what it would commit Spark does.
"""

import json

import pytest

from calve.iceberg.health.report import FULL_AT, health
from calve.model.states import ProcessState
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark
LINEAGE = "SELECT id, _row_id, _last_updated_sequence_number AS changed FROM lake.ns.t ORDER BY id"


@pytest.fixture
def table(lake: OptimizeScene) -> OptimizeScene:
    """26 small files, each with a deletion vector, and a tag on what was before the delete and the
    upgrade: PyIceberg can make it only then."""
    lake.make("ns.t", files=13)
    made = lake.table("ns.t")
    made.manage_snapshots().create_tag(made.metadata.snapshots[0].snapshot_id, "before_the_delete").commit()
    lake.sql(
        "ALTER TABLE lake.ns.t SET TBLPROPERTIES ('format-version'='3')",
        "DELETE FROM lake.ns.t WHERE id % 5 = 0",
        lake.insert("ns.t", range(1000, 1010)),
    )
    return lake


def test_health_counts_deletion_vectors_as_delete_files(table: OptimizeScene) -> None:
    found = health(table.catalog_, ("ns", "t"))
    assert (found.files, found.position_delete_files, found.deleted_rows) == (28, 26, 26)
    assert found.most_in_need[0].level == "major"


def test_a_rewrite_keeps_rows_and_their_lineage_and_expiry_and_orphans_work(table: OptimizeScene) -> None:
    before, lineage = table.rows("ns.t"), table.sql(LINEAGE)
    tagged = table.rows("ns.t", at="'before_the_delete'")
    process = table.optimize("ns.t", full=True)
    assert process.state is ProcessState.COMPLETED, process.error
    result = json.loads(process.result)
    assert (result["removed_delete_files"], result["after"]["delete_files"]) == (26, 0)
    assert table.rows("ns.t") == before and len(before) == 114
    assert table.sql(LINEAGE) == lineage, "each row is known by the id it always had"
    assert table.table("ns.t").metadata.properties[FULL_AT].isdigit()
    table.clock.advance(days=30)
    later = table.optimize("ns.t")
    assert later.state is ProcessState.COMPLETED, later.error
    expired = json.loads(later.result)["expired"]
    assert expired["snapshots"] == 2 and expired["files"] > 0
    assert table.rows("ns.t") == before
    assert table.rows("ns.t", at="'before_the_delete'") == tagged and len(tagged) == 130
    assert table.optimize("ns.t").tasks.total == 0
