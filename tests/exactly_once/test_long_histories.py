"""Publishing into a table of many appends: manifests are merged, metadata is parsed once, rows stay what they were."""

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.publish import PublishedSnapshot
from calve.iceberg.publish.manifests import MERGED_AT_ONCE, manifests_of
from calve.model.errors import TemporaryError
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of
from support.outcomes import Publisher, append_as_somebody_else, assert_published_once

APPENDS = MERGED_AT_ONCE + 2


def _work(catalog: Catalog, number: int, ids: range | None = None) -> Work:
    rows = ids or range(number * 10, number * 10 + 2)
    return make_work(catalog, [(number % 3, rows)], keys=[(str(number), f"key-{number}")])


def _append(catalog: Catalog, numbers: range) -> list[str]:
    done = []
    for number in numbers:
        answer = Publisher(catalog=catalog, work=_work(catalog, number)).run()
        assert isinstance(answer, PublishedSnapshot)
        done.append(answer.snapshot_id)
    return done


def _manifests(catalog: Catalog) -> list[Any]:
    table = catalog.load_table(IDENTIFIER)
    return manifests_of(table, table.current_snapshot())


def _entries(catalog: Catalog) -> dict[str, Any]:
    io = catalog.load_table(IDENTIFIER).io
    return {
        entry.data_file.file_path: entry
        for manifest in _manifests(catalog)
        for entry in manifest.fetch_manifest_entry(io)
    }


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


@pytest.mark.parametrize("version", ["1", "2"])
def test_manifests_of_many_appends_are_merged(catalog: FaultySqlCatalog, version: str) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": version})
    made = _append(catalog, range(MERGED_AT_ONCE))
    before = _entries(catalog)
    assert len(_manifests(catalog)) == MERGED_AT_ONCE
    made += _append(catalog, range(MERGED_AT_ONCE, APPENDS))
    assert len(_manifests(catalog)) == 1 + APPENDS - MERGED_AT_ONCE
    after = _entries(catalog)
    for path, entry in before.items():
        assert after[path].status == ManifestEntryStatus.EXISTING
        assert (after[path].snapshot_id, after[path].sequence_number, after[path].file_sequence_number) == (
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
        )
        assert after[path].data_file.partition == entry.data_file.partition
        assert after[path].data_file.lower_bounds == entry.data_file.lower_bounds
    assert {str(entry.snapshot_id) for entry in after.values()} == set(made)
    assert rows_of(catalog) == [row for number in range(APPENDS) for row in (number * 10, number * 10 + 1)]


def test_manifests_from_before_an_upgrade_of_the_format_are_merged(catalog: FaultySqlCatalog) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": "1"})
    _append(catalog, range(MERGED_AT_ONCE))
    catalog.load_table(IDENTIFIER).transaction().upgrade_table_version(2).commit_transaction()
    _append(catalog, range(MERGED_AT_ONCE, APPENDS))
    assert len(_manifests(catalog)) == 1 + APPENDS - MERGED_AT_ONCE
    assert rows_of(catalog) == [row for number in range(APPENDS) for row in (number * 10, number * 10 + 1)]
    assert sorted(entry.sequence_number for entry in _entries(catalog).values()) == [0] * MERGED_AT_ONCE + [
        1,
        2,
    ]


def test_a_table_may_forbid_merging(catalog: FaultySqlCatalog) -> None:
    catalog.load_table(IDENTIFIER).transaction().set_properties(
        {"commit.manifest-merge.enabled": "false"}
    ).commit_transaction()
    _append(catalog, range(APPENDS))
    assert len(_manifests(catalog)) == APPENDS


def test_an_export_whose_manifest_was_merged_is_replaced(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(APPENDS))
    forced = _work(catalog, 3, range(500, 505)).with_plan(replace=True, allow_shrink=True)
    answer = Publisher(catalog=catalog, work=forced).run()
    assert isinstance(answer, PublishedSnapshot)
    assert (answer.rows, answer.replaced_rows) == (5, 2)
    others = [row for number in range(APPENDS) if number != 3 for row in (number * 10, number * 10 + 1)]
    assert rows_of(catalog) == sorted([*others, *range(500, 505)])
    assert_published_once(catalog, forced.process_id)


def test_merged_manifests_of_an_attempt_that_lost_are_deleted(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(MERGED_AT_ONCE))
    folder = _path(catalog.load_table(IDENTIFIER).location()) / "metadata"
    publisher = Publisher(catalog=catalog, work=_work(catalog, MERGED_AT_ONCE))
    plain = publisher.note

    def overtaken(text: str) -> None:
        plain(text)
        append_as_somebody_else(catalog, range(900, 902))

    publisher.note = overtaken  # type: ignore[method-assign]
    with pytest.raises(TemporaryError):
        publisher.attempt()
    lost = set(folder.glob(f"*{publisher.work.process_id}*"))
    assert len(lost) == 3  # its list, its manifest, the merged one
    publisher.note = plain  # type: ignore[method-assign]
    publisher.run()
    assert not lost & set(folder.iterdir())
    assert len(_manifests(catalog)) == MERGED_AT_ONCE + 2, "an attempt after a lost race is short"
    assert_published_once(catalog, publisher.work.process_id)


