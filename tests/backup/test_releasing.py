"""Freezes: one for each table, journaled first, released as soon as its copy is done, never leaked."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.backup import frozen
from calve.clickhouse.pins import freeze as freezes
from calve.clickhouse.pins import shadow
from calve.control.ports import TaskOrder
from calve.model.errors import NotFoundError, TemporaryError
from calve.model.process import ProcessId
from calve.model.states import PIN_HELD, PinState, ProcessState
from support.kept_source import KeptSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute("CREATE DATABASE db")
        for table in ("a", "b", "c"):
            source.execute(
                f"CREATE TABLE db.{table} (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
                f"INSERT INTO db.{table} SELECT number, concat('{table}', toString(number)) FROM numbers(50)",
            )
        source.execute("CREATE TABLE db.empty (id UInt64) ENGINE = MergeTree ORDER BY id")
        yield source


@pytest.fixture
def ticked(source: KeptSource, tmp_path: Path) -> Ticked:
    return Ticked(tmp_path / "backups", source)


def states(ticked: Ticked, process_id: ProcessId) -> dict[str, PinState]:
    return {frozen.Frozen.from_json(pin.detail).name: pin.state for pin in ticked.store.pins(process_id)}


def test_L29_each_freeze_goes_as_soon_as_its_table_is_copied_while_others_go_on(
    ticked: Ticked, source: KeptSource
) -> None:
    process_id = ticked.create("b")
    ticked.runner.slots = 1
    seen: list[dict[str, PinState]] = []

    def look(order: TaskOrder) -> None:
        seen.append(states(ticked, process_id))

    ticked.runner.before = look
    from dataclasses import replace

    ticked.ports.limits = replace(ticked.ports.limits, slots=1)
    row = ticked.settle(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    taken, gone = PinState.TAKEN, {PinState.RELEASING, PinState.RELEASED}
    assert len(seen) == 3
    assert [seen[0][name] for name in "abc"] == [taken, taken, taken]
    assert seen[0]["empty"] in gone  # nothing to copy
    assert seen[1]["a"] in gone and [seen[1][name] for name in "bc"] == [taken, taken]
    assert seen[2]["a"] in gone and seen[2]["b"] in gone and seen[2]["c"] is taken
    assert source.frozen == []


def test_L30_a_pin_is_journaled_before_it_is_taken(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze = freezes.freeze
    journaled: list[bool] = []

    def watched(session: Any, table: Any, ids: Any, name: str, **named: Any) -> Any:
        journaled.append(
            name in {pin.name for pin in ticked.store.pins(states=frozenset({PinState.JOURNALED}))}
        )
        return freeze(session, table, ids, name, **named)

    monkeypatch.setattr(freezes, "freeze", watched)
    ticked.settle(ticked.create("b"))
    assert journaled == [True] * 4


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_L30_freezes_go_whatever_the_end_and_foreign_ones_stay(
    ticked: Ticked, source: KeptSource, end: str
) -> None:
    if "foreign" not in source.frozen:
        source.execute("ALTER TABLE db.a FREEZE WITH NAME 'foreign'")
    process_id = ticked.create("b")
    if end == "failed":
        ticked.runner.before = lambda order: (ticked.ports.folder / "calve-location.json").unlink(
            missing_ok=True
        )
    worker = ticked.worker()
    if end == "cancelled":
        worker.tick()
        ticked.store.request_cancel(process_id)
    row = ticked.settle(process_id, worker)
    assert row.state.value.lower() == end, row.error
    assert source.frozen == ["foreign"]
    assert not ticked.store.pins(states=PIN_HELD)
    shutil.rmtree(source.folder / "shadow" / "foreign")


def test_L31_a_release_that_fails_is_retried_and_fails_no_backup(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, failures = shadow.remove, [1, 2, 3]

    def stubborn(disks: Any, name: str) -> None:
        if failures:
            failures.pop()
            raise TemporaryError("the disk is busy", code="pin_release")
        remove(disks, name)

    monkeypatch.setattr(shadow, "remove", stubborn)
    process_id = ticked.create("b")
    row = ticked.settle(process_id)
    assert row.state is ProcessState.COMPLETED
    assert [event.name for event in ticked.store.events(process_id)].count("pin_not_released") == 3
    assert source.frozen == []


def test_L32_a_table_dropped_after_its_freeze_is_in_the_backup_and_its_freeze_goes(
    ticked: Ticked, source: KeptSource
) -> None:
    source.execute(
        "CREATE DATABASE gone", "CREATE TABLE gone.t (id UInt64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO gone.t VALUES (1), (2)",
    )  # fmt: skip
    process_id = ticked.create("b", "gone.t")
    ticked.runner.before = lambda order: source.execute("DROP DATABASE IF EXISTS gone SYNC")
    row = ticked.settle(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert source.frozen == []
    ticked.runner.before = lambda order: None
    assert ticked.settle(ticked.restore("b")).state is ProcessState.COMPLETED
    assert source.select("SELECT count() AS n FROM gone.t") == [{"n": 2}]
    source.execute("DROP DATABASE gone SYNC")


@pytest.mark.parametrize("what", ["TABLE db.victim", "DATABASE victims"])
def test_L32_a_drop_raced_against_its_freeze_skips_the_table_with_a_note(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The real engine's own errors (60, 81): the drop comes between the look and the FREEZE."""
    name = "db.victim" if "victim" in what and "victims" not in what else "victims.victim"
    source.execute(
        "CREATE DATABASE IF NOT EXISTS victims",
        f"CREATE TABLE {name} (id UInt64) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO {name} VALUES (1)",
    )
    freeze = freezes.freeze

    def dropped_first(session: Any, table: Any, *given: Any, **named: Any) -> Any:
        if table.name == "victim":
            session.execute(f"DROP {what} SYNC")
        return freeze(session, table, *given, **named)

    monkeypatch.setattr(freezes, "freeze", dropped_first)
    row = ticked.settle(ticked.create("b", "db.a", name))
    assert row.state is ProcessState.COMPLETED, row.error
    manifest = backups.find(ticked.location, "b")
    assert [table.name for table in manifest.tables] == ["a"]
    [(skipped, why)] = manifest.skipped
    assert skipped == name and "ClickHouse error" in why
    assert source.frozen == []
    source.execute("DROP DATABASE IF EXISTS victims SYNC")


