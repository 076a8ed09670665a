"""Verify: rows and per-column checksums, read back, against what the tasks computed."""

from dataclasses import replace

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from calve.iceberg.publish import PublishedSnapshot
from calve.iceberg.verify import verify
from calve.model.errors import CalveError, PermanentError, RefusedError
from calve.objects.storage import Storage
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else


@pytest.fixture
def work(catalog: FaultySqlCatalog) -> Work:
    append_as_somebody_else(catalog, range(50, 53), month=1)
    return make_work(catalog, [(1, range(10)), (2, range(10, 15)), (None, range(20, 23))])


@pytest.fixture
def snapshot_id(catalog: FaultySqlCatalog, work: Work) -> str:
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    return answer.snapshot_id


def test_what_was_published_is_proven(catalog: FaultySqlCatalog, work: Work, snapshot_id: str) -> None:
    proof = verify(catalog, work.plan, work.receipts, snapshot_id)
    assert proof.ok
    assert (proof.found_rows, proof.files, proof.faults) == (18, 3, ())
    assert [column.name for column in proof.columns] == ["id", "month", "name"]


def test_later_life_of_the_table_does_not_matter(
    catalog: FaultySqlCatalog, work: Work, snapshot_id: str
) -> None:
    append_as_somebody_else(catalog, range(60, 70), month=1)
    catalog.load_table(IDENTIFIER).delete("id < 5")
    with catalog.load_table(IDENTIFIER).update_schema() as change:
        change.rename_column("name", "label")
    assert verify(catalog, work.plan, work.receipts, snapshot_id).ok


def test_a_column_that_differs_is_named(catalog: FaultySqlCatalog, work: Work, snapshot_id: str) -> None:
    receipt = work.receipts[0]
    wrong = replace(receipt, checksums=dict(receipt.checksums) | {"name": "0000000000000001"})
    proof = verify(catalog, work.plan, (wrong, *work.receipts[1:]), snapshot_id)
    assert not proof.ok
    (fault,) = proof.faults
    assert fault.startswith("column name differs")


def test_rows_that_are_missing_are_counted(catalog: FaultySqlCatalog, work: Work, snapshot_id: str) -> None:
    receipt = replace(work.receipts[0], rows=11)
    proof = verify(catalog, work.plan, (receipt, *work.receipts[1:]), snapshot_id)
    assert proof.faults == ("18 rows found, 19 exported",)


def test_a_file_with_other_content_under_its_name_is_found(
    catalog: FaultySqlCatalog, work: Work, snapshot_id: str
) -> None:
    other = make_work(catalog, [(1, range(100, 110))], keys=(("x", "kx"),))
    storage = Storage()
    path = work.receipts[0].files[0].path
    storage.delete([path])
    storage.put_if_absent(path, storage.read(other.receipts[0].files[0].path))
    proof = verify(catalog, work.plan, work.receipts, snapshot_id)
    assert [fault.split(":")[0] for fault in proof.faults] == ["column id differs", "column name differs"]


def test_a_data_file_that_is_gone_is_an_error_of_ours(
    catalog: FaultySqlCatalog, work: Work, snapshot_id: str
) -> None:
    Storage().delete([work.receipts[0].files[0].path])
    with pytest.raises(CalveError, match="reading snapshot"):
        verify(catalog, work.plan, work.receipts, snapshot_id)


def test_an_expired_snapshot_is_said(catalog: FaultySqlCatalog, work: Work, snapshot_id: str) -> None:
    append_as_somebody_else(catalog, range(60, 61))
    table = catalog.load_table(IDENTIFIER)
    tag = {"ref-name": f"calve-{work.process_id}"}
    gone = {"snapshot-ids": [int(snapshot_id)]}
    catalog.commit_table(
        table, (), (RemoveSnapshotRefUpdate.model_validate(tag), RemoveSnapshotsUpdate.model_validate(gone))
    )
    with pytest.raises(RefusedError, match="is expired"):
        verify(catalog, work.plan, work.receipts, snapshot_id)
    assert len(rows_of(catalog)) == 22


def test_a_snapshot_without_the_files_is_said(
    catalog: FaultySqlCatalog, work: Work, snapshot_id: str
) -> None:
    first = str(catalog.load_table(IDENTIFIER).metadata.snapshots[0].snapshot_id)
    with pytest.raises(PermanentError, match="does not have 3 of 3 files"):
        verify(catalog, work.plan, work.receipts, first)


def test_a_table_made_again_is_said(catalog: FaultySqlCatalog, work: Work, snapshot_id: str) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog)
    with pytest.raises(PermanentError, match="created again"):
        verify(catalog, work.plan, work.receipts, snapshot_id)
