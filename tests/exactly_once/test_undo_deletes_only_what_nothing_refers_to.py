"""Undo: after the fence, with proof, and only what carries the process's name."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from calve.iceberg.publish import fence
from calve.iceberg.undo import undo
from calve.model.errors import TemporaryError, UnavailableError, UnknownOutcomeError
from calve.objects.storage import Storage
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of, write_task
from support.outcomes import Publisher, append_as_somebody_else


def _files(catalog: FaultySqlCatalog, process_id: str) -> list[str]:
    location = catalog.load_table(IDENTIFIER).location()
    return [uri for uri in Storage().list(location) if process_id in uri]


@pytest.fixture
def work(catalog: FaultySqlCatalog) -> Work:
    return make_work(catalog, [(1, range(10)), (2, range(10, 20))])


def test_everything_of_an_unpublished_process_goes_and_nothing_else(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    other = make_work(catalog, [(3, range(30, 40))], keys=(("3", "k3"),))
    append_as_somebody_else(catalog, range(50, 53))
    write_task(work.plan, 0, 2, 1, range(3), Storage())  # an attempt that nobody recorded
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert (done.left, done.message) == ((), "")
    assert len(done.deleted) == 6  # three data files, three receipts
    assert _files(catalog, work.process_id) == []
    assert len(_files(catalog, other.process_id)) == 2
    assert rows_of(catalog) == list(range(50, 53))
    assert undo(catalog, Storage(), work.process_id, work.plan, work.receipts).left == ()


def test_T9_a_receipt_that_names_a_file_elsewhere_deletes_nothing_there(
    catalog: FaultySqlCatalog, work: Work, tmp_path: Path
) -> None:
    """Whatever its name, and however the path is written."""
    first, second = work.receipts
    own = Path(first.files[0].path.removeprefix("file://"))
    elsewhere = tmp_path / "elsewhere" / own.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"somebody's")
    inside = own.parent / "not-ours.parquet"
    inside.write_bytes(b"somebody's")
    data = work.plan.destination.data_location
    for path in (
        elsewhere.as_uri(),
        f"{data}/{'../' * 12}{elsewhere}",
        inside.as_uri(),
        f"{data}-2/{own.name}",
    ):
        forged = replace(first, files=(replace(first.files[0], path=path),))
        done = undo(catalog, Storage(), work.process_id, work.plan, [forged, second])
        assert path not in done.deleted
    assert elsewhere.exists() and inside.exists()
    assert not own.exists(), "its own is found by its name"


def test_a_process_that_never_sent_anything_leaves_no_tombstone(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert catalog.load_table(IDENTIFIER).metadata.refs == {}
    assert catalog.sends == 0


def test_the_manifests_of_attempts_that_were_sent_go_too(catalog: FaultySqlCatalog, work: Work) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    publisher = Publisher(catalog=catalog, work=work)
    catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.NOT, reading=Reading.AT_ONCE))
    with pytest.raises(UnknownOutcomeError):
        publisher.attempt()
    assert any(uri.endswith("-m0.avro") for uri in _files(catalog, work.process_id))
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts, publisher.noted)
    assert done.left == ()
    [fence_list] = _files(catalog, work.process_id)
    assert f"-calve-fence-{work.process_id}.avro" in fence_list
    assert rows_of(catalog) == list(range(50, 53))


def test_L20_nothing_of_a_published_process_is_deleted(catalog: FaultySqlCatalog, work: Work) -> None:
    publisher = Publisher(catalog=catalog, work=work)
    publisher.run()
    before = _files(catalog, work.process_id)
    for noted in (publisher.noted, ""):
        done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts, noted)
        assert len(done.left) == 2
        assert done.reason == "they are published"
    assert _files(catalog, work.process_id) == before
    assert rows_of(catalog) == list(range(20))


def test_L20_files_that_another_snapshot_took_in_are_left(catalog: FaultySqlCatalog, work: Work) -> None:
    """A retry adopted one receipt and published it; the first process's undo proves before it deletes."""
    adopted = replace(work.receipts[0])
    retry = make_work(catalog, [(1, range(10))], keys=(("r", "kr"),))
    Publisher(catalog=catalog, work=replace(retry, receipts=(adopted,))).run()
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert done.left == (adopted.files[0].path,)
    assert work.receipts[1].files[0].path in done.deleted
    assert rows_of(catalog) == list(range(10))


def test_L20_files_that_only_an_older_snapshot_shows_are_left(catalog: FaultySqlCatalog, work: Work) -> None:
    retry = make_work(catalog, [(1, range(10))], keys=(("r", "kr"),))
    Publisher(catalog=catalog, work=replace(retry, receipts=(work.receipts[0],))).run()
    snapshot = catalog.load_table(IDENTIFIER).current_snapshot()
    assert snapshot is not None
    catalog.load_table(IDENTIFIER).delete("month = 1")
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert done.left == (work.receipts[0].files[0].path,)
    older = catalog.load_table(IDENTIFIER).scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    assert sorted(older["id"].to_pylist()) == list(range(10))


def test_P14_a_lost_response_to_a_commit_that_landed_deletes_nothing(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    publisher = Publisher(catalog=catalog, work=work)
    catalog.arm(Fault(told=Told.CONFLICT, landing=Landing.LANDED, reading=Reading.STALE, looks=1))
    with pytest.raises(TemporaryError):
        publisher.attempt()
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts, publisher.noted)
    assert done.reason == "they are published"
    assert rows_of(catalog) == list(range(20))


def test_P14_while_the_catalog_cannot_be_read_nothing_is_deleted(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    publisher = Publisher(catalog=catalog, work=work)
    catalog.arm(Fault(told=Told.RESET, landing=Landing.LANDED, reading=Reading.UNREADABLE, looks=2))
    with pytest.raises(UnknownOutcomeError):
        publisher.attempt()
    with pytest.raises(UnavailableError):
        undo(catalog, Storage(), work.process_id, work.plan, work.receipts, publisher.noted)
    assert rows_of(catalog) == list(range(20))


def test_a_manifest_that_cannot_be_read_proves_nothing_so_nothing_is_deleted(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    head = catalog.load_table(IDENTIFIER).current_snapshot()
    assert head is not None
    Storage().delete([head.manifest_list])
    with pytest.raises(TemporaryError, match="proving files"):
        undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert len(_files(catalog, work.process_id)) == 4


@pytest.mark.parametrize("made_again", [True, False], ids=["made again", "dropped"])
def test_a_table_that_is_gone_proves_nothing_so_the_files_are_left(
    catalog: FaultySqlCatalog, work: Work, made_again: bool
) -> None:
    catalog.drop_table(IDENTIFIER)
    if made_again:
        make_table(catalog)
    assert fence(catalog, work.process_id, work.plan, "").tag == f"calve-{work.process_id}"
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert (len(done.left), done.deleted) == (2, ())
    assert Storage().exists(work.receipts[0].files[0].path)
    assert "2 files were left" in done.message


def test_a_base_snapshot_that_expired_meanwhile_does_no_harm(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(50, 53))
    work = make_work(catalog, [(1, range(10))])
    append_as_somebody_else(catalog, range(60, 61))
    table = catalog.load_table(IDENTIFIER)
    base = int(work.plan.destination.base_snapshot_id or 0)
    catalog.commit_table(table, (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [base]}),))
    assert undo(catalog, Storage(), work.process_id, work.plan, work.receipts).left == ()
    assert rows_of(catalog) == [50, 51, 52, 60]