def test_L32_a_table_dropped_before_anything_began_is_skipped_too(ticked: Ticked, source: KeptSource) -> None:
    source.execute("CREATE TABLE db.early (id UInt64) ENGINE = MergeTree ORDER BY id")
    process_id = ticked.create("b", "db.a", "db.early")
    source.execute("DROP TABLE db.early SYNC")
    assert ticked.settle(process_id).state is ProcessState.COMPLETED
    assert [name for name, _ in backups.find(ticked.location, "b").skipped] == ["db.early"]


def test_a_table_that_is_there_is_never_left_out_whatever_else_is_missing(
    ticked: Ticked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code of ClickHouse's for another table: a system table that a version does not have."""

    def no_system_table(*given: Any, **named: Any) -> Any:
        raise NotFoundError("Table system.disks doesn't exist (ClickHouse error 60)", code="clickhouse_60")

    monkeypatch.setattr(freezes, "freeze", no_system_table)
    row = ticked.settle(ticked.create("b", "db.a"))
    assert row.state is ProcessState.FAILED and row.error is not None and row.error.code == "clickhouse_60"
    assert backups.listed(ticked.location) == []


def test_D5_every_attempt_at_planning_freezes_under_names_of_its_own(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen_parts, failures = freezes.frozen_parts, [TemporaryError("on purpose", code="injected")]

    def fails_once(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return frozen_parts(*given)

    monkeypatch.setattr(freezes, "frozen_parts", fails_once)
    process_id = ticked.create("b", "db.a", "db.b")
    row = ticked.settle(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    names = [pin.name for pin in ticked.store.pins(process_id)]
    assert len(names) == len(set(names)) == 4
    assert source.frozen == []
    manifest = backups.find(ticked.location, "b")
    assert manifest.rows == 100


def test_D6_parts_are_listed_from_the_freeze_not_from_the_table(ticked: Ticked, source: KeptSource) -> None:
    source.execute(
        "CREATE TABLE db.moving (id UInt64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.moving VALUES (1)", "INSERT INTO db.moving VALUES (2)",
    )  # fmt: skip
    process_id = ticked.create("b", "db.moving")
    ticked.runner.before = lambda order: source.execute(
        "SYSTEM START MERGES db.moving", "OPTIMIZE TABLE db.moving FINAL", "TRUNCATE TABLE db.moving"
    )
    assert ticked.settle(process_id).state is ProcessState.COMPLETED
    manifest = backups.find(ticked.location, "b")
    assert [part.name for table in manifest.tables for part in table.parts] == ["all_1_1_0", "all_2_2_0"]
    assert manifest.rows == 2
    source.execute("DROP TABLE db.moving SYNC")


def test_P20_an_empty_counter_of_freezes_is_repaired(ticked: Ticked, source: KeptSource) -> None:
    counter = source.folder / "shadow" / "increment.txt"
    counter.parent.mkdir(exist_ok=True)
    counter.write_text("")
    assert ticked.settle(ticked.create("b", "db.a")).state is ProcessState.COMPLETED


def test_a_table_whose_disk_is_not_seen_is_refused_whole(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a backup of the schema alone."""
    monkeypatch.setattr(source.session, "disks", lambda: ())
    row = ticked.settle(ticked.create("b", "db.a"))
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "disk_not_seen"
    assert backups.listed(ticked.location) == []
