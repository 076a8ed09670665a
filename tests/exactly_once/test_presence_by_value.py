"""What of an export is said to be missing, by metadata alone where that can tell."""

from types import SimpleNamespace
from typing import Any

import pytest
from test_marks_by_value import export, metadata, snapshot

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import presence

OURS = export(snapshot_id="1", sequence=1)


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those of any head: the files that are there now."""
    found: list[Any] = []
    monkeypatch.setattr(presence, "manifests_of", lambda *_: found)
    return found


def told(*snapshots: dict[str, Any], of: EarlierExport = OURS, **given: Any) -> str:
    table = SimpleNamespace(metadata=metadata(*snapshots, **given), io=None)
    found = presence.with_presence(table, of)  # type: ignore[arg-type]
    assert not found.missing or str(found.rows) in found.missing
    return f"deleted: {found.missing}" if found.deleted else found.missing


def taken(number: int, parent: int, **summary: str) -> dict[str, Any]:
    return snapshot(number, parent, **{"operation": "overwrite", **summary})


def test_nothing_is_missing_while_nobody_took_files_out() -> None:
    assert told(snapshot(1), snapshot(2, 1)) == ""
    assert told(snapshot(1), taken(2, 1, deleted_records="0")) == ""
    assert told(snapshot(1), of=export(snapshot_id="1", rows=0)) == ""


@pytest.mark.parametrize("summary", ["deleted_data_files", "removed_files_size", "deleted_records"])
def test_each_number_that_says_that_files_went_is_enough_to_look(manifests: list[Any], summary: str) -> None:
    gone = told(snapshot(1), snapshot(2, 1), taken(3, 2, **{summary: "4"}), snapshot(4, 3))
    assert gone.startswith("deleted: its 10 rows were deleted or rewritten") and gone.endswith("snapshot 3")


def test_a_snapshot_without_a_summary_may_have_taken_files_out(manifests: list[Any]) -> None:
    silent = {name: value for name, value in snapshot(2, 1).items() if name != "summary"}
    assert told(snapshot(1), silent).startswith("deleted: ")


def test_a_compaction_moves_rows_and_deletes_none() -> None:
    assert told(snapshot(1), taken(2, 1, operation="replace", deleted_data_files="4")) == ""


def test_a_compaction_among_deletes_leaves_it_untold() -> None:
    moved = taken(2, 1, operation="replace", deleted_data_files="4")
    assert told(snapshot(1), moved, taken(3, 2, deleted_data_files="1")) == ""


def test_a_head_of_the_same_millisecond_is_no_later_history(manifests: list[Any]) -> None:
    assert told(snapshot(1), snapshot(5, 4) | {"timestamp-ms": 1000}).startswith("main was rolled back")


def test_files_that_are_there_are_not_missing(manifests: list[Any]) -> None:
    entry = SimpleNamespace(snapshot_id=1, data_file=SimpleNamespace(file_path="f"))
    manifests.append(
        SimpleNamespace(content=presence.ManifestContent.DATA, fetch_manifest_entry=lambda _: [entry])
    )
    assert told(snapshot(1), taken(2, 1, deleted_data_files="4")) == ""
    manifests[0].content = presence.ManifestContent.DELETES
    assert told(snapshot(1), taken(2, 1, deleted_data_files="4")) != ""


def test_main_behind_the_export_or_beside_it_has_none_of_its_rows(manifests: list[Any]) -> None:
    assert told(snapshot(1), of=export(snapshot_id="2", sequence=2)).startswith(
        "main was rolled back behind it"
    )
    assert told(snapshot(1), snapshot(2), of=export(snapshot_id="1", sequence=1)) == (
        "main was rolled back: none of its 10 rows is there"
    )


def test_of_an_export_whose_snapshot_is_expired_nobody_can_tell() -> None:
    assert told(snapshot(5), of=OURS) == ""
    younger = snapshot(5, 4)  # what was between the two is expired
    assert told(snapshot(1), younger) == ""
