"""Which inputs are the same, as far as embedded folders can show it (D7)."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from whole_life import Life

from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

UUID = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
def open_() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def folder(
    open_: ExitStack, path: Path, first: int, configured_id: str | None, uuid: str = UUID
) -> KeptSource:
    kept = open_.enter_context(KeptSource(path, configured_id=configured_id))
    kept.execute(
        "CREATE DATABASE db ENGINE = Atomic",
        f"CREATE TABLE db.events UUID '{uuid}' (id UInt64, day Date) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(day) ORDER BY id",
        f"INSERT INTO db.events SELECT number + {first}, '2024-01-01' FROM numbers(20)",
    )
    return kept


def both(tmp_path: Path, one: KeptSource, two: KeptSource, runner: LocalRunner) -> tuple[Life, Life]:
    first = Life(tmp_path / "life", one, runner)
    second = Life(tmp_path / "life", two, runner)
    return first, second


def test_D7_two_shards_with_one_table_uuid_and_ids_of_their_own_are_both_exported(
    tmp_path: Path, runner: LocalRunner, open_: ExitStack
) -> None:
    shards = [folder(open_, tmp_path / f"shard{n}", n * 20, f"shard-{n}") for n in range(2)]
    first, second = both(tmp_path, *shards, runner)
    assert first.export().rows == second.export().rows == 20
    assert first.exported_ids() == list(range(40))
    assert second.submit() == [], "and once is enough"


def test_D7_a_folder_that_was_moved_is_the_same_source(
    tmp_path: Path, runner: LocalRunner, open_: ExitStack
) -> None:
    with KeptSource(tmp_path / "here") as kept:
        kept.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day)"
            " ORDER BY id",
            "INSERT INTO db.events SELECT number, '2024-01-01' FROM numbers(20)",
        )
        life = Life(tmp_path / "life", kept, runner)
        assert life.export().state is ProcessState.COMPLETED
        life.close()
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = open_.enter_context(KeptSource(tmp_path / "there"))
    assert Life(tmp_path / "life", moved, runner).submit() == []


def test_D7_a_copy_that_lived_on_is_told_apart_from_what_was_exported_and_not_skipped_unseen(
    tmp_path: Path, runner: LocalRunner, open_: ExitStack
) -> None:
    one = folder(open_, tmp_path / "one", 0, None)
    two = folder(open_, tmp_path / "two", 0, None)
    two.execute("INSERT INTO db.events SELECT number + 20, '2024-01-01' FROM numbers(5)")
    first, second = both(tmp_path, one, two, runner)
    first.export()
    assert second.submit() == []
    checked = second.check()
    assert [one.sentence for one in checked.changed] == [
        "partition 202401 was exported by process"
        f" {first.ids[0]} in snapshot {first.row(first.ids[0]).snapshot_id} and has changed since:"
        " 20 rows then, 25 now"
    ]
