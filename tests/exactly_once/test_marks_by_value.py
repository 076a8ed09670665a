"""The marks of a publish as values: what each says, what is found by it, and what is not taken for one."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2

from calve.destination.outcome import EarlierExport, PublishedSnapshot
from calve.destination.plan import KeyPlan
from calve.iceberg.publish import marks
from calve.iceberg.publish.marks import Findings, Sent
from calve.model.errors import DamagedError, RefusedError
from support.catalog_faults import FaultySqlCatalog
from support.lake import Work, make_work

KEY = KeyPlan(
    partition="202401", hash="k1", content="c1", text=json.dumps(["server/table", "202401", "sel", "more"])
)
EXPORT: dict[str, Any] = {
    "process": "p1", "snapshot": "7", "content": "c1", "input": ["server/table", "202401", "sel"], "sequence": 3, "top": 9,
    "rows": 10, "files": 2,
}  # fmt: skip


def text(**given: Any) -> str:
    return json.dumps(EXPORT | given, separators=(",", ":"))


def export(**given: Any) -> EarlierExport:
    known: dict[str, Any] = {
        "key_hash": "k1", "process_id": "p1", "snapshot_id": "7", "content": "c1", "rows": 10, "files": 2,
        "input": ("server/table", "202401", "sel"), "sequence": 3, "top": 9,
    }  # fmt: skip
    return EarlierExport(**known | given)


def snapshot(number: int, parent: int | None = None, /, **summary: str) -> dict[str, Any]:
    said = {"operation": "append"} | {
        name.replace("__", ".").replace("_", "-"): value for name, value in summary.items()
    }
    return {
        "snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": number * 1000,
        "manifest-list": f"s3://b/{number}.avro", "summary": said, "schema-id": 0,
    }  # fmt: skip


def metadata(*snapshots: dict[str, Any], version: int = 2, **given: Any) -> TableMetadata:
    head = snapshots[-1]["snapshot-id"] if snapshots else None
    refs = {"main": {"snapshot-id": head, "type": "branch"}} if head else {}
    known: dict[str, Any] = {
        "format-version": version, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "s3://b",
        "last-sequence-number": head or 0, "last-updated-ms": (head or 0) * 1000, "last-column-id": 1,
        "current-schema-id": 0, "default-spec-id": 0, "last-partition-id": 999, "default-sort-order-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}],
        "partition-specs": [{"spec-id": 0, "fields": []}], "sort-orders": [{"order-id": 0, "fields": []}],
        "current-snapshot-id": head, "snapshots": list(snapshots), "properties": {},
    }  # fmt: skip
    known |= {name.replace("_", "-"): value for name, value in given.items() if name != "refs"}
    known["refs"] = {
        name: {"snapshot-id": number, "type": "branch" if name == "main" else "tag"}
        for name, number in (
            {name: ref["snapshot-id"] for name, ref in refs.items()} | given.get("refs", {})
        ).items()
    }
    kind = TableMetadataV1 if version == 1 else TableMetadataV2
    return kind.model_validate(
        known | ({"schema": known["schemas"][0], "partition-spec": []} if version == 1 else {})
    )


def tag(process_id: str) -> str:
    return f"calve-{process_id}"


# ---- properties


def test_a_property_is_read_as_it_was_written() -> None:
    assert marks.read_property("k1", text()) == export()
    least = '{"process":"p1","snapshot":"7"}'
    assert marks.read_property("k1", least) == EarlierExport(key_hash="k1", process_id="p1", snapshot_id="7")
    several = text(tasks="0-2,5", adopted={"p0": "1"})
    assert marks.read_property("k1", several) == export(tasks=(0, 1, 2, 5), adopted={"p0": (1,)})
    assert marks.read_property("k1", text(tasks=None)) == export(shared=True)


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", "5", "null", '{"process":"p"}', '{"process":"p","snapshot":"x"}', text(input=["a"]), text(tasks="1-x"),
     text(tasks="0-99999999"), text(adopted=["p"]), text(rows=[]), "[" * 100_000],
    ids=range(13),
)  # fmt: skip
def test_T10_a_property_that_does_not_read_is_none(damaged: str) -> None:
    assert marks.read_property("k1", damaged) is None


def test_a_released_property_is_one_that_says_by_whom_and_goes_back_to_what_it_was() -> None:
    released = marks.as_released(text(), "r1")
    assert marks.is_as_released(released) and not marks.is_as_released(text())
    assert marks.read_property("k1", released) == export(released="r1")
    assert marks.read_property("k1", '{"released":' + text() + "}") == export(released="unknown")
    assert marks.as_returned(released) == text()
    assert marks.read_property("k1", marks.as_returned(released, "c2")) == export(content="c2")
    for before in (released, text()):
        assert marks.read_property("k1", marks.as_here(before, "c3", 20)) == export(content="c3", top=20)


def test_numbers_of_tasks_are_short_and_bounded() -> None:
    assert marks.ranges([7, 0, 1, 2, 9, 10]) == "0-2,7,9-10"
    assert marks.unranged("0-2,7,9-10") == [0, 1, 2, 7, 9, 10]
    assert (marks.ranges([]), marks.unranged("")) == ("", [])
    assert len(marks.unranged("1-1000000")) == 1_000_000
    with pytest.raises(ValueError, match="that many tasks"):
        marks.unranged("0-1000000")


def test_a_note_is_what_was_about_to_be_sent_oldest_first() -> None:
    sent = (Sent(snapshot_id="1", timestamp_ms=5, manifests=2), Sent(snapshot_id="2"))
    assert marks.read_note(marks.write_note(sent)) == sent
    assert (sent[1].timestamp_ms, sent[1].manifests) == (0, 0)
    assert marks.read_note("") == ()
    with pytest.raises(DamagedError):
        marks.read_note("{")


# ---- the search


def ours(number: int, **given: Any) -> PublishedSnapshot:
    known: dict[str, Any] = {"process_id": "p", "snapshot_id": str(number), "rows": 0, "files": 0, "bytes": 0}
    return PublishedSnapshot(**known | given)


def search(table: TableMetadata, *noted: str) -> Findings:
    return marks.search(table, "p", [KEY], [Sent(snapshot_id=one) for one in noted])


MINE = {"calve__process_id": "p", "calve__export_key": "k1"}


def test_a_publish_of_ours_is_found_by_each_of_its_marks_alone() -> None:
    numbers = {"added_records": "5", "added_data_files": "2", "added_files_size": "70", "deleted_records": "4",
               "deleted_data_files": "1"}  # fmt: skip
    counted = ours(1, rows=5, files=2, bytes=70, replaced_rows=4, replaced_files=1)
    assert search(metadata(snapshot(1, **MINE, **numbers), refs={tag("p"): 1})) == Findings(ours=counted)
    assert search(metadata(snapshot(1, **MINE, **numbers), snapshot(2, 1))) == Findings(ours=counted)
    assert search(metadata(snapshot(1, calve__process_id="p", added_records="x"))) == Findings(ours=ours(1))
    assert search(metadata(snapshot(1), snapshot(2, 1)), "1") == Findings(ours=ours(1))
    remembered = metadata(properties={"calve.export.k1": text(process="p")})
    assert search(remembered) == Findings(ours=ours(7, rows=10, files=2, expired=True))


def test_of_several_snapshots_of_ours_the_tagged_one_counts() -> None:
    two = (snapshot(1, **MINE), snapshot(2, 1, **MINE))
    assert search(metadata(*two)).ours == ours(1)
    assert search(metadata(*two), "2").ours == ours(1)
    # A tag on a snapshot without our id is no publish; what is noted is.
    assert search(metadata(snapshot(1), snapshot(2, 1), refs={tag("p"): 2}), "1", "2").ours == ours(2)


def test_a_tag_on_another_s_snapshot_is_a_tombstone_and_only_main_behind_the_fence_is_fenced() -> None:
    assert search(metadata(snapshot(1), refs={tag("p"): 1})) == Findings(tombstone=True)
    fence = {"calve__fenced_process_id": "p"}
    assert search(metadata(snapshot(1, **fence))) == Findings(tombstone=True, fenced=True)
    assert search(metadata(snapshot(1, **fence), snapshot(2, 1))) == Findings(tombstone=True, fenced=True)
    assert search(metadata(snapshot(1, **fence), snapshot(2))) == Findings(tombstone=True), (
        "main was rolled back"
    )
    assert search(metadata(snapshot(1, calve__fenced_process_id="q"))) == Findings()


def test_keys_that_others_published_are_found_by_property_else_by_the_newest_summary() -> None:
    assert search(metadata(properties={"calve.export.k1": text()})) == Findings(earlier=(export(),))
    said = {"calve__export_key": "k1", "added_records": "5", "added_data_files": "2"}
    older = snapshot(1, calve__process_id="p0", **said)
    [found] = search(metadata(older, snapshot(2, 1, calve__process_id="p2", **said), snapshot(3, 2))).earlier
    assert found == EarlierExport(key_hash="k1", process_id="p2", snapshot_id="2", rows=5, files=2)
    [found] = search(metadata(snapshot(1, **said | {"calve__export_key": "k0,k1"}))).earlier
    assert found == EarlierExport(key_hash="k1", process_id="unknown", snapshot_id="1", shared=True)
    assert search(metadata(snapshot(1, **said | {"calve__export_key": "k10,k2"}))) == Findings()
    with pytest.raises(RefusedError) as refused:
        search(metadata(older, properties={"calve.export.k1": "{"}))
    assert refused.value.code == "mark_unreadable"


# ---- released keys

RELEASED = {"calve.export.k1": marks.as_released(text(), "r1")}
MARK = {"calve.released.k1": '{"process":"r1","input":["i","202401",""]}'}


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (RELEASED | MARK, export(released="r1")),
        (RELEASED, export(released="r1")),
        ({"calve.export.k1": text()} | MARK, export(released="r1")),
        (
            MARK,
            EarlierExport(
                key_hash="k1", process_id="unknown", snapshot_id="0", input=("i", "202401", ""), released="r1"
            ),
        ),
        (
            {"calve.released.k1": "{"},
            EarlierExport(key_hash="k1", process_id="unknown", snapshot_id="0", released="unknown"),
        ),
        (
            {"calve.released.k1": '{"input":["a"]}'},
            EarlierExport(key_hash="k1", process_id="unknown", snapshot_id="0", released="unknown"),
        ),
    ],
    ids=["both", "its form", "its mark", "the mark alone", "a damaged mark", "an input that is none"],
)
def test_a_released_key_is_found_by_what_is_left_of_its_marks(
    properties: dict[str, str], found: EarlierExport
) -> None:
    table = metadata(properties={"other": "1", "calve.export.k2": text(process="p2")} | properties)
    assert list(marks.released_exports(table)) == [found]
    assert marks.is_released(table, "r9") == (found.process_id == "unknown"), "who exported it is not known"
    assert marks.is_released(table, found.process_id)
    assert [one.key_hash for one in marks.all_exports(table)] == ["k1", "k2"]
    if found.process_id != "unknown":
        assert search(table).earlier == (found,)


def test_released_rows_are_unguarded_without_the_tag() -> None:
    assert not marks.is_unguarded(metadata(snapshot(1)))
    assert marks.is_unguarded(metadata(snapshot(1), properties=MARK))
    assert not marks.is_unguarded(metadata(snapshot(1), properties=MARK, refs={"calve-released": 1}))


def test_of_few_keys_only_properties_of_their_partitions_are_read() -> None:
    found = {f"calve.export.k{number}": text(input=["i", str(number), ""]) for number in range(3)}
    table = metadata(properties=found | {"calve.export.bad": "{", "note": '"1"'})
    asked = KeyPlan(partition="1", hash="k", content="")
    assert [one.key_hash for one in marks.all_exports(table)] == ["k0", "k1", "k2"]
    assert [one.key_hash for one in marks.all_exports(table, [asked])] == ["k1"]
    assert [one.key_hash for one in marks.all_exports(table, [asked] * 10)] == ["k1"]
    assert [one.key_hash for one in marks.all_exports(table, [asked] * 11)] == ["k0", "k1", "k2"]


# ---- what nobody can prove


@pytest.mark.parametrize(
    ("snapshots", "last", "at", "age", "refused"),
    [
        ((1, 2, 3), 3, 2000, 1000, False),  # all that was made since is there
        ((1, 3), 3, 2000, 1000, True),  # one is expired, and the tag's age has passed
        ((1, 3), 3, 2000, 1001, False),  # it has not
        ((3,), 3, 2000, 1000, True),  # nothing from before is left
        ((1, 2), 2, 2000, 0, False),
        ((1, 2), 3, 2000, 0, True),  # one made in the very millisecond counts as made since
        ((1, 2, 3), 3, 2500, 500, False),
    ],
)
def test_P8_a_commit_of_long_ago_is_unprovable_once_snapshots_since_are_gone(
    snapshots: tuple[int, ...], last: int, at: int, age: int, refused: bool
) -> None:
    table = metadata(*(snapshot(number) for number in snapshots), last_sequence_number=last)
    sent = (Sent(snapshot_id="9", timestamp_ms=at + 500), Sent(snapshot_id="8", timestamp_ms=at))
    marks.refuse_if_unprovable(table, (), age)
    marks.refuse_if_unprovable(metadata(snapshot(3), version=1), sent, age)
    if refused:
        with pytest.raises(RefusedError) as found:
            marks.refuse_if_unprovable(table, sent, age)
        assert found.value.code == "publish_unprovable" and "snapshot 8" in found.value.message
    else:
        marks.refuse_if_unprovable(table, sent, age)


def test_P8_snapshots_from_before_sequence_numbers_count_as_none() -> None:
    old = {name: value for name, value in snapshot(1).items() if name != "sequence-number"}
    table = metadata(old, snapshot(3), last_sequence_number=2)
    with pytest.raises(RefusedError, match="1 snapshots"):
        marks.refuse_if_unprovable(table, [Sent(snapshot_id="8", timestamp_ms=2000)], 0)


def test_a_key_is_found_by_a_summary_alone() -> None:
    table = SimpleNamespace(metadata=metadata(snapshot(1, **MINE), snapshot(2, 1)))
    found = marks.find_export(table, "k1")  # type: ignore[arg-type]
    assert found is not None and (found.process_id, found.snapshot_id) == ("p", "1")
    assert marks.find_export(table, "k2") is None  # type: ignore[arg-type]


def test_a_key_s_property_says_which_rows_files_and_tasks_are_its_own(catalog: FaultySqlCatalog) -> None:
    one = make_work(catalog, [(1, range(10)), (1, range(10, 15))])
    [value] = said(one)
    assert value == {
        "process": one.process_id, "snapshot": "7", "content": "content-1", "input": value["input"], "sequence": 3,
        "rows": 15, "files": 2,
    }  # fmt: skip
    two = make_work(catalog, [(1, range(10)), (2, range(10, 15))], keys=(("1", "k1"), ("2", "k2")))
    assert [(one["rows"], one["files"], one["tasks"]) for one in said(two)] == [(10, 1, "0"), (5, 1, "1")]
    assert "adopted" not in said(two)[0]
    retry = replace(two, process_id="retry")
    assert [one["adopted"] for one in said(retry)] == [{two.process_id: "0"}, {two.process_id: "1"}]
    [both] = [replace(task[0], part=number) for number, task in enumerate(two.plan.tasks[:1])]
    mixed = two.with_plan(
        tasks=((both, replace(both, part=1)),),
        keys=tuple(replace(key, rows=rows, top=4) for key, rows in zip(two.plan.keys, (10, 5), strict=True)),
    )
    assert [(one["rows"], one["tasks"], one["top"], "files" in one) for one in said(mixed)] == [
        (10, None, 4, False),
        (5, None, 4, False),
    ]
    assert "sequence" not in json.loads(
        marks.key_properties(one.plan, one.receipts, "p", 7)[f"calve.export.{one.plan.keys[0].hash}"]
    )


def said(work: Work) -> list[dict[str, Any]]:
    found = marks.key_properties(work.plan, work.receipts, work.process_id, 7, 3)
    return [json.loads(found[f"calve.export.{key.hash}"]) for key in work.plan.keys]