def test_a_manifest_that_cannot_be_read_stops_no_append(
    catalog: FaultySqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    _append(catalog, range(MERGED_AT_ONCE))
    _path(_manifests(catalog)[4].manifest_path).unlink()
    with caplog.at_level(logging.WARNING):
        _append(catalog, range(MERGED_AT_ONCE, APPENDS))
    assert len(_manifests(catalog)) == APPENDS
    assert "manifests are not merged" in caplog.text


def test_metadata_that_was_not_parsed_again_is_what_others_read(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(3))
    fresh = open_catalog("lake", catalog.properties)
    assert catalog.load_table(IDENTIFIER).metadata is catalog.load_table(IDENTIFIER).metadata
    assert catalog.load_table(IDENTIFIER).metadata == fresh.load_table(IDENTIFIER).metadata


def _assert_written_as_pyiceberg_does(catalog: Catalog) -> None:
    table = catalog.load_table(IDENTIFIER)
    assert json.loads(_path(table.metadata_location).read_bytes()) == json.loads(
        table.metadata.model_dump_json(exclude_none=True)
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_metadata_files_made_from_those_before_are_whole(catalog: FaultySqlCatalog, version: str) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": version})
    other = make_table(catalog, identifier=("ns", "other"))
    for number in range(4):
        [made] = _append(catalog, range(number, number + 1))
        other.transaction().set_properties({"of": "another table"}).commit_transaction()
        _assert_written_as_pyiceberg_does(catalog)
    catalog.load_table(IDENTIFIER).transaction().set_properties({"a": "property"}).commit_transaction()
    _assert_written_as_pyiceberg_does(catalog)
    assert catalog.load_table(IDENTIFIER).metadata.current_snapshot_id == int(made)


def test_a_metadata_file_has_no_snapshot_that_was_expired_or_is_written_otherwise(
    catalog: FaultySqlCatalog,
) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": "1"})
    first, *_ = _append(catalog, range(3))
    catalog.load_table(IDENTIFIER).transaction().upgrade_table_version(2).commit_transaction()
    _assert_written_as_pyiceberg_does(catalog)
    table = catalog.load_table(IDENTIFIER)
    tag = next(name for name, ref in table.metadata.refs.items() if str(ref.snapshot_id) == first)
    catalog.commit_table(
        table, (), (RemoveSnapshotRefUpdate(ref_name=tag), RemoveSnapshotsUpdate(snapshot_ids=[int(first)]))
    )
    _assert_written_as_pyiceberg_does(catalog)
    _append(catalog, range(3, 5))
    _assert_written_as_pyiceberg_does(catalog)
    assert len(catalog.load_table(IDENTIFIER).metadata.snapshots) == 4


def test_compressed_metadata_files_are_whole(catalog: FaultySqlCatalog, tmp_path: Path) -> None:
    for number in range(3):
        _append(catalog, range(number, number + 1))
        table = catalog.load_table(IDENTIFIER)
        place = f"file://{tmp_path}/{number}.gz.metadata.json"
        catalog._parsed.write(table.metadata, table.io.new_output(place))
        written = json.loads(gzip.decompress(_path(place).read_bytes()))
        assert written == json.loads(table.metadata.model_dump_json())


def test_few_metadata_files_are_kept_and_large_ones_are_not(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _append(catalog, range(8))
    assert len(catalog._parsed._kept) == 4
    monkeypatch.setattr("calve.iceberg.catalogs.catalog._PARSED_BYTES", 100)
    assert catalog.load_table(IDENTIFIER).metadata is not catalog.load_table(IDENTIFIER).metadata
    assert catalog._parsed._kept == {}


def test_a_metadata_file_with_other_bytes_is_parsed_again(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(1))
    path = _path(catalog.load_table(IDENTIFIER).metadata_location)
    path.write_text(path.read_text().replace('"key-0"', '"key-9"'))
    head = catalog.load_table(IDENTIFIER).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["calve.export-key"] == "key-9"


def test_a_metadata_file_that_grew_or_shrank_is_parsed_again(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(1))
    table = catalog.load_table(IDENTIFIER)
    path = _path(table.metadata_location)
    path.write_bytes(path.read_bytes() + b" ")
    grown = catalog.load_table(IDENTIFIER).metadata
    assert grown is not table.metadata
    path.write_bytes(path.read_bytes()[:-1])
    assert catalog.load_table(IDENTIFIER).metadata is not grown


def test_a_lost_metadata_file_is_not_remembered(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(1))
    _path(catalog.load_table(IDENTIFIER).metadata_location).unlink()
    with pytest.raises(FileNotFoundError):
        catalog.load_table(IDENTIFIER)


def test_a_commit_makes_the_metadata_that_pyiceberg_makes(catalog: FaultySqlCatalog) -> None:
    _append(catalog, range(2))
    table = catalog.load_table(IDENTIFIER)
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    updates = (SetPropertiesUpdate(updates={"a": "b"}), RemovePropertiesUpdate(removals=["a"]))
    ours = catalog._update_and_stage_table(table, IDENTIFIER, requirements, updates)
    theirs = SqlCatalog._update_and_stage_table(catalog, table, IDENTIFIER, requirements, updates)
    same = {"last_updated_ms": theirs.metadata.last_updated_ms}
    assert ours.metadata.model_copy(update=same) == theirs.metadata
    assert ours.metadata.last_updated_ms <= theirs.metadata.last_updated_ms
    assert len(ours.metadata.metadata_log) == len(table.metadata.metadata_log) + 1
