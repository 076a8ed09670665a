"""For every call of a create and of a restore that changes something outside the store: die after it, or have
it fail. (The store's own calls are broken one by one in `tests/crash`.)

Then another worker comes, and whatever happened: the backup is whole and there once, no freeze is
left, every part is attached exactly once.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.backup.verification import verify
from calve.model.process import ProcessId
from calve.model.states import ProcessState
from calve.testing.faults import STORE_CALLS, Break, Crash, Faults
from support.kept_source import KeptSource

_EVERYTHING_OVER = 310.0  # leases, and the hiding of a pin that was being released


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.a (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
            "INSERT INTO db.a SELECT number, randomPrintableASCII(60) FROM numbers(400)",
            "INSERT INTO db.a SELECT number, 'same' FROM numbers(4)",
            "INSERT INTO db.a SELECT number, 'same' FROM numbers(4)",  # parts of equal content
            "CREATE TABLE db.b (id UInt64) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.b SELECT number FROM numbers(10)",
        )
        yield source


def checksums(source: KeptSource, database: str) -> list[dict[str, Any]]:
    return [
        source.select(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {database}.{table}")[0]
        for table in ("a", "b")
    ]


def broken_life(ticked: Ticked, process_id: ProcessId, at: int = 0, how: Break = Break.AFTER) -> Faults:
    faults = Faults(at=at, how=how, skipping=STORE_CALLS)
    with contextlib.suppress(Crash):
        ticked.settle(process_id, ticked.worker(faults))
    faults.armed = False
    ticked.clock.advance(_EVERYTHING_OVER)
    ticked.settle(process_id)
    return faults


@pytest.mark.parametrize("how", [Break.AFTER, Break.REPORTED_FAILED, Break.FAILED])
def test_a_create_that_breaks_anywhere_ends_whole_and_leaves_no_freeze(
    source: KeptSource, tmp_path: Path, how: Break
) -> None:
    if "foreign" not in source.frozen:
        source.execute("ALTER TABLE db.b FREEZE WITH NAME 'foreign'")
    whole = Ticked(tmp_path / "whole", source)
    effects = broken_life(whole, whole.create("b")).calls
    assert len(effects) > 4, "the life is too short to say anything"
    for at, call in enumerate(effects, start=1):
        ticked = Ticked(tmp_path / str(at), source)
        process_id = ticked.create("b")
        faults = broken_life(ticked, process_id, at, how)
        row, where = ticked.row(process_id), f"{how} call {at} ({call})"
        assert faults.calls[at - 1] == call, where
        assert row.state is ProcessState.COMPLETED, f"{where}: {row.error}"
        assert verify(ticked.location, backups.find(ticked.location, "b"), read_share=1.0).whole, where
        assert len(backups.listed(ticked.location)) == 1, where
        assert source.frozen == ["foreign"], where
        assert not ticked.location.storage.list(ticked.location.all_under_way), where


# To die before a call is to die after the one before it. In a table that was there before, what
# could double or be lost is the hand-over of partitions.
RESTORES = [("refuse", how) for how in (Break.AFTER, Break.REPORTED_FAILED, Break.FAILED)] + [
    (existing, Break.AFTER) for existing in ("append", "replace")
]


@pytest.mark.parametrize(("existing", "how"), RESTORES)
def test_a_restore_that_breaks_anywhere_attaches_every_part_once(
    source: KeptSource, tmp_path: Path, existing: str, how: Break
) -> None:
    made = Ticked(tmp_path / "backup", source)
    made.settle(made.create("b", "db.a", "db.b"))
    before = checksums(source, "db")
    whole = Ticked(tmp_path / "backup", source)
    effects = broken_life(whole, whole.restore("b", into="r_whole")).calls
    source.execute("DROP DATABASE r_whole SYNC")
    assert len(effects) > 3, "the life is too short to say anything"
    for at, call in enumerate(effects, start=1):
        database = f"r_{existing}_{how.value}_{at}"
        if existing != "refuse":
            source.execute(f"CREATE DATABASE {database}")
            for table in "ab":
                source.execute(
                    f"CREATE TABLE {database}.{table} AS db.{table}",
                    f"INSERT INTO {database}.{table} SELECT * FROM db.{table}",
                )
        ticked = Ticked(tmp_path / "backup", source)
        process_id = ticked.restore("b", into=database, existing=existing, again=existing == "append")
        faults = broken_life(ticked, process_id, at, how)
        row, where = ticked.row(process_id), f"{how} call {at} ({call})"
        assert faults.calls[at - 1] == call, where
        assert row.state is ProcessState.COMPLETED, f"{where}: {row.error}"
        after = checksums(source, database)
        if existing == "append":
            assert [one["n"] for one in after] == [2 * one["n"] for one in before], where
        else:
            assert after == before, where
        assert not (source.folder / "calve_restore").exists(), where
        source.execute(f"DROP DATABASE {database} SYNC")
    assert source.select("SELECT name FROM system.tables WHERE database = 'calve_restore'") == []
