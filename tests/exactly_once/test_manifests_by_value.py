"""Which manifests are merged, what an entry says of its file, and which metadata files of lost attempts go."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, read_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import VoidTransform

from calve.destination.receipt import FileReceipt
from calve.iceberg.publish import manifests
from calve.iceberg.publish.manifests import ManifestFiles, attempt_files, data_file, data_files, delete_unused
from calve.iceberg.publish.marks import Sent
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, make_table, make_work
from support.outcomes import Publisher


@dataclass
class Listed:
    """What a manifest list says of a manifest without entries."""

    manifest_path: str
    added_files_count: int | None = 1
    existing_files_count: int | None = 0
    content: ManifestContent = ManifestContent.DATA
    partition_spec_id: int = 0

    def fetch_manifest_entry(self, _: object) -> list[Any]:
        return []


def merged(catalog: FaultySqlCatalog, *groups: list[Listed], **properties: str) -> set[str]:
    """The paths that go into one new manifest."""
    table = catalog.load_table(IDENTIFIER)
    if properties:
        with table.transaction() as change:
            change.set_properties({name.replace("__", "."): value for name, value in properties.items()})
        table = catalog.load_table(IDENTIFIER)
    listed = [
        replace(one, manifest_path=f"{number}-{place}")
        for number, group in enumerate(groups)
        for place, one in enumerate(group)
    ]
    output = ManifestFiles(table=table, process_id="p", snapshot_id=1)
    kept = output.merge(listed, 0)  # type: ignore[arg-type]
    return {one.manifest_path for one in listed} - {one.manifest_path for one in kept}


def of(files: int, times: int, **given: Any) -> list[Listed]:
    return [Listed("", files, **given)] * times


def test_ten_manifests_of_about_one_size_become_one(catalog: FaultySqlCatalog) -> None:
    ten = {f"0-{number}" for number in range(10)}
    assert merged(catalog, of(1, 10)) == ten
    assert merged(catalog, of(1, 9)) == set()
    assert merged(catalog, of(1, 5), of(9, 5)) == {
        f"{group}-{number}" for group in (0, 1) for number in range(5)
    }
    assert merged(catalog, of(1, 9), of(10, 9)) == set()
    assert merged(catalog, of(999, 10)) == ten
    assert (
        merged(catalog, of(1000, 10))
        == merged(catalog, of(0, 10))
        == merged(catalog, [Listed("", None, None)] * 10)
        == set()
    )
    assert merged(catalog, [Listed("", None, 5)] * 10) == merged(catalog, [Listed("", 5, None)] * 10) == ten
    assert merged(catalog, [Listed("", 4, 995)] * 10) == ten
    assert merged(catalog, [Listed("", 5, 995)] * 10) == set()
    assert (
        merged(catalog, of(1, 10, content=ManifestContent.DELETES))
        == merged(catalog, of(1, 10, partition_spec_id=1))
        == set()
    )
    assert merged(catalog, of(1, 12), **{"commit__manifest-merge__enabled": "False"}) == set()


FILE = FileReceipt(
    path="f.parquet", rows=3, bytes=40, partition=(1,), column_sizes={1: 9}, value_counts={1: 3}, null_counts={2: 1},
    nan_counts={3: 2}, lower_bounds={1: "01"}, upper_bounds={1: "ff"}, split_offsets=(4, 20), sort_order_id=0,
)  # fmt: skip


def test_an_entry_says_of_a_file_all_that_its_receipt_does(catalog: FaultySqlCatalog) -> None:
    table = catalog.load_table(IDENTIFIER)
    made = data_file(table, 0, FILE)
    assert (made.file_path, made.record_count, made.file_size_in_bytes, made.spec_id) == (
        "f.parquet",
        3,
        40,
        0,
    )
    assert (made.column_sizes, made.value_counts, made.null_value_counts, made.nan_value_counts) == (
        {1: 9}, {1: 3}, {2: 1}, {3: 2},
    )  # fmt: skip
    assert (made.lower_bounds, made.upper_bounds, made.split_offsets, made.sort_order_id) == (
        {1: b"\x01"}, {1: b"\xff"}, [4, 20], 0,
    )  # fmt: skip
    assert tuple(made.partition) == (1,)  # type: ignore[call-overload]
    two = SimpleNamespace(metadata=SimpleNamespace(
        sort_orders=[SimpleNamespace(order_id=number) for number in (0, 1)], specs=table.metadata.specs,
        schema=table.metadata.schema,
    ))  # fmt: skip
    assert data_file(two, 0, FILE).sort_order_id == 0  # type: ignore[arg-type]
    bare = data_file(table, 0, FileReceipt(path="g", rows=1, bytes=1, partition=(None,), sort_order_id=7))
    nothing = (bare.column_sizes, bare.value_counts, bare.null_value_counts, bare.nan_value_counts, bare.lower_bounds,
               bare.upper_bounds, bare.split_offsets, bare.sort_order_id)  # fmt: skip
    assert nothing == (None,) * 8


def test_files_of_one_partition_are_side_by_side_and_a_manifest_holds_so_many(
    catalog: FaultySqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "FILES_PER_MANIFEST", 2)
    work = make_work(catalog, [(2, range(3)), (1, range(3, 6)), (2, range(6, 9))])
    table = catalog.load_table(IDENTIFIER)
    assert [file.partition[0] for file in data_files(table, work.plan, work.receipts)] == [1, 2, 2]
    Publisher(catalog=catalog, work=work).run()
    table = catalog.load_table(IDENTIFIER)
    head = table.current_snapshot()
    assert head is not None
    listed = list(read_manifest_list(table.io.new_input(head.manifest_list)))
    assert sorted(one.added_files_count or 0 for one in listed) == [1, 2]
    entries = [entry for one in listed for entry in one.fetch_manifest_entry(table.io)]
    assert {(one.status, one.snapshot_id) for one in entries} == {
        (ManifestEntryStatus.ADDED, head.snapshot_id)
    }


def test_metadata_files_of_attempts_that_lost_go_and_no_others(catalog: FaultySqlCatalog) -> None:
    work = make_work(catalog, [(1, range(3))])
    Publisher(catalog=catalog, work=work).run()
    table = catalog.load_table(IDENTIFIER)
    head = str(table.metadata.current_snapshot_id)
    lost, other = Sent(snapshot_id="5", manifests=2), Sent(snapshot_id=head, manifests=1)
    names = attempt_files(table, work.process_id, [lost])
    assert len(set(names)) == 3
    for name in (*names, *attempt_files(table, "q", [lost])):
        table.io.new_output(name).create().close()
    delete_unused(table, work.process_id, [other], head)
    delete_unused(table, work.process_id, [lost], "5")
    delete_unused(table, work.process_id, [lost, Sent(snapshot_id="6")], "5")
    assert all(Path(name.removeprefix("file://")).exists() for name in names), "it may have landed"
    delete_unused(table, work.process_id, [lost, other], head)
    assert not any(Path(name.removeprefix("file://")).exists() for name in names)
    kept = (*attempt_files(table, "q", [lost]), *attempt_files(table, work.process_id, [other]))
    assert all(Path(name.removeprefix("file://")).exists() for name in kept)
    delete_unused(table, work.process_id, [lost, other], head)  # what is gone already is no error


def test_T15_a_void_field_of_a_required_column_is_null_in_a_manifest(catalog: FaultySqlCatalog) -> None:
    void = PartitionSpec(
        PartitionField(source_id=1, field_id=1000, transform=VoidTransform(), name="id_void")
    )
    table = make_table(catalog, spec=void, identifier=("ns", "voids"))
    output = ManifestFiles(table=table, process_id="p", snapshot_id=1)
    output.add([data_file(table, 0, replace(FILE, partition=(None,)))], 0)
    [entry] = output.written[0].fetch_manifest_entry(table.io)
    assert entry.data_file.file_path == "f.parquet"
