"""A released key may have its only rows in the lake: no export replaces it, whoever asks and however."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from calve.destination.plan import KeyPlan
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.due import expiry
from calve.iceberg.health.orphans import Owner, find_orphans, reachable
from calve.iceberg.health.report import health
from calve.iceberg.health.settings import DAY_MS, Settings
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, find_export
from calve.iceberg.publish.marks import all_exports
from calve.iceberg.released import ReleasedTable, ReleaseMark, read_marks
from calve.iceberg.undo import remove_lost, undo
from calve.model.errors import PermanentError, RefusedError, TemporaryError, UnknownOutcomeError
from calve.objects.storage import Storage
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import IDENTIFIER, Work, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else, assert_every_manifest_is_there

KEY = "k-202401"
MARK = f"calve.released.{KEY}"
FOREVER_DAYS = 4000
IDENTITY = "server/table"


def _published(catalog: Catalog, work: Work) -> PublishedSnapshot:
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    return answer


def _work(catalog: Catalog, rows: range, *, selection: str = "", key: str = KEY, **plan: object) -> Work:
    """An export of partition 202401, of all of it or of a selection, with its readable key."""
    work = make_work(catalog, [(1, rows)], keys=(("202401", key),), content=f"content-{rows.start}")
    text = json.dumps([IDENTITY, "202401", selection, work.plan.destination.uuid])
    keys = (KeyPlan(partition="202401", hash=key, content=work.plan.keys[0].content, text=text),)
    return work.with_plan(keys=keys, refuse_overlap=True, **plan)


def _lake(catalog: Catalog) -> ReleasedTable:
    uuid = str(catalog.load_table(IDENTIFIER).metadata.table_uuid)
    return ReleasedTable(catalog=catalog, identifier=IDENTIFIER, uuid=uuid)


def _mark(process: str = "release1") -> ReleaseMark:
    return ReleaseMark(
        process=process,
        store="store1",
        attempt=1,
        rows=10,
        sums="10:1:2",
        place="calve_released.t_1",
        input=(IDENTITY, "202401", ""),
    )


def _head(catalog: Catalog) -> str:
    snapshot = catalog.load_table(IDENTIFIER).current_snapshot()
    assert snapshot is not None
    return str(snapshot.snapshot_id)


def _release(catalog: Catalog, process: str = "release1", *keys: str) -> None:
    _lake(catalog).mark(process, {key: _mark(process) for key in keys or (KEY,)}, _head(catalog))


def _properties(catalog: Catalog) -> Mapping[str, str]:
    return catalog.load_table(IDENTIFIER).metadata.properties


def _change(catalog: Catalog, *updates: object) -> None:
    catalog.commit_table(catalog.load_table(IDENTIFIER), (), updates)  # type: ignore[arg-type]


def test_a_forced_export_of_a_released_key_is_refused_and_no_row_is_lost(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    late = _work(catalog, range(10, 11), replace=True, allow_shrink=True, discard_deletes=True)
    with pytest.raises(RefusedError) as refused:
        _published(catalog, late)
    assert refused.value.code == "released"
    assert "release1" in refused.value.message
    assert "--force" not in refused.value.hint
    assert rows_of(catalog) == list(range(10))


@pytest.mark.parametrize(
    "selection", ['{"parts": ["202401_5_5_0"]}', '{"where": "v > 1"}', '{"final": true}']
)
def test_another_selection_of_a_released_partition_is_refused_even_with_allow_overlap(
    catalog: FaultySqlCatalog, selection: str
) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    other = _work(catalog, range(10, 11), selection=selection, key="k-other").with_plan(refuse_overlap=False)
    with pytest.raises(RefusedError) as refused:
        _published(catalog, other)
    assert refused.value.code == "released"
    assert rows_of(catalog) == list(range(10))


def test_a_replace_that_was_built_before_the_mark_is_refused_after_it(catalog: FaultySqlCatalog) -> None:
    """The mark moves main, so the replace fails its own assertion, looks again and finds it."""
    _published(catalog, _work(catalog, range(10)))
    publisher = Publisher(
        catalog=catalog, work=_work(catalog, range(20, 21), replace=True, allow_shrink=True)
    )
    noted = publisher.note

    def note_after_the_mark(text: str) -> None:
        noted(text)
        publisher.note = noted  # type: ignore[method-assign]
        _release(catalog)

    publisher.note = note_after_the_mark  # type: ignore[method-assign]
    with pytest.raises(RefusedError) as refused:
        publisher.run()
    assert refused.value.code == "released"
    assert [error.code for error in publisher.errors] == ["publish_conflict"]
    assert rows_of(catalog) == list(range(10))


def test_what_is_unchanged_is_still_called_exported(catalog: FaultySqlCatalog) -> None:
    """Between the mark and the move the partition is at both places."""
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    answer = Publisher(catalog=catalog, work=_work(catalog, range(10))).run()
    assert isinstance(answer, AlreadyExported)
    assert answer.unchanged


def test_other_partitions_are_exported_and_replaced_as_before(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    other = make_work(catalog, [(2, range(20, 25))], keys=(("202402", "k2"),))
    _published(catalog, other)
    again = make_work(catalog, [(2, range(30, 36))], keys=(("202402", "k2"),), content="content-2")
    _published(catalog, again.with_plan(replace=True))
    assert rows_of(catalog) == [*range(10), *range(30, 36)]


def test_a_version_from_before_releases_refuses_to_read_the_key(catalog: FaultySqlCatalog) -> None:
    """It asked the property for `process`, and answers `mark_unreadable` without one."""
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    value = json.loads(_properties(catalog)[f"calve.export.{KEY}"])
    assert "process" not in value
    assert "snapshot" not in value


@pytest.mark.parametrize("gone", [MARK, f"calve.export.{KEY}"])
def test_one_of_the_two_properties_is_enough_to_refuse(catalog: FaultySqlCatalog, gone: str) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    _change(catalog, RemovePropertiesUpdate(removals=[gone]))
    for late in (
        _work(catalog, range(10, 11), replace=True, allow_shrink=True),
        _work(catalog, range(10, 11), selection='{"where": "v"}', key="k-other"),
    ):
        with pytest.raises(RefusedError) as refused:
            _published(catalog, late)
        assert refused.value.code == "released"
    assert rows_of(catalog) == list(range(10))


def test_a_mark_that_says_nothing_readable_stands_for_every_partition(catalog: FaultySqlCatalog) -> None:
    _change(catalog, SetPropertiesUpdate(updates={"calve.released.k-lost": "{damaged"}))
    with pytest.raises(RefusedError) as refused:
        _published(catalog, _work(catalog, range(10)))
    assert refused.value.code == "released"


def test_a_released_key_is_remembered_with_what_it_was(catalog: FaultySqlCatalog) -> None:
    work = _work(catalog, range(10))
    _published(catalog, work)
    before = find_export(catalog.load_table(IDENTIFIER), KEY)
    _release(catalog)
    table = catalog.load_table(IDENTIFIER)
    assert before is not None
    assert find_export(table, KEY) == replace(before, released="release1")
    assert list(all_exports(table.metadata)) == [replace(before, released="release1")]
    assert read_marks(table.metadata) == {KEY: _mark()}


# -- the commits of mark and unmark ---------------------------------------------------------------------


def test_a_mark_changes_no_row_and_tags_the_new_head_for_ever(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    before = _head(catalog)
    _release(catalog)
    table = catalog.load_table(IDENTIFIER)
    head = table.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id == int(before)
    tag = table.metadata.refs["calve-released"]
    assert (tag.snapshot_id, tag.max_ref_age_ms) == (head.snapshot_id, 2**63 - 1)
    assert rows_of(catalog) == list(range(10))
    assert_every_manifest_is_there(catalog)


def test_a_mark_is_set_once_however_often_it_is_asked_for(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    proven = _head(catalog)
    for _ in range(3):
        _lake(catalog).mark("release1", {KEY: _mark()}, proven)
    assert len(catalog.load_table(IDENTIFIER).metadata.snapshots) == 2


def test_only_a_proven_head_is_marked(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    proven = _head(catalog)
    append_as_somebody_else(catalog, range(50, 53))
    with pytest.raises(TemporaryError) as moved:
        _lake(catalog).mark("release1", {KEY: _mark()}, proven)
    assert moved.value.code == "head_moved"
    assert MARK not in _properties(catalog)


def test_a_key_of_another_release_and_one_that_was_never_exported_are_refused(
    catalog: FaultySqlCatalog,
) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    with pytest.raises(RefusedError) as taken:
        _release(catalog, "release2")
    assert taken.value.code == "released"
    with pytest.raises(RefusedError) as unknown:
        _release(catalog, "release2", "k-unknown")
    assert unknown.value.code == "mark_unreadable"


def test_a_return_restores_the_key_with_the_content_that_it_has_now(catalog: FaultySqlCatalog) -> None:
    """Parts that come back have other block numbers: under the old id they would be exported again."""
    _published(catalog, _work(catalog, range(10)))
    before = find_export(catalog.load_table(IDENTIFIER), KEY)
    _release(catalog)
    for _ in range(2):
        _lake(catalog).unmark("release1", {KEY: "content-back"})
    table = catalog.load_table(IDENTIFIER)
    assert before is not None
    assert find_export(table, KEY) == replace(before, content="content-back")
    assert MARK not in table.metadata.properties
    assert "calve-released" not in table.metadata.refs
    assert len(table.metadata.snapshots) == 3
    _published(catalog, _work(catalog, range(20, 32), replace=True))
    assert rows_of(catalog) == list(range(20, 32))


def test_the_return_of_one_release_leaves_the_marks_and_the_tag_of_others(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    _published(catalog, make_work(catalog, [(2, range(20, 25))], keys=(("202402", "k2"),)))
    _release(catalog)
    _release(catalog, "release2", "k2")
    tag = catalog.load_table(IDENTIFIER).metadata.refs["calve-released"]
    _lake(catalog).unmark("release1", {})
    metadata = catalog.load_table(IDENTIFIER).metadata
    assert set(read_marks(metadata)) == {"k2"}
    assert metadata.refs["calve-released"] == tag  # no head after it is proven


def test_D2_a_mark_that_arrives_after_its_return_is_refused(catalog: FaultySqlCatalog) -> None:
    """A worker stops right before its commit; another takes the release back; the first goes on."""
    _published(catalog, _work(catalog, range(10)))
    catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.LAST, reading=Reading.AT_ONCE, looks=0))
    with pytest.raises(UnknownOutcomeError):
        _release(catalog)
    _lake(catalog).unmark("release1", {})
    catalog.release()
    assert MARK not in _properties(catalog)
    with pytest.raises(PermanentError) as fenced:
        _release(catalog)
    assert fenced.value.code == "publish_fenced"


FAULTS = [
    Fault(told=told, landing=landing, reading=reading)
    for told in Told
    for landing in Landing
    for reading in (Reading.AT_ONCE, Reading.STALE, Reading.UNREADABLE)
    if not (told is Told.OK and landing is Landing.NOT)
]


@pytest.mark.parametrize("told", Told)
def test_whatever_becomes_of_the_commits_the_marks_end_as_asked(
    catalog: FaultySqlCatalog, told: Told
) -> None:
    """Every outcome of the commit of a mark, then of its return, in one table one after the other."""
    others = open_catalog("lake", dict(catalog.properties))  # whose looks are never late
    _published(catalog, _work(catalog, range(10)))
    catalog.bury = lambda: append_as_somebody_else(others, range(1))
    lake = _lake(catalog)
    for number, fault in enumerate(fault for fault in FAULTS if fault.told is told):
        process = f"release{number}"

        def mark(process: str = process) -> None:
            lake.mark(process, {KEY: _mark(process)}, _head(others))

        def unmark(process: str = process) -> None:
            lake.unmark(process, {})

        catalog.arm(fault)
        _until_it_is_done(mark)
        assert read_marks(others.load_table(IDENTIFIER).metadata) == {KEY: _mark(process)}
        catalog.arm(fault)
        _until_it_is_done(unmark)
        catalog.release()
        table = others.load_table(IDENTIFIER)
        assert read_marks(table.metadata) == {}
        export = find_export(table, KEY)
        assert export is not None
        assert not export.released
        assert "calve-released" not in table.metadata.refs
    assert [row for row in rows_of(others) if row] == list(range(1, 10))


def _until_it_is_done(call: Callable[[], None]) -> None:
    for _ in range(10):
        try:
            return call()
        except TemporaryError:
            continue
    raise AssertionError("ten tries were not enough")


# -- what else could remove the only copy -----------------------------------------------------------------


def test_expiry_keeps_the_tagged_head_for_ever(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    marked = int(_head(catalog))
    append_as_somebody_else(catalog, range(50, 53))
    metadata = catalog.load_table(IDENTIFIER).metadata
    later = metadata.last_updated_ms + FOREVER_DAYS * DAY_MS
    past = expiry(metadata, Settings(), now_ms=later)
    assert past.snapshot_ids
    assert marked not in past.snapshot_ids
    assert "calve-released" not in past.refs


def test_without_the_tag_nothing_expires_and_no_file_is_an_orphan(catalog: FaultySqlCatalog) -> None:
    _published(catalog, _work(catalog, range(10)))
    _release(catalog)
    rolled_back_to = catalog.load_table(IDENTIFIER).metadata.snapshots[0].snapshot_id
    append_as_somebody_else(catalog, range(50, 53))
    _change(catalog, RemoveSnapshotRefUpdate.model_validate({"ref-name": "calve-released"}))
    main = {"ref-name": "main", "type": "branch", "snapshot-id": rolled_back_to}
    _change(catalog, SetSnapshotRefUpdate.model_validate(main))
    table = catalog.load_table(IDENTIFIER)
    later = table.metadata.last_updated_ms + FOREVER_DAYS * DAY_MS
    Path(table.location().removeprefix("file://"), "data", "nobodys.parquet").write_bytes(b"x")
    assert not expiry(table.metadata, Settings(), now_ms=later)
    found = find_orphans(
        table,
        reachable(table),
        older_than=datetime.now(UTC) + timedelta(days=1),
        owner=lambda _: Owner.ENDED,
    )
    assert found.removable == ()
    assert "released rows unguarded" in [one.what for one in health(catalog, IDENTIFIER).findings]


def test_nothing_of_a_released_process_is_undone(catalog: FaultySqlCatalog) -> None:
    work = _work(catalog, range(10))
    _published(catalog, work)
    _release(catalog)
    done = undo(catalog, Storage(), work.process_id, work.plan, work.receipts)
    assert done.in_use
    assert done.deleted == ()
    assert remove_lost(catalog, Storage(), work.process_id, work.plan, ()) == ()
    assert rows_of(catalog) == list(range(10))
