"""Which files of a table are those of an export, and whether main can have any of them."""

from types import SimpleNamespace
from typing import Any

import pytest
from test_marks_by_value import export, metadata, snapshot

from calve.iceberg.publish.replace import is_behind, is_of


def test_main_is_behind_an_export_while_its_head_is_older() -> None:
    assert is_behind(metadata(), export(snapshot_id="1", sequence=1)), "nothing was ever written"
    for sequence, behind in ((1, False), (2, False), (3, True)):
        assert is_behind(metadata(snapshot(2)), export(snapshot_id="9", sequence=sequence)) is behind
    # A mark from before sequence numbers: its snapshot knows.
    rolled_back = metadata(snapshot(1), snapshot(2, 1), refs={"main": 1}, current_snapshot_id=1)
    assert is_behind(rolled_back, export(snapshot_id="2", sequence=0))
    assert not is_behind(rolled_back, export(snapshot_id="9", sequence=0)), (
        "its snapshot is expired: who knows"
    )
    old = {name: value for name, value in snapshot(1).items() if name != "sequence-number"}
    assert not is_behind(metadata(old), export(snapshot_id="9", sequence=3)), "a head from before them"


def file(process_id: str, task: int) -> Any:
    return SimpleNamespace(file_path=f"s3://b/month=1/calve-{process_id}-{task}-1-0.parquet")


FOREIGN = SimpleNamespace(file_path="s3://b/part-0.parquet")


@pytest.mark.parametrize(
    ("given", "added_by", "what", "its"),
    [
        ({}, 7, file("p1", 5), True),
        ({}, 7, FOREIGN, True),  # all files of its snapshot are its own
        ({}, 8, file("p1", 5), False),
        ({}, None, file("p1", 5), False),
        ({"tasks": (5,)}, 7, file("p1", 5), True),
        ({"tasks": (5,)}, 7, file("p1", 6), False),
        ({"tasks": (5,)}, 7, FOREIGN, False),
        ({"tasks": (5,)}, 7, file("p0", 5), True),  # a mark from before adopted tasks were kept
        ({"tasks": (5,), "adopted": {"p0": (6,)}}, 7, file("p0", 6), True),
        ({"tasks": (5,), "adopted": {"p0": (6,)}}, 7, file("p0", 5), False),
        ({"tasks": (5,), "adopted": {"p0": (6,)}}, 7, file("p1", 5), True),
        ({"tasks": (5,), "adopted": {"p0": (6,)}}, 7, file("px", 5), False),
    ],
)
def test_a_file_is_of_an_export_by_its_snapshot_and_its_name(
    given: dict[str, Any], added_by: int | None, what: Any, its: bool
) -> None:
    assert is_of(export(**given), added_by, what) is its
