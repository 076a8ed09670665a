"""Which snapshots and references have had their time: pure."""

from typing import Any
from uuid import UUID

from pyiceberg.table.metadata import TableMetadataV2

from calve.iceberg.health.due import expiry
from calve.iceberg.health.settings import DAY_MS, Settings
from support.lake import SCHEMA

NOW = 1_000 * DAY_MS


def metadata(
    ages_days: list[int], refs: dict[str, Any], parents: dict[int, int] | None = None
) -> TableMetadataV2:
    """Snapshots 1, 2, … of those ages, each the child of the one before unless told."""
    parents = parents or {}
    snapshots = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": parents.get(number, number - 1 or None),
            "sequence-number": number,
            "timestamp-ms": NOW - age * DAY_MS,
            "manifest-list": f"file:///t/{number}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        for number, age in enumerate(ages_days, 1)
    ]
    return TableMetadataV2.model_validate(
        {
            "location": "file:///t",
            "table-uuid": UUID(int=1),
            "last-updated-ms": NOW,
            "last-column-id": 3,
            "schemas": [SCHEMA.model_dump()],
            "current-schema-id": 0,
            "last-partition-id": 999,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-sequence-number": len(ages_days),
            "snapshots": snapshots,
            "current-snapshot-id": refs["main"]["snapshot-id"],
            "refs": refs,
        }
    )


def branch(snapshot_id: int, **more: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "type": "branch"} | more


def tag(snapshot_id: int, **more: int) -> dict[str, Any]:
    return {"snapshot-id": snapshot_id, "type": "tag"} | more


def test_old_ancestors_of_main_go_and_its_head_stays_however_old() -> None:
    found = expiry(metadata([30, 20, 10], {"main": branch(3)}), Settings(), now_ms=NOW)
    assert found.snapshot_ids == (1, 2)


def test_young_snapshots_and_as_many_as_are_to_be_kept_stay() -> None:
    table = metadata([30, 20, 10, 1], {"main": branch(4)})
    assert expiry(table, Settings(), now_ms=NOW).snapshot_ids == (1, 2, 3)
    assert expiry(table, Settings(snapshots_kept=3), now_ms=NOW).snapshot_ids == (1,)
    assert expiry(table, Settings(snapshot_age_ms=15 * DAY_MS), now_ms=NOW).snapshot_ids == (1, 2)


def test_tags_and_branches_keep_what_they_name() -> None:
    refs = {"main": branch(4), "month-end": tag(1), "audit": branch(2, **{"min-snapshots-to-keep": 1})}
    found = expiry(metadata([40, 30, 20, 10], refs), Settings(), now_ms=NOW)
    assert found.snapshot_ids == (3,) and found.refs == ()


def test_a_reference_goes_only_when_it_says_itself_how_old_it_may_get() -> None:
    aged = {"max-ref-age-ms": 5 * DAY_MS}
    refs = {"main": branch(3, **aged), "calve-abc": tag(1, **aged), "mine": tag(2)}
    found = expiry(metadata([30, 20, 10], refs), Settings(), now_ms=NOW)
    assert found.refs == ("calve-abc",) and found.snapshot_ids == (1,)


def test_what_live_processes_hold_stays() -> None:
    refs = {"main": branch(3), "calve-live": tag(2, **{"max-ref-age-ms": 1})}
    found = expiry(
        metadata([30, 20, 10], refs),
        Settings(),
        now_ms=NOW,
        keep_snapshots=frozenset({1}),
        keep_refs=frozenset({"calve-live"}),
    )
    assert not found


def test_snapshots_on_no_reference_go_by_their_age_alone() -> None:
    staged = metadata([20, 10, 1], {"main": branch(1)}, parents={2: 1, 3: 1})
    assert expiry(staged, Settings(), now_ms=NOW).snapshot_ids == (2,)
