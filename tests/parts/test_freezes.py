"""FREEZE pins: taken once, listed from the pin, released whatever happened to the table."""

import shutil
from pathlib import Path

import pytest
from executor import Executor
from pinned_tables import by_value, make, pin, released

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.partitions import find, partitions
from calve.clickhouse.pins import freeze, shadow
from calve.clickhouse.pins.pin import SeenPart, pinned_partitions
from calve.clickhouse.tables import describe
from calve.model.errors import NotFoundError, PermanentError, RefusedError, TemporaryError

_CREATE = "CREATE TABLE {t} (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id"
_INSERT = "INSERT INTO {t} SELECT number, 'x' FROM numbers(100)"


def _shadow(session: EmbeddedSession) -> list[str]:
    folder = session.folder / "shadow"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_pin_holds_every_part_of_its_partitions_as_system_parts_describes_it(
    session: EmbeddedSession,
) -> None:
    make(session, "described", (_CREATE, _INSERT, _INSERT, "DELETE FROM {t} WHERE id < 10"))
    with released(session):
        pinned = pin(session, "described")
        shown = session.rows(
            "SELECT name, partition_id, rows, min_block_number, max_block_number, level, data_version "
            "FROM system.parts WHERE active AND database = 'db' AND table = 'described' "
            "ORDER BY partition_id, min_block_number"
        )
        found = [
            {
                "name": part.name,
                "partition_id": part.partition_id,
                "rows": part.rows,
                "min_block_number": part.min_block,
                "max_block_number": part.max_block,
                "level": part.level,
                "data_version": part.data_version,
            }
            for part in pinned.parts
        ]
        assert found == shown
        content = {partition.id: partition.content for partition in partitions(session, pinned.table)}
        seen = [SeenPart(part.partition_id, part.extent, part.mark) for part in pinned.parts]
        pinned = pinned_partitions(seen, marked=True, named=False)
        assert {one.id: one.content for one in pinned} == content


def test_P11_deleted_rows_are_counted_as_physical_but_not_as_seen(session: EmbeddedSession) -> None:
    make(session, "p11", (_CREATE, _INSERT, "DELETE FROM {t} WHERE id < 10"))
    with released(session):
        parts = pin(session, "p11").parts
        assert sum(part.rows for part in parts) == 100
        assert sum(part.rows_seen for part in parts) == 90


def test_D5_a_pin_is_never_taken_twice_under_one_name(session: EmbeddedSession) -> None:
    make(session, "d5", (_CREATE, _INSERT))
    with released(session):
        pinned = pin(session, "d5")
        with pytest.raises(TemporaryError) as caught:
            freeze.freeze(session, pinned.table, pinned.partition_ids, pinned.name)
        assert caught.value.code == "pin_taken"
        again = freeze.frozen_parts(session, pinned.table, pinned.partition_ids, pinned.name)
        assert again == pinned.parts


def test_D6_parts_are_those_of_the_pin_also_after_the_table_merged_and_lost_them(
    session: EmbeddedSession, executor: Executor
) -> None:
    make(session, "d6", (_CREATE, _INSERT, _INSERT))
    with released(session):
        pinned = pin(session, "d6")
        sql = "SELECT id, s FROM {table}"
        expected = by_value(session.rows(sql.replace("{table}", pinned.table.sql)))
        make(
            session,
            "d6",
            ("OPTIMIZE TABLE {t} FINAL", "ALTER TABLE {t} DROP PARTITION 1", "TRUNCATE TABLE {t}"),
        )
        listed = freeze.frozen_parts(session, pinned.table, pinned.partition_ids, pinned.name)
        assert listed == pinned.parts
        assert by_value(executor.read(pinned.scratch.create, pinned.paths, sql)) == expected


@pytest.mark.parametrize("drop", ["DROP TABLE {t} SYNC", "DROP DATABASE gone SYNC"])
def test_L32_a_pin_is_released_after_its_table_or_database_was_dropped(
    session: EmbeddedSession, drop: str
) -> None:
    make(session, "t", (_CREATE, _INSERT), database="gone")
    pinned = pin(session, "t", "calve-dropped-1", database="gone")
    make(session, "t", (drop,), database="gone")
    assert Path(pinned.paths[0]).exists()
    freeze.release(session, pinned.name)
    assert not any("dropped" in name for name in _shadow(session))


def test_L30_a_release_takes_a_pin_that_was_half_taken_never_taken_or_released_before(
    source: EmbeddedSource,
) -> None:
    with source.visit() as session:
        make(session, "t", (_CREATE, _INSERT))
        table = describe(session, "db", "t")
        freeze.release(session, "calve-never-1")
        half = partitions(session, table)[:1]
        freeze.freeze(session, table, [half[0].id], "calve-half-1")
    with source.visit() as session:  # another worker, later, knows the name only
        freeze.release(session, "calve-half-1")
        freeze.release(session, "calve-half-1")
        assert _shadow(session) == ["increment.txt"]


