"""--force: one snapshot takes the earlier export out and puts the new one in. Rows never double."""

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, find_export
from calve.iceberg.publish.presence import with_presence
from calve.model.errors import RefusedError, UnknownOutcomeError
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import IDENTIFIER, Work, arrow, make_table, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else, assert_published_once
from support.position_deletes import delete_rows

TWO_KEYS = (("1", "k1"), ("2", "k2"))


def _publish(catalog: Catalog, work: Work) -> PublishedSnapshot:
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    return answer


def _force(catalog: Catalog, *args: object, **kwargs: object) -> Work:
    work = make_work(catalog, *args, **kwargs)  # type: ignore[arg-type]
    return work.with_plan(replace=True, allow_shrink=True)


def _compact(catalog: Catalog, month: int) -> None:
    """What a compaction does to a partition: its rows in one new file, as operation `replace`."""
    table = catalog.load_table(IDENTIFIER)
    data = table.scan(f"month = {month}").to_arrow()
    before = len(table.metadata.snapshots)
    table.overwrite(data, overwrite_filter=f"month = {month}")
    _relabel(catalog, before, Operation.REPLACE)


def _relabel(catalog: Catalog, first: int, operation: Operation) -> None:
    """PyIceberg has no compaction; its overwrite makes the same files as deletes and an append."""
    table = catalog.load_table(IDENTIFIER)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"][first:]:
        snapshot["summary"]["operation"] = operation.value
    path.write_text(json.dumps(metadata))


def test_L21_a_forced_export_replaces_the_rows_in_one_snapshot(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=1)
    _publish(catalog, make_work(catalog, [(1, range(10)), (2, range(10, 15))]))
    before = len(catalog.load_table(IDENTIFIER).metadata.snapshots)
    work = _force(catalog, [(1, range(20, 32))], content="content-2")
    answer = _publish(catalog, work)
    assert rows_of(catalog) == [*range(20, 32), *range(50, 53)]
    table = catalog.load_table(IDENTIFIER)
    assert len(table.metadata.snapshots) == before + 1
    assert (answer.rows, answer.replaced_rows, answer.replaced_files) == (12, 15, 2)
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is Operation.OVERWRITE
    assert head.summary["total-records"] == "15"
    assert_published_once(catalog, work.process_id)


@pytest.mark.parametrize("version", ["1", "2"])
def test_L21_forcing_again_and_again_keeps_one_generation(catalog: FaultySqlCatalog, version: str) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": version})
    append_as_somebody_else(catalog, range(50, 53))
    for generation in range(4):
        ids = range(generation * 100 + 100, generation * 100 + 110)
        _publish(catalog, _force(catalog, [(1, ids)]))
        assert rows_of(catalog) == sorted([*ids, *range(50, 53)])
    append_as_somebody_else(catalog, range(60, 61))
    assert len(rows_of(catalog)) == 14


def test_L21_a_forced_export_of_what_was_never_exported_is_an_append(catalog: FaultySqlCatalog) -> None:
    answer = _publish(catalog, _force(catalog, [(1, range(10))]))
    assert (answer.rows, answer.replaced_rows) == (10, 0)
    head = catalog.load_table(IDENTIFIER).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is Operation.APPEND


def test_L21_an_earlier_export_that_lands_while_it_is_being_replaced_is_replaced(
    catalog: FaultySqlCatalog,
) -> None:
    earlier = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    forced = Publisher(catalog=catalog, work=_force(catalog, [(1, range(20, 30))]))

    def the_earlier_one_is_first() -> None:
        catalog.before_send = lambda: None
        earlier.attempt()

    catalog.before_send = the_earlier_one_is_first
    answer = forced.run()
    assert isinstance(answer, PublishedSnapshot)
    assert [error.code for error in forced.errors] == ["publish_conflict"]
    assert answer.replaced_rows == 10
    assert rows_of(catalog) == list(range(20, 30))


