"""Rows that may have their only copy in the lake are counted again, and the tag follows main only over what is proven."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from calve.iceberg.guard import Recount, move_tag, recount
from calve.iceberg.publish import PublishedSnapshot
from calve.iceberg.publish.marks import RELEASED_TAG
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.iceberg.rotation import Checked, Checks, check_some
from calve.iceberg.tables import receipts_location
from calve.model.errors import CalveError
from calve.objects.storage import Storage
from calve.objects.uri import Uri
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import IDENTIFIER, Work, arrow, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else
from support.position_deletes import delete_rows

KEY = "k-202401"
PLENTY = 1 << 30


def _publish(catalog: Catalog, work: Work) -> Work:
    assert isinstance(Publisher(catalog=catalog, work=work).run(), PublishedSnapshot)
    return work


def _release(catalog: Catalog, *, rows: int = 10, key: str = KEY, process: str = "release1") -> None:
    table = catalog.load_table(IDENTIFIER)
    mark = ReleaseMark(
        process=process, store="s", attempt=1, rows=rows, sums="", place="", input=("server/table", "202401", "")
    )  # fmt: skip
    lake = ReleasedTable(catalog=catalog, identifier=IDENTIFIER, uuid=str(table.metadata.table_uuid))
    lake.mark(process, {key: mark}, str(table.metadata.current_snapshot_id))


@pytest.fixture
def released(catalog: FaultySqlCatalog) -> Work:
    """Ten released rows of month 1, in two files."""
    work = _publish(catalog, make_work(catalog, [(1, range(6)), (1, range(6, 10))]))
    _release(catalog)
    return work


def _count(catalog: Catalog, last: Recount | None = None, *, most_bytes: int = PLENTY) -> Recount:
    found = recount(catalog, IDENTIFIER, last.heirs if last else {}, most_bytes)
    assert found is not None
    return found


def _guarded(catalog: Catalog, last: Recount | None = None) -> Recount:
    """A count, and the tag where it belongs."""
    found = _count(catalog, last)
    assert move_tag(catalog, IDENTIFIER, found)
    return found


def _tag(catalog: Catalog) -> str:
    found = catalog.load_table(IDENTIFIER).metadata.refs.get(RELEASED_TAG)
    return "" if found is None else str(found.snapshot_id)


def _head(catalog: Catalog) -> str:
    return str(catalog.load_table(IDENTIFIER).metadata.current_snapshot_id)


def _rewrite(catalog: Catalog, month: int = 1, *, change: Callable[[list[int]], list[int]] = list) -> None:
    """The rows of a partition in one new file: PyIceberg does it in two snapshots."""
    table = catalog.load_table(IDENTIFIER)
    ids = sorted(table.scan(f"month = {month}").to_arrow().column("id").to_pylist())
    table.overwrite(arrow(change(ids), month), overwrite_filter=f"month = {month}")


def _compact(catalog: Catalog, month: int) -> None:
    """The same in one snapshot, as Spark does it."""
    table = catalog.load_table(IDENTIFIER)
    data = table.scan(f"month = {month}").to_arrow()
    before = table.metadata.refs["main"].snapshot_id
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for task in table.scan(f"month = {month}").plan_files():
            update.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, data, table.io):
            update.append_data_file(file)
    assert catalog.load_table(IDENTIFIER).current_snapshot().parent_snapshot_id == before  # type: ignore[union-attr]


def test_a_table_without_released_rows_is_not_counted(catalog: FaultySqlCatalog) -> None:
    _publish(catalog, make_work(catalog, [(1, range(10))]))
    assert recount(catalog, IDENTIFIER, {}, PLENTY) is None


def test_the_tag_follows_what_others_add(catalog: FaultySqlCatalog, released: Work) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=1)
    found = _guarded(catalog)
    assert (found.missing, found.faults, found.read_bytes) == (0, (), 0)
    assert _tag(catalog) == _head(catalog)


def test_rows_of_others_may_go(catalog: FaultySqlCatalog, released: Work) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=2)
    catalog.load_table(IDENTIFIER).delete("month = 2")
    assert _guarded(catalog).missing == 0
    assert _tag(catalog) == _head(catalog)


def test_what_a_rewrite_put_in_is_guarded_in_place_of_what_it_took_out(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    _rewrite(catalog)
    first = _guarded(catalog)
    assert (first.missing, first.faults) == (0, ())
    assert first.read_bytes > 0
    assert _tag(catalog) == _head(catalog)
    append_as_somebody_else(catalog, range(50, 53), month=2)
    assert _guarded(catalog, first).missing == 0
    catalog.load_table(IDENTIFIER).delete("month = 1")
    lost = _count(catalog, first)
    assert lost.missing == 10
    assert lost.tag == _tag(catalog) != _head(catalog)


def test_rewritten_rows_whose_files_nobody_remembers_are_not_taken_for_whole(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    _rewrite(catalog)
    _guarded(catalog)
    assert _count(catalog).missing == 10  # another store, say


@pytest.mark.parametrize("deleting", ["files", "rows"])
def test_deleted_rows_are_missing_and_the_proven_head_brings_them_back(
    catalog: FaultySqlCatalog, released: Work, deleting: str
) -> None:
    proven = _tag(catalog)
    if deleting == "files":
        catalog.load_table(IDENTIFIER).delete("month = 1")
    else:
        delete_rows(catalog, IDENTIFIER, released.receipts[0].files[0].path, [0, 1])
    append_as_somebody_else(catalog, range(50, 53), month=2)
    found = _count(catalog)
    assert found.missing == (10 if deleting == "files" else 2)
    assert found.faults
    assert found.tag == proven == _tag(catalog)
    _set_main(catalog, int(proven))
    assert rows_of(catalog) == list(range(10))
    assert _count(catalog).missing == 0


def test_rows_that_have_other_values_are_missing(catalog: FaultySqlCatalog, released: Work) -> None:
    _rewrite(catalog, change=lambda ids: [*ids[:-1], 99])
    found = _count(catalog)
    assert found.missing > 0
    assert found.tag == _tag(catalog) != _head(catalog)


def test_rows_that_were_put_back_by_another_commit_are_found(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    catalog.load_table(IDENTIFIER).delete("month = 1")
    assert _count(catalog).missing == 10
    catalog.load_table(IDENTIFIER).append(arrow(range(10), 1))
    found = _guarded(catalog)
    assert (found.missing, found.faults) == (0, ())
    assert _tag(catalog) == _head(catalog)


def test_a_rewrite_is_still_proven_once_the_snapshots_between_are_expired(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    _rewrite(catalog)
    append_as_somebody_else(catalog, range(50, 53), month=2)
    metadata = catalog.load_table(IDENTIFIER).metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in kept]
    _change(catalog, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}))
    found = _guarded(catalog)
    assert (found.missing, found.faults, found.waiting) == (0, (), "")
    assert _tag(catalog) == _head(catalog)


def test_a_tag_that_somebody_removed_is_set_again_only_where_every_row_is_there(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    _change(catalog, RemoveSnapshotRefUpdate.model_validate({"ref-name": RELEASED_TAG}))
    _guarded(catalog)
    assert _tag(catalog) == _head(catalog)
    _change(catalog, RemoveSnapshotRefUpdate.model_validate({"ref-name": RELEASED_TAG}))
    catalog.load_table(IDENTIFIER).delete("month = 1")
    found = _count(catalog)
    assert (found.missing, found.tag) == (10, "")
    assert not move_tag(catalog, IDENTIFIER, found)
    assert _tag(catalog) == ""


def test_a_count_that_is_out_of_date_moves_no_tag(catalog: FaultySqlCatalog, released: Work) -> None:
    old = _count(catalog)
    append_as_somebody_else(catalog, range(50, 53), month=2)
    newer = _guarded(catalog)
    append_as_somebody_else(catalog, range(60, 63), month=2)
    _guarded(catalog)
    assert not move_tag(catalog, IDENTIFIER, newer)
    assert not move_tag(catalog, IDENTIFIER, old)
    assert _tag(catalog) == _head(catalog)


@pytest.mark.parametrize("landing", [Landing.LANDED, Landing.NOT, Landing.LATER])
def test_a_lost_answer_of_the_catalog_leaves_the_tag_at_a_head_that_has_every_row(
    catalog: FaultySqlCatalog, released: Work, landing: Landing
) -> None:
    append_as_somebody_else(catalog, range(50, 53), month=2)
    found = _count(catalog)
    catalog.arm(Fault(landing=landing, told=Told.TIMEOUT, reading=Reading.AT_ONCE))
    move_tag(catalog, IDENTIFIER, found)
    assert _tag(catalog) in (found.tag_before, found.tag)
    assert move_tag(catalog, IDENTIFIER, _count(catalog))
    assert _tag(catalog) == _head(catalog)


def test_a_rewrite_that_is_too_much_for_one_count_waits_for_the_next(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    _publish(catalog, make_work(catalog, [(2, range(20, 25))], keys=(("202402", "k-202402"),)))
    _release(catalog, rows=5, key="k-202402", process="release2")
    for month in (1, 2):
        _compact(catalog, month)
    first = _count(catalog, most_bytes=1)
    assert (first.missing, first.faults) == (0, ())
    assert "next time" in first.waiting
    assert _tag(catalog) != first.tag != _head(catalog)
    assert move_tag(catalog, IDENTIFIER, first)
    found = _guarded(catalog, first)
    assert (found.missing, found.waiting, found.tag) == (0, "", _head(catalog))


def test_a_later_release_takes_the_tag_past_nothing_that_is_not_proven(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    proven = _tag(catalog)
    catalog.load_table(IDENTIFIER).delete("month = 1")
    _publish(catalog, make_work(catalog, [(2, range(20, 25))], keys=(("202402", "k-202402"),)))
    _release(catalog, rows=5, key="k-202402", process="release2")
    assert _tag(catalog) == proven
    found = _count(catalog)
    assert {one.key: one.missing for one in found.keys} == {KEY: 10, "k-202402": 0}
    assert found.tag == proven


# -- whole files, in rotation -----------------------------------------------------------------------


def _check(
    catalog: FaultySqlCatalog,
    known: dict[str, Checked] | None = None,
    *,
    now: float = 1.0,
    most_bytes: int = PLENTY,
) -> Checks:
    table = catalog.load_table(IDENTIFIER)
    storage = Storage({key: str(value) for key, value in catalog.properties.items()})
    return check_some(
        table,
        storage,
        receipts_location(catalog, table),
        _count(catalog).files,
        known or {},
        now=now,
        most_bytes=most_bytes,
    )


def test_files_are_read_in_turns_those_first_that_nobody_read_for_longest(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    known: dict[str, Checked] = {}
    turns = []
    for now in (1.0, 2.0, 3.0):
        found = _check(catalog, known, now=now, most_bytes=1)
        assert not found.faults
        turns.append(set(found.checked))
        known |= found.checked
    assert turns[0] != turns[1]
    assert turns[0] == turns[2]


def test_a_file_with_other_rows_than_its_receipt_says_is_damaged(
    catalog: FaultySqlCatalog, released: Work, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    path = Uri.parse(released.receipts[1].files[0].path)
    pq.write_table(arrow([6, 7, 8, 99], 1), f"/{path.key}")
    found = _check(catalog)
    assert found.missing == 4
    assert "column id" in found.faults[0]


def test_a_file_that_is_gone_is_an_answer(catalog: FaultySqlCatalog, released: Work) -> None:
    Path(f"/{Uri.parse(released.receipts[1].files[0].path).key}").unlink()
    found = _check(catalog)
    assert found.missing == 4
    assert len(found.faults) == 1


def test_storage_that_is_away_is_an_error_of_ours_which_a_worker_keeps_with_the_count(
    catalog: FaultySqlCatalog, released: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ConnectionError("the storage does not answer")

    files, table = _count(catalog).files, catalog.load_table(IDENTIFIER)
    storage, where = Storage({}), receipts_location(catalog, table)
    monkeypatch.setattr(type(table.io), "new_input", away)
    with pytest.raises(CalveError, match="does not answer"):
        check_some(table, storage, where, files, {}, now=1.0, most_bytes=PLENTY)


def test_what_a_rewrite_wrote_is_compared_with_what_it_had_when_it_was_first_read(
    catalog: FaultySqlCatalog, released: Work
) -> None:
    import pyarrow.parquet as pq

    _rewrite(catalog)
    count = _guarded(catalog)
    table = catalog.load_table(IDENTIFIER)
    storage = Storage({key: str(value) for key, value in catalog.properties.items()})
    where = receipts_location(catalog, table)
    first = check_some(table, storage, where, count.files, {}, now=1.0, most_bytes=PLENTY)
    assert not first.faults
    [held] = count.files
    pq.write_table(arrow([*range(9), 99], 1), f"/{Uri.parse(held.path).key}")
    again = check_some(table, storage, where, count.files, first.checked, now=2.0, most_bytes=PLENTY)
    assert (again.missing, len(again.faults)) == (10, 1)


def _set_main(catalog: Catalog, snapshot_id: int) -> None:
    _change(
        catalog,
        SetSnapshotRefUpdate.model_validate(
            {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        ),
    )


def _change(catalog: Catalog, *updates: object) -> None:
    catalog.commit_table(catalog.load_table(IDENTIFIER), (), updates)  # type: ignore[arg-type]
