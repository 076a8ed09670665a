"""Which files of a table are those of an export, and whether main can have any of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from test_marks_by_value import KEY, export, metadata, snapshot, text

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import history
from calve.iceberg.publish import replace as replacing
from calve.iceberg.publish.replace import find_removal, is_behind, is_of
from calve.model.errors import RefusedError

PATH = 2147483546  # the column of a position delete file that names data files


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


# ---- what a replace takes out, of files that a head has


def live(name: str, added_by: int, rows: int = 10, **given: Any) -> Any:
    """An entry of a manifest."""
    data: dict[str, Any] = {
        "file_path": name, "record_count": rows, "file_size_in_bytes": 1, "partition": (1,), "spec_id": 0,
        "content": DataFileContent.DATA, "lower_bounds": None, "upper_bounds": None,
    }  # fmt: skip
    numbers = {"sequence_number": added_by, "file_sequence_number": added_by}
    entry = (
        {"snapshot_id": added_by}
        | numbers
        | {name: given.pop(name) for name in tuple(given) if name in numbers}
    )
    return SimpleNamespace(**entry, data_file=SimpleNamespace(**data | given))


@pytest.fixture
def removal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The names of the files that go, or the code of the refusal."""

    def found(
        table: TableMetadata,
        entries: list[Any],
        earlier: EarlierExport,
        deletes: tuple[Any, ...] = (),
        more: tuple[EarlierExport, ...] = (),
        *,
        discard: bool = False,
    ) -> str:
        manifests = [
            SimpleNamespace(content=ManifestContent.DATA, fetch_manifest_entry=lambda _: entries),
            SimpleNamespace(content=ManifestContent.DELETES, fetch_manifest_entry=lambda _: list(deletes)),
        ]
        monkeypatch.setattr(replacing, "manifests_of", lambda *_: manifests)
        monkeypatch.setattr(history, "manifests_of", lambda *_: [])
        plan = SimpleNamespace(keys=[KEY], discard_deletes=discard)
        try:
            going = find_removal(SimpleNamespace(metadata=table, io=None), plan, [earlier, *more])  # type: ignore[arg-type]
        except RefusedError as error:
            return error.code
        return ",".join(sorted(going.files))

    return found


WHOLE = export(snapshot_id="2", sequence=2, rows=10, files=1)
MAIN = metadata(snapshot(1), snapshot(2, 1, calve__export_key="k1"), snapshot(3, 2, operation="overwrite"))


def test_an_export_that_is_whole_goes_and_nothing_else(removal: Callable[..., str]) -> None:
    assert removal(MAIN, [live("a", 1), live("b", 2), live("c", 3)], WHOLE) == "b"


@pytest.mark.parametrize(
    ("given", "goes"),
    [
        ({}, False),  # a delete file of the same partition, without bounds: who knows
        ({"partition": ()}, False),  # of all partitions
        ({"partition": (2,)}, True),
        ({"spec_id": 1}, True),
        ({"sequence_number": 1}, True),  # older than the file
        ({"sequence_number": 2}, False),  # positions of the same commit count
        ({"sequence_number": 2, "content": DataFileContent.EQUALITY_DELETES}, True),  # values do not
        ({"sequence_number": 3, "content": DataFileContent.EQUALITY_DELETES}, False),
        ({"lower_bounds": {PATH: b"a"}, "upper_bounds": {PATH: b"c"}}, False),
        ({"lower_bounds": {PATH: b"b"}, "upper_bounds": {PATH: b"b"}}, False),
        ({"lower_bounds": {PATH: b"c"}}, True),
        ({"upper_bounds": {PATH: b"a"}}, True),
    ],
)  # fmt: skip
def test_D13_a_file_with_deletes_in_the_lake_goes_only_if_they_are_to_be_discarded(
    removal: Callable[..., str], given: dict[str, Any], goes: bool
) -> None:
    delete = live("d", 3, **{"content": DataFileContent.POSITION_DELETES} | given)
    assert removal(MAIN, [live("b", 2)], WHOLE, (delete,)) == ("b" if goes else "deletes_would_be_lost")
    assert removal(MAIN, [live("b", 2)], WHOLE, (delete,), discard=True) == "b"


LOST, UNSURE = "deletes_would_be_lost", "replace_refused"
EXPIRED = export(snapshot_id="99", sequence=5)


@pytest.mark.parametrize(
    ("numbers", "sequence", "answer"),
    [
        ((3, 3), 5, LOST),  # older than the export: none of its rows
        ((1, 1), 5, LOST),
        ((4, None), 5, LOST),
        ((5, 5), 5, UNSURE),  # a rewrite since may hold them
        ((3, 6), 5, UNSURE),
        ((None, None), 5, UNSURE),
        ((3, 3), 0, UNSURE),  # when it was made is not known
    ],
)
def test_T7_a_file_of_others_may_hold_rows_of_an_expired_export_unless_it_is_older(
    removal: Callable[..., str], numbers: tuple[int | None, int | None], sequence: int, answer: str
) -> None:
    table = metadata(snapshot(1), snapshot(6, 1, operation="overwrite"))
    other = live("x", 6, sequence_number=numbers[0], file_sequence_number=numbers[1])
    assert removal(table, [other], export(snapshot_id="99", sequence=sequence)) == answer
    appended = metadata(snapshot(1), snapshot(6, 1))
    assert removal(appended, [other], export(snapshot_id="99", sequence=sequence)) == LOST
    assert removal(appended, [other], export(snapshot_id="99", sequence=sequence), discard=True) == ""


def test_files_that_hold_the_key_with_others_stop_a_replace_unless_a_later_export_took_it_out(
    removal: Callable[..., str],
) -> None:
    both = {"calve__export_key": "k1,k2"}
    before = metadata(snapshot(1, **both), snapshot(2, 1, calve__export_key="k1"))
    assert removal(before, [live("a", 1)], WHOLE) == ""
    after = metadata(snapshot(1), snapshot(2, 1, calve__export_key="k1"), snapshot(3, 2, **both))
    assert removal(after, [live("a", 3)], WHOLE) == UNSURE


@pytest.mark.parametrize(
    ("carried", "properties", "answer"),
    [
        ("k1", {}, "b"),
        (
            "k1",
            {
                "calve.export.k1": text(snapshot="2"),
                "calve.export.k3": text(snapshot="9"),
                "calve.export.k4": "{",
            },
            "b",
        ),
        ("k1", {"calve.export.k2": text(snapshot="2")}, UNSURE),
        ("k1", {"note": text(snapshot="2")}, "b"),
        ("k1,k2", {}, UNSURE),
        ("", {}, UNSURE),  # nothing says whose they are
    ],
)
def test_files_of_several_keys_go_only_together(
    removal: Callable[..., str], carried: str, properties: dict[str, str], answer: str
) -> None:
    table = metadata(snapshot(1), snapshot(2, 1, calve__export_key=carried), properties=properties)
    shared = export(snapshot_id="2", sequence=2, rows=10, files=1, shared=True)
    assert removal(table, [live("b", 2)], shared) == answer
    other = export(key_hash="k2", snapshot_id="2", sequence=2, rows=10, files=1, shared=True)
    assert removal(table, [live("b", 2)], shared, more=(other,)) == (answer if not carried else "b")


def test_without_an_earlier_export_nothing_goes() -> None:
    assert find_removal(SimpleNamespace(), SimpleNamespace(), ()).files == frozenset()  # type: ignore[arg-type]