def test_L21_an_earlier_export_that_arrives_after_the_forced_one_publishes_nothing(
    catalog: FaultySqlCatalog,
) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    earlier = Publisher(catalog=catalog, work=make_work(catalog, [(1, range(10))]))
    catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.LATER, reading=Reading.AT_ONCE))
    with pytest.raises(UnknownOutcomeError):
        earlier.attempt()
    late, catalog.held = catalog.held, []
    _publish(catalog, _force(catalog, [(1, range(20, 30))]))
    catalog.held = late
    catalog.release()
    assert isinstance(earlier.run(), AlreadyExported)
    assert rows_of(catalog) == [*range(20, 30), *range(50, 53)]


def test_L21_one_key_of_several_is_replaced_alone(catalog: FaultySqlCatalog) -> None:
    _publish(
        catalog,
        make_work(catalog, [(1, range(10)), (2, range(10, 20)), (2, range(20, 25))], keys=TWO_KEYS),
    )
    _publish(catalog, _force(catalog, [(2, range(100, 103))], keys=(("2", "k2"),)))
    assert rows_of(catalog) == [*range(10), *range(100, 103)]
    _publish(catalog, _force(catalog, [(1, range(200, 202))], keys=(("1", "k1"),)))
    assert rows_of(catalog) == [*range(100, 103), *range(200, 202)]


def test_L21_files_that_hold_several_keys_go_only_together(catalog: FaultySqlCatalog) -> None:
    mixed = make_work(catalog, [(1, range(10)), (2, range(10, 20))], keys=TWO_KEYS)
    mixed = mixed.with_plan(tasks=((mixed.plan.tasks[0][0], mixed.plan.tasks[1][0]), mixed.plan.tasks[1]))
    _publish(catalog, mixed)
    with pytest.raises(RefusedError, match="also hold other partitions"):
        _publish(catalog, _force(catalog, [(2, range(100, 103))], keys=(("2", "k2"),)))
    assert rows_of(catalog) == list(range(20))
    _publish(catalog, _force(catalog, [(1, range(200, 202)), (2, range(300, 302))], keys=TWO_KEYS))
    assert rows_of(catalog) == [200, 201, 300, 301]


def test_compacted_alone_in_its_partitions_the_whole_partitions_are_replaced(
    catalog: FaultySqlCatalog,
) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=9)
    _publish(catalog, make_work(catalog, [(1, range(10)), (1, range(10, 15))]))
    _compact(catalog, 1)
    assert rows_of(catalog) == [*range(15), *range(50, 53)]
    answer = _publish(catalog, _force(catalog, [(1, range(100, 103))]))
    assert rows_of(catalog) == [*range(50, 53), *range(100, 103)]
    assert answer.replaced_rows == 15


def test_compacted_together_with_rows_of_others_is_refused(catalog: FaultySqlCatalog) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    append_as_somebody_else(catalog, range(50, 53), month=1)
    _compact(catalog, 1)
    with pytest.raises(RefusedError, match="added rows of others") as refused:
        _publish(catalog, _force(catalog, [(1, range(100, 103))]))
    assert refused.value.code == "replace_refused"
    assert rows_of(catalog) == [*range(10), *range(50, 53)]


def test_compacted_in_a_table_whose_history_is_expired_is_refused(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=9)
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    _compact(catalog, 1)
    table = catalog.load_table(IDENTIFIER)
    first = table.metadata.snapshots[0].snapshot_id
    catalog.commit_table(table, (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}),))
    with pytest.raises(RefusedError, match="history is not complete"):
        _publish(catalog, _force(catalog, [(1, range(100, 103))]))
    assert rows_of(catalog) == [*range(10), *range(50, 53)]


