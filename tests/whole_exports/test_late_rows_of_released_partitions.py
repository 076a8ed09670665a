"""A partition that was released and then got a late row: nothing is replaced, and no other partition waits."""

import pytest
from whole_life import IDS, Life

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.model.errors import RefusedError
from calve.model.states import ProcessState


def _released(life: Life) -> None:
    """202401 and 202402 are exported, 202401 is marked and gone from the source but for a late row."""
    life.export("202401")
    life.export("202402")
    catalog = open_catalog("lake", life.ports.properties)
    table = catalog.load_table(("ns", "events"))
    head = table.current_snapshot()
    [exported] = [one for one in life.check("202401").unchanged if one.partition == "202401"]
    assert head is not None
    mark = ReleaseMark(
        process="release1",
        store="s",
        attempt=1,
        rows=100,
        sums="-",
        place="-",
        input=exported.export.input,
    )
    lake = ReleasedTable(catalog=catalog, identifier=("ns", "events"), uuid=str(table.metadata.table_uuid))
    lake.mark("release1", {exported.export.key_hash: mark}, str(head.snapshot_id))
    catalog.close()
    life.kept.execute(
        "ALTER TABLE db.events DROP PARTITION ID '202401'",
        "INSERT INTO db.events VALUES (9000, '2024-01-31', 'late'), (9001, '2024-02-28', 'late')",
    )


def test_late_rows_are_held_back_and_other_partitions_are_replaced(own_life: Life) -> None:
    _released(own_life)
    for asked in ({}, {"force": True}, {"force": True, "allow_shrink": True, "discard_deletes": True}):
        checked = own_life.check("202401", **asked)
        [held_back] = checked.changed
        refusal = held_back.refusal(checked.request)
        assert refusal.code == "released"
        assert "--force" not in refusal.hint
        assert own_life.submit("202401", **asked) == []
    checked = own_life.check("202401", "202402", force=True)
    assert [one.partition for one in checked.changed] == ["202401"]
    assert [one.partition for one in checked.replaced] == ["202402"]
    row = own_life.export("202402", force=True)
    assert row.state is ProcessState.COMPLETED, row.error
    assert own_life.exported_ids() == [*IDS, 9001]
    with pytest.raises(RefusedError) as refused:
        own_life.check("202401", where="id = 9000", allow_overlap=True)
    assert refused.value.code == "released"


def test_a_release_between_the_request_and_the_plan_ends_a_replace(own_life: Life) -> None:
    own_life.export("202401")
    own_life.kept.execute("INSERT INTO db.events VALUES (9000, '2024-01-31', 'more')")
    [process_id] = own_life.submit("202401", force=True)
    catalog = open_catalog("lake", own_life.ports.properties)
    table = catalog.load_table(("ns", "events"))
    [key] = [name for name in table.metadata.properties if name.startswith("calve.export.")]
    lake = ReleasedTable(catalog=catalog, identifier=("ns", "events"), uuid=str(table.metadata.table_uuid))
    mark = ReleaseMark(
        process="release1", store="s", attempt=1, rows=100, sums="-", place="-", input=("i", "202401", "")
    )
    head = table.metadata.refs["main"].snapshot_id
    lake.mark("release1", {key.removeprefix("calve.export."): mark}, str(head))
    catalog.close()
    own_life.run(own_life.worker())
    row = own_life.row(process_id)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "released")
    assert own_life.exported_ids() == list(range(100))
