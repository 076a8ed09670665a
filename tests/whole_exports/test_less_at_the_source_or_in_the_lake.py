"""Exported rows that the source has lost are kept (T19); exported rows that the lake has lost are put back (T11)."""

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate
from whole_life import IDS, Life

from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.states import ProcessState

JANUARY = list(range(100))
LOSSES = {
    "dropped, and one late row": (
        "ALTER TABLE db.events DROP PARTITION ID '202401'",
        "INSERT INTO db.events VALUES (9000, '2024-01-31', 'late')",
    ),
    "dropped, and as many late rows": (
        "ALTER TABLE db.events DROP PARTITION ID '202401'",
        "INSERT INTO db.events SELECT number + 9000, toDate('2024-01-31'), 'late' FROM numbers(100)",
    ),
    "expired by TTL": (
        "ALTER TABLE db.events MODIFY TTL day + INTERVAL 1 DAY WHERE id < 90 SETTINGS materialize_ttl_after_modify = 0",
        "ALTER TABLE db.events MATERIALIZE TTL SETTINGS mutations_sync = 2",
    ),
    "deleted by ALTER": ("ALTER TABLE db.events DELETE WHERE id < 99 SETTINGS mutations_sync = 2",),
    "deleted lightly": ("DELETE FROM db.events WHERE id < 99",),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_T19_rows_that_the_source_lost_stay_in_the_lake(own_life: Life, loss: tuple[str, ...]) -> None:
    own_life.export("202401")
    own_life.kept.execute(*loss)
    for asked in ({}, {"force": True}):
        checked = own_life.check("202401", **asked)
        [held_back] = checked.changed
        refusal = held_back.refusal(checked.request)
        assert refusal.code == "would_shrink"
        assert "would lose" in refusal.message
        assert "--" not in refusal.hint, "no command that loses them is offered"
        assert own_life.submit("202401", **asked) == []
    assert own_life.exported_ids() == JANUARY
    row = own_life.export("202401", force=True, allow_shrink=True)
    assert row.state is ProcessState.COMPLETED, row.error
    left = own_life.kept.select("SELECT id FROM db.events WHERE toYYYYMM(day) = 202401")
    assert own_life.exported_ids() == sorted(one["id"] for one in left)


def test_T19_rows_that_are_lost_after_the_request_was_accepted_are_kept_as_well(own_life: Life) -> None:
    own_life.export("202401")
    own_life.kept.execute("INSERT INTO db.events VALUES (9000, '2024-01-31', 'more')")
    [process_id] = own_life.submit("202401", force=True)
    own_life.kept.execute(*LOSSES["dropped, and one late row"])
    own_life.run(own_life.worker())
    row = own_life.row(process_id)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "would_shrink")
    assert own_life.exported_ids() == JANUARY


def test_T19_more_rows_than_were_exported_replace_them_by_force_alone(own_life: Life) -> None:
    own_life.export("202401")
    own_life.kept.execute("INSERT INTO db.events VALUES (9000, '2024-01-31', 'more')")
    assert (
        own_life.check("202401").changed[0].refusal(own_life.check("202401").request).code == "changed_since"
    )
    assert own_life.export("202401", force=True).state is ProcessState.COMPLETED
    assert own_life.exported_ids() == [*JANUARY, 9000]


def test_T11_a_rollback_is_said_and_force_puts_it_back(life: Life) -> None:
    life.export("202402")
    table = life.table()
    assert table is not None
    before = table.metadata.refs["main"].snapshot_id
    life.export("202401")
    assert life.check().changed == ()
    catalog = open_catalog("lake", life.ports.properties)
    main = {"ref-name": "main", "type": "branch", "snapshot-id": before}
    catalog.commit_table(
        catalog.load_table(("ns", "events")), (), (SetSnapshotRefUpdate.model_validate(main),)
    )
    catalog.close()
    checked = life.check()
    assert [one.partition for one in checked.unchanged] == ["202402"]
    [gone] = checked.changed
    refusal = gone.refusal(checked.request)
    assert (refusal.code, refusal.hint) == ("no_longer_there", "--force puts it back, once")
    assert "main was rolled back" in refusal.message and "100 rows" in refusal.message
    assert life.export("202401", force=True).state is ProcessState.COMPLETED
    assert life.exported_ids() == list(IDS)
    assert life.check().changed == ()


def test_T11_rows_deleted_in_the_lake_are_said_and_the_hint_s_command_puts_them_back(life: Life) -> None:
    life.export("202401")
    life.export("202402")
    table = life.table()
    assert table is not None
    table.delete()
    checked = life.check()
    assert [one.partition for one in checked.changed] == ["202401", "202402"]
    refusal = checked.changed[0].refusal(checked.request)
    assert (refusal.code, refusal.hint) == ("no_longer_there", "--force --discard-deletes puts it back, once")
    assert life.export("202401", force=True, discard_deletes=True).state is ProcessState.COMPLETED
    assert life.exported_ids() == JANUARY
    assert life.export("202402", force=True, discard_deletes=True).state is ProcessState.COMPLETED
    assert life.exported_ids() == list(IDS)