def test_compacted_and_its_own_snapshot_expired_is_refused(catalog: FaultySqlCatalog) -> None:
    earlier = make_work(catalog, [(1, range(10))])
    answer = _publish(catalog, earlier)
    _compact(catalog, 1)
    table = catalog.load_table(IDENTIFIER)
    catalog.commit_table(
        table,
        (),
        (
            RemoveSnapshotRefUpdate.model_validate({"ref-name": f"calve-{earlier.process_id}"}),
            RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [int(answer.snapshot_id)]}),
        ),
    )
    with pytest.raises(RefusedError, match="its snapshot is expired"):
        _publish(catalog, _force(catalog, [(1, range(100, 103))]))
    assert rows_of(catalog) == list(range(10))


def test_expired_but_not_rewritten_it_is_still_replaced_by_its_files(catalog: FaultySqlCatalog) -> None:
    earlier = make_work(catalog, [(1, range(10))])
    answer = _publish(catalog, earlier)
    append_as_somebody_else(catalog, range(50, 53))
    table = catalog.load_table(IDENTIFIER)
    catalog.commit_table(
        table,
        (),
        (
            RemoveSnapshotRefUpdate.model_validate({"ref-name": f"calve-{earlier.process_id}"}),
            RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [int(answer.snapshot_id)]}),
        ),
    )
    _publish(catalog, _force(catalog, [(1, range(100, 103))]))
    assert rows_of(catalog) == [*range(50, 53), *range(100, 103)]


def test_an_unpartitioned_table_is_replaced_by_files(catalog: FaultySqlCatalog) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, spec=UNPARTITIONED_PARTITION_SPEC)
    append_as_somebody_else(catalog, range(50, 53))
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    _publish(catalog, _force(catalog, [(1, range(20, 30))]))
    assert rows_of(catalog) == [*range(20, 30), *range(50, 53)]


def test_D13_rows_deleted_in_the_lake_by_rewriting_are_not_resurrected(catalog: FaultySqlCatalog) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    catalog.load_table(IDENTIFIER).delete("id < 3")
    with pytest.raises(RefusedError) as refused:
        _publish(catalog, _force(catalog, [(1, range(10))]))
    assert refused.value.code == "replace_refused"
    assert "--discard-deletes" in refused.value.hint
    assert rows_of(catalog) == list(range(3, 10))
    catalog.load_table(IDENTIFIER).delete("month = 1")  # as the hint says
    with pytest.raises(RefusedError) as refused:
        _publish(catalog, _force(catalog, [(1, range(10))]))
    assert refused.value.code == "deletes_would_be_lost"
    _publish(catalog, _force(catalog, [(1, range(10))]).with_plan(discard_deletes=True))
    assert rows_of(catalog) == list(range(10))


def test_D13_a_file_deleted_whole_in_the_lake_is_not_resurrected(catalog: FaultySqlCatalog) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10)), (2, range(10, 20))]))
    catalog.load_table(IDENTIFIER).delete("month = 2")
    with pytest.raises(RefusedError) as refused:
        _publish(catalog, _force(catalog, [(1, range(10)), (2, range(10, 20))]))
    assert refused.value.code == "deletes_would_be_lost"
    assert rows_of(catalog) == list(range(10))


@pytest.mark.parametrize("of_this_file", [True, False], ids=["of the export", "of another file"])
def test_D13_position_deletes_refuse_only_where_they_apply(
    catalog: FaultySqlCatalog, of_this_file: bool
) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=1)
    work = make_work(catalog, [(1, range(10))])
    _publish(catalog, work)
    table = catalog.load_table(IDENTIFIER)
    paths = {task.file.file_path for task in table.scan().plan_files()}
    ours = work.receipts[0].files[0].path
    (other,) = paths - {ours}
    delete_rows(catalog, IDENTIFIER, ours if of_this_file else other, [0, 1])
    assert len(rows_of(catalog)) == 11
    forced = _force(catalog, [(1, range(100, 110))])
    if not of_this_file:
        _publish(catalog, forced)
        assert rows_of(catalog) == [52, *range(100, 110)]
        return
    with pytest.raises(RefusedError) as refused:
        _publish(catalog, forced)
    assert refused.value.code == "deletes_would_be_lost"
    _publish(catalog, _force(catalog, [(1, range(100, 110))]).with_plan(discard_deletes=True))
    assert rows_of(catalog) == [50, 51, 52, *range(100, 110)]


