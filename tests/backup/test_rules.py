"""What needs no backup to be tried: statements, order, names, which backups to keep."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.archive.location import Key, Keys, checked_name
from calve.archive.parts import PartIndex, StoredFile
from calve.backup.deletion import Keep, kept
from calve.backup.plan import BackupReceipt, PartReceipt, Upload, _ranges
from calve.backup.schema import in_order
from calve.model.errors import UsageError
from calve.restore.schema import retargeted, without_replication

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (
            "CREATE TABLE db.t (`id` UInt64) ENGINE = MergeTree ORDER BY id",
            "CREATE TABLE `db2`.`t` UUID 'u' (`id` UInt64) ENGINE = MergeTree ORDER BY id",
        ),
        (
            "CREATE TABLE db.`we.ird` UUID 'old' (`db` UInt64) ENGINE = MergeTree ORDER BY db",
            "CREATE TABLE `db2`.`t` UUID 'u' (`db` UInt64) ENGINE = MergeTree ORDER BY db",
        ),
        (
            "CREATE VIEW db.v (`id` UInt64) AS SELECT t.id, 'db.t' FROM db.t AS t WHERE x = 'FROM db.t'",
            "CREATE VIEW `db2`.`t` UUID 'u' (`id` UInt64) AS SELECT t.id, 'db.t' FROM `db2`.`t` AS t"
            " WHERE x = 'FROM db.t'",
        ),
        (
            "CREATE MATERIALIZED VIEW db.mv TO db.t (`id` UInt64) AS SELECT id FROM other.t",
            "CREATE MATERIALIZED VIEW `db2`.`t` UUID 'u' TO `db2`.`t` (`id` UInt64) AS SELECT id FROM other.t",
        ),
        (
            "CREATE DICTIONARY db.d (`id` UInt64) PRIMARY KEY id SOURCE(CLICKHOUSE(TABLE 't' DB 'db')) LAYOUT(FLAT())",
            "CREATE DICTIONARY `db2`.`t` UUID 'u' (`id` UInt64) PRIMARY KEY id"
            " SOURCE(CLICKHOUSE(TABLE 't' DB 'db2')) LAYOUT(FLAT())",
        ),
    ],
)
def test_a_statement_gets_another_name_and_its_references_follow(create: str, expected: str) -> None:
    renamed = {("db", "t"): ("db2", "t")}
    assert retargeted(create, ("db2", "t"), uuid="u", renamed=renamed) == expected


def test_what_keeps_its_name_keeps_its_text() -> None:
    create = "CREATE TABLE db.t (`a` String DEFAULT 'x(y') ENGINE = MergeTree ORDER BY tuple() COMMENT 'db.t'"
    same = {("db", "t"): ("db", "t")}
    assert retargeted(create, ("db", "t"), renamed=same) == create.replace("db.t (", "`db`.`t` (", 1)


def test_without_keeper_a_replicated_engine_becomes_a_plain_one() -> None:
    full = "ReplicatedReplacingMergeTree('/c/{shard}/t', '{replica}', ver) ORDER BY id"
    create = f"CREATE TABLE db.t (`ver` UInt8) ENGINE = {full}"
    assert without_replication(create, full) == (
        "CREATE TABLE db.t (`ver` UInt8) ENGINE = ReplacingMergeTree(ver) ORDER BY id"
    )
    plain = "CREATE TABLE db.t (`a` UInt8) ENGINE = MergeTree ORDER BY a"
    assert without_replication(plain, "MergeTree ORDER BY a") == plain


@given(st.dictionaries(st.integers(0, 20), st.sets(st.integers(0, 20))))
def test_each_object_is_made_after_all_that_it_needs(needs: dict[int, set[int]]) -> None:
    names = {number: ("db", f"{number:02}") for number in range(21)}
    upwards = {names[one]: [names[need] for need in needed if need < one] for one, needed in needs.items()}
    order = in_order(dict.fromkeys(names.values(), 0), upwards)
    assert sorted(order) == sorted(names.values())
    for name, needed in upwards.items():
        assert all(order.index(need) < order.index(name) for need in needed)


def test_a_circle_of_needs_still_comes_to_an_end() -> None:
    one, two = ("db", "a"), ("db", "b")
    assert set(in_order({one: 0, two: 1}, {one: [two], two: [one]})) == {one, two}


@given(st.lists(st.integers(0, 3_000_000)), st.integers(0, 10))
def test_every_part_is_in_exactly_one_task(sizes: list[int], offset: int) -> None:
    uploads = [Upload(address=str(at), path="", bytes=size, rows=1) for at, size in enumerate(sizes)]
    ranges = _ranges(uploads, offset, 1_000_000)
    covered = [at for start, end in ranges for at in range(start, end)]
    assert covered == list(range(offset, offset + len(sizes)))
    for start, end in ranges:
        held = sum(sizes[start - offset : end - offset])
        assert held <= 1_000_000 or end - start == 1


def test_the_newest_of_each_day_week_and_month_is_kept() -> None:
    days = [NOON - timedelta(days=back, hours=hour) for back in range(40) for hour in (0, 6)]
    found = kept(days, lambda at: at, Keep(last=1, daily=3, monthly=2))
    assert found == [NOON, NOON - timedelta(days=1), NOON - timedelta(days=2), NOON - timedelta(days=31)]


def test_days_without_a_backup_use_up_no_count() -> None:
    sparse = [NOON - timedelta(days=back) for back in (0, 10, 20, 30)]
    assert kept(sparse, lambda at: at, Keep(daily=3)) == sparse[:3]


@given(st.lists(st.datetimes(timezones=st.just(UTC))), st.integers(1, 5))
def test_the_newest_is_always_kept(times: list[datetime], count: int) -> None:
    for keep in (
        Keep(last=count),
        Keep(daily=count),
        Keep(weekly=count),
        Keep(monthly=count),
        Keep(yearly=count),
    ):
        found = kept(times, lambda at: at, keep)
        assert not times or max(times) in found


def test_nothing_to_keep_is_refused() -> None:
    for wrong in ({}, {"last": 0}, {"last": -1, "daily": 3}):
        with pytest.raises(UsageError, match="what to keep"):
            Keep(**wrong)


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b", "a@1", ".hidden", "x" * 101, "ü"])
def test_what_cannot_name_a_backup_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="invalid backup name"):
        checked_name(name)


def test_a_name_is_never_used_for_the_same_number_again() -> None:
    used = Keys(decided=frozenset({Key(name="a", number=1)}), marked=frozenset({Key(name="a", number=4)}))
    assert used.next_of("a") == Key(name="a", number=5)
    assert used.next_of("b") == Key(name="b", number=1)
    assert Key.parse("x.1-y@12") == Key(name="x.1-y", number=12)


def test_L12_a_receipt_and_an_index_of_a_newer_version_are_read() -> None:
    part = {"address": "a", "place": "p/0-1/a", "index_sha256": "0", "bytes": 1, "moved": True, "later": 1}
    receipt = {"process_id": "p", "task": 0, "attempt": 1, "parts": [part], "rows": 1, "bytes": 1}
    read = BackupReceipt.from_json(json.dumps(receipt | {"moved_bytes": 1, "later": {}}))
    assert read.parts == (PartReceipt(address="a", place="p/0-1/a", index_sha256="0", bytes=1, moved=True),)
    file = {"name": "data.bin", "bytes": 1, "sha256": "0", "object": 0, "later": []}
    index = PartIndex.from_json(json.dumps({"address": "a", "files": [file], "later": None}))
    assert index.files == (StoredFile(name="data.bin", bytes=1, sha256="0", object=0),)