def test_a_release_leaves_freezes_of_others_alone(session: EmbeddedSession) -> None:
    make(session, "foreign", (_CREATE, _INSERT, "ALTER TABLE {t} FREEZE WITH NAME 'nightly'"))
    pin(session, "foreign", "calve-mine-1")
    pin(session, "foreign", "calve-mine-11")
    before = set(_shadow(session))
    freeze.release(session, "calve-mine-1")
    assert before - set(_shadow(session)) == {"calve%2Dmine%2D1"}
    freeze.release(session, "calve-mine-11")
    shutil.rmtree(session.folder / "shadow" / "nightly")


@pytest.mark.parametrize(
    "name", ["nightly", "..", "calve-a-1/../../x", "calve-../-1", "", "calve-A-1", "calve-a-1\n"]
)
def test_a_name_that_is_not_ours_never_becomes_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError):
        shadow.remove([tmp_path], name)


def test_a_link_in_the_place_of_a_freeze_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "shadow" / "calve%2Da%2D1").symlink_to(tmp_path / "data")
    with pytest.raises(PermanentError):
        shadow.remove([tmp_path], "calve-a-1")
    assert (tmp_path / "data").exists()


def _half_mutated(session: EmbeddedSession, table: str, alter: str) -> None:
    make(session, table, (_CREATE, _INSERT))
    session.execute(f"ALTER TABLE db.{table} {alter} SETTINGS mutations_sync = 0, alter_sync = 0")


def test_P12_unfinished_mutations_are_refused_by_name_and_nothing_is_pinned(session: EmbeddedSession) -> None:
    _half_mutated(session, "p12", "UPDATE s = 'y' WHERE id = 3")
    with pytest.raises(RefusedError, match=r"UPDATE s = 'y' WHERE id = 3") as caught:
        pin(session, "p12", "calve-pending-1")
    assert caught.value.code == "unfinished_mutations"
    assert not any("pending" in name for name in _shadow(session))


def test_P12_told_to_wait_the_mutation_is_applied_first(session: EmbeddedSession, executor: Executor) -> None:
    _half_mutated(session, "p12_wait", "UPDATE s = 'y' WHERE id = 3")
    table = describe(session, "db", "p12_wait")
    assert [mutation.parts_to_do for mutation in table.mutations] == [2]
    with released(session):
        freeze.freeze(session, table, ["0", "1"], "calve-test-1", wait=True)
        parts = freeze.frozen_parts(session, table, ["0", "1"], "calve-test-1")
        rows = executor.read(
            scratch_table(table).create,
            [part.path for part in parts],
            "SELECT id FROM {table} WHERE s = 'y'",
        )
    assert rows == [{"id": 3}]


def test_W7_a_pending_rename_is_refused(source: EmbeddedSource) -> None:
    with source.visit() as session:
        make(session, "w7", (_CREATE, _INSERT))
        session.execute("ALTER TABLE db.w7 RENAME COLUMN s TO t SETTINGS alter_sync = 0, mutations_sync = 0")
        with pytest.raises(RefusedError, match="RENAME COLUMN s TO t"):
            pin(session, "w7", "calve-renamed-1")
        assert _shadow(session) in ([], ["increment.txt"])


_PATCHED = (
    "CREATE TABLE {t} (id UInt64, s String) ENGINE = MergeTree ORDER BY id "
    "SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
    _INSERT,
    "SYSTEM STOP MERGES {t}",
    "UPDATE {t} SET s = 'patched' WHERE id = 4",
    "DELETE FROM {t} WHERE id = 5 SETTINGS lightweight_delete_mode = 'lightweight_update'",
)


def test_W6_patch_parts_are_refused_because_a_freeze_leaves_them_out(session: EmbeddedSession) -> None:
    make(session, "w6", _PATCHED)
    with pytest.raises(RefusedError, match="patch parts") as caught:
        pin(session, "w6", "calve-patched-1")
    assert "APPLY PATCHES" in caught.value.hint
    assert not any("patched" in name for name in _shadow(session))


def test_W6_told_to_wait_patches_are_applied_and_deleted_rows_do_not_return(
    session: EmbeddedSession, executor: Executor
) -> None:
    make(session, "w6_wait", _PATCHED)
    table = describe(session, "db", "w6_wait")
    with released(session):
        freeze.freeze(session, table, ["all"], "calve-test-1", wait=True)
        parts = freeze.frozen_parts(session, table, ["all"], "calve-test-1")
        rows = executor.read(
            scratch_table(table).create,
            [part.path for part in parts],
            "SELECT count() AS n, countIf(s = 'patched') AS patched, countIf(id = 5) AS gone FROM {table}",
        )
    assert rows == [{"n": 99, "patched": 1, "gone": 0}]