def test_D13_discarding_deletes_never_discards_rows_that_others_added(catalog: FaultySqlCatalog) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    catalog.load_table(IDENTIFIER).delete("id < 3")
    append_as_somebody_else(catalog, range(50, 53), month=1)
    with pytest.raises(RefusedError, match="whose rows they hold is unknown"):
        _publish(catalog, _force(catalog, [(1, range(10))]).with_plan(discard_deletes=True))
    assert rows_of(catalog) == [*range(3, 10), *range(50, 53)]


@pytest.mark.parametrize("rows", [range(50, 60), range(50, 53)], ids=["as many rows", "fewer rows"])
@pytest.mark.parametrize("discard", [True, False])
def test_T7_rows_that_another_writer_put_there_by_one_overwrite_stay(
    catalog: FaultySqlCatalog, rows: range, discard: bool
) -> None:
    """One snapshot takes our rows out and puts others in: no more rows than before."""
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    _overwrite_as_somebody_else(catalog, rows)
    with pytest.raises(RefusedError) as refused:
        _publish(catalog, _force(catalog, [(1, range(10))]).with_plan(discard_deletes=discard))
    assert refused.value.code == "replace_refused"
    assert rows_of(catalog) == list(rows)


def test_T7_what_others_appended_after_a_delete_stays_beside_what_is_put_back(
    catalog: FaultySqlCatalog,
) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    catalog.load_table(IDENTIFIER).delete("month = 1")
    append_as_somebody_else(catalog, range(50, 53), month=1)
    _publish(catalog, _force(catalog, [(1, range(10))]).with_plan(discard_deletes=True))
    assert rows_of(catalog) == [*range(10), *range(50, 53)]


def _overwrite_as_somebody_else(catalog: FaultySqlCatalog, rows: range) -> None:
    """As Spark's INSERT OVERWRITE: one snapshot that deletes files and adds others."""
    work = _force(catalog, [(1, rows)])
    table = catalog.load_table(IDENTIFIER)
    before = len(table.metadata.snapshots)
    _publish(catalog, work)
    table = catalog.load_table(IDENTIFIER)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for name in ("calve.process-id", "calve.export-key", "calve.version"):
        metadata["snapshots"][before]["summary"].pop(name)
    metadata["refs"].pop(f"calve-{work.process_id}")
    first = metadata["snapshots"][before - 1]["summary"]
    value = {
        "process": first["calve.process-id"],
        "snapshot": str(metadata["snapshots"][before - 1]["snapshot-id"]),
    }
    metadata["properties"]["calve.export.k-202401"] = json.dumps(
        value | {"content": "content-1", "input": ["", "", ""], "rows": 10, "files": 1}
    )
    path.write_text(json.dumps(metadata))


def test_T19_an_export_is_not_replaced_by_fewer_rows_unless_that_is_asked_for(
    catalog: FaultySqlCatalog,
) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    forced = _force(catalog, [(1, range(1))])
    with pytest.raises(RefusedError, match="9 would be lost") as refused:
        _publish(catalog, forced.with_plan(allow_shrink=False))
    assert refused.value.code == "would_shrink"
    assert "--allow-shrink" not in refused.value.hint
    assert rows_of(catalog) == list(range(10))
    _publish(catalog, forced)
    assert rows_of(catalog) == [0]


class TestGone:
    """T11: what is no longer in main is said, and one command puts it back, once."""

    def _missing(self, catalog: FaultySqlCatalog, key: str = "k-202401") -> EarlierExport:
        table = catalog.load_table(IDENTIFIER)
        export = find_export(table, key)
        assert export is not None
        return with_presence(table, export)

    def _roll_back(self, catalog: FaultySqlCatalog, snapshot_id: int) -> None:
        table = catalog.load_table(IDENTIFIER)
        main = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        catalog.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(main),))

    @pytest.mark.parametrize(
        "later", ["at once", "after appends", "and expired", "after appends and expired"]
    )
    @pytest.mark.parametrize("version", ["1", "2"])
    def test_T11_a_rollback_is_told_and_undone_by_force(
        self, catalog: FaultySqlCatalog, later: str, version: str
    ) -> None:
        catalog.drop_table(IDENTIFIER)
        make_table(catalog, properties={"format-version": version})
        append_as_somebody_else(catalog, range(50, 53), month=1)
        before = catalog.load_table(IDENTIFIER).metadata.refs["main"].snapshot_id
        work = make_work(catalog, [(1, range(10))])
        answer = _publish(catalog, work)
        assert self._missing(catalog).missing == ""
        self._roll_back(catalog, before)
        assert "main was rolled back" in self._missing(catalog).missing
        rows = list(range(50, 53))
        if "appends" in later:
            append_as_somebody_else(catalog, range(60, 62), month=1)
            assert "main was rolled back" in self._missing(catalog).missing
            rows += [60, 61]
        if "expired" in later:
            table = catalog.load_table(IDENTIFIER)
            tag = RemoveSnapshotRefUpdate.model_validate({"ref-name": f"calve-{work.process_id}"})
            own = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [int(answer.snapshot_id)]})
            catalog.commit_table(table, (), (tag, own))
        # Once the snapshot is expired a rollback cannot be told from a delete: that word is needed too.
        forced = _force(catalog, [(1, range(10))])
        _publish(catalog, forced.with_plan(discard_deletes="expired" in later))
        assert rows_of(catalog) == sorted([*range(10), *rows])
        _publish(catalog, _force(catalog, [(1, range(10))]))
        assert rows_of(catalog) == sorted([*range(10), *rows]), "never twice"

    def test_T11_main_rolled_back_to_an_earlier_export_of_the_key_never_doubles(
        self, catalog: FaultySqlCatalog
    ) -> None:
        first = _publish(catalog, make_work(catalog, [(1, range(10)), (2, range(10, 12))]))
        _publish(catalog, _force(catalog, [(1, range(20, 30))], content="content-2"))
        self._roll_back(catalog, int(first.snapshot_id))
        assert rows_of(catalog) == list(range(12))
        assert self._missing(catalog).missing
        _publish(catalog, _force(catalog, [(1, range(20, 30))], content="content-2"))
        assert rows_of(catalog) == list(range(20, 30))

    @pytest.mark.parametrize("how", ["delete all", "delete its rows", "overwrite"])
    def test_T11_one_of_two_keys_of_an_unpartitioned_table_is_put_back(
        self, catalog: FaultySqlCatalog, how: str
    ) -> None:
        catalog.drop_table(IDENTIFIER)
        make_table(catalog, spec=UNPARTITIONED_PARTITION_SPEC)
        _publish(catalog, make_work(catalog, [(1, range(10))], keys=(("1", "k1"),)))
        _publish(catalog, make_work(catalog, [(2, range(10, 20))], keys=(("2", "k2"),)))
        table = catalog.load_table(IDENTIFIER)
        if how == "delete all":
            table.delete()
        elif how == "delete its rows":
            table.delete("month = 1")
        else:
            table.overwrite(arrow(range(50, 53), 9))
        rest = rows_of(catalog)
        gone = self._missing(catalog, "k1")
        assert "deleted or rewritten in the lake" in gone.missing and gone.deleted
        forced = _force(catalog, [(1, range(10))], keys=(("1", "k1"),))
        with pytest.raises(RefusedError) as refused:
            _publish(catalog, forced)
        assert refused.value.code == "deletes_would_be_lost"
        _publish(catalog, forced.with_plan(discard_deletes=True))
        assert rows_of(catalog) == sorted([*range(10), *rest])
        assert self._missing(catalog, "k1").missing == ""