def test_P20_an_empty_counter_of_freezes_is_repaired_and_goes_on_from_the_highest(
    session: EmbeddedSession,
) -> None:
    make(session, "p20", (_CREATE, _INSERT))
    numbered = session.folder / "shadow" / "7"
    numbered.mkdir(parents=True)
    counter = session.folder / "shadow" / "increment.txt"
    counter.write_text("")
    with released(session):
        assert pin(session, "p20").parts
    assert int(counter.read_text()) >= 8
    numbered.rmdir()


def test_P17_a_part_of_the_same_name_with_other_content_has_another_hash(session: EmbeddedSession) -> None:
    seen = set()
    for number, value in enumerate(("a", "b"), 1):
        make(
            session,
            f"p17_{value}",
            (
                "CREATE TABLE {t} (s String) ENGINE = MergeTree ORDER BY s",
                f"INSERT INTO {{t}} VALUES ('{value}')",
            ),
        )
        with released(session, f"calve-same-{number}"):
            (part,) = pin(session, f"p17_{value}", f"calve-same-{number}").parts
        assert part.name == "all_1_1_0"
        seen.add(part.content)
    assert len(seen) == 2


_STRANGE = ["/../../x", "?", "new\nline", "quo'te", "back\\slash", "%2e", "", "ünï"]


def test_D10_partition_values_that_look_like_paths_are_pinned_by_id_and_found_by_value(
    session: EmbeddedSession, executor: Executor
) -> None:
    make(
        session, "d10", ("CREATE TABLE {t} (s String, n UInt8) ENGINE = MergeTree PARTITION BY s ORDER BY n",)
    )
    for value in _STRANGE:
        quoted = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        session.execute(f"INSERT INTO db.d10 VALUES ('{quoted}', 1)")
    table = describe(session, "db", "d10")
    shown = {partition.value: partition.id for partition in partitions(session, table)}
    assert len(shown) == len(_STRANGE)
    assert [one.id for one in find(session, table, ["/../../x"])] == [shown["/../../x"]]
    with released(session):
        pinned = pin(session, "d10")
        folder = session.folder / "shadow" / "calve%2Dtest%2D1"
        assert all(Path(path).resolve().is_relative_to(folder.resolve()) for path in pinned.paths)
        rows = executor.read(pinned.scratch.create, pinned.paths, "SELECT s FROM {table}")
    assert sorted(row["s"] for row in rows) == sorted(_STRANGE)


def test_a_partition_that_is_not_there_is_not_found_and_others_are_named(session: EmbeddedSession) -> None:
    make(session, "absent", (_CREATE, _INSERT))
    table = describe(session, "db", "absent")
    with pytest.raises(NotFoundError, match="no partition 9") as caught:
        find(session, table, ["9"])
    assert "0, 1" in caught.value.hint
    with released(session):
        freeze.freeze(session, table, ["9"], "calve-test-1")
        with pytest.raises(NotFoundError):
            freeze.frozen_parts(session, table, ["9"], "calve-test-1")


def test_a_default_that_only_the_server_can_compute_is_left_out_and_parts_that_need_it_are_refused(
    session: EmbeddedSession, executor: Executor
) -> None:
    make(
        session,
        "udf",
        (
            _CREATE,
            _INSERT,
            "ALTER TABLE {t} ADD COLUMN d String DEFAULT hostName(), ADD COLUMN al String ALIAS getMacro(s), "
            "ADD COLUMN e String DEFAULT concat(al, 'x')",
            "INSERT INTO {t} (id, s, d, e) VALUES (1, 'new', 'here', 'there')",
        ),
    )
    with released(session):
        pinned = pin(session, "udf")
        assert set(pinned.scratch.stripped) == {"d", "e"}
        old = [part for part in pinned.parts if "d" not in part.columns]
        new = [part for part in pinned.parts if "d" in part.columns]
        with pytest.raises(RefusedError, match="no values for column") as caught:
            pinned.scratch.refuse_parts_without((part.name, part.columns) for part in pinned.parts)
        assert "MATERIALIZE COLUMN" in caught.value.hint
        pinned.scratch.refuse_parts_without((part.name, part.columns) for part in new)
        rows = executor.read(pinned.scratch.create, [part.path for part in new], "SELECT d, e FROM {table}")
    assert len(old) == 2
    assert rows == [{"d": "here", "e": "there"}]
