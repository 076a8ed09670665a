"""Mutations that parts do not show yet: refused, waited for, or, where only rows change, ignored."""

import pytest

from calve.clickhouse.parts.mutations import keeps_the_shape
from calve.clickhouse.pins import freeze
from calve.clickhouse.tables import Mutation, describe
from calve.destination.plan import ExportPlan
from calve.model.errors import RefusedError
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from support.place import Place

# A mutation that can never succeed is pending for certain, however quick the engine is.
_STUCK = "n = throwIf(id >= 0)"


def _make(place: Place, table: str, *alters: str) -> None:
    place.execute(
        f"CREATE TABLE db.{table} (id UInt32, s String, n UInt8) ENGINE = MergeTree ORDER BY id",
        f"INSERT INTO db.{table} SELECT number, 'before', 0 FROM numbers(10)",
        *(f"ALTER TABLE db.{table} {alter} SETTINGS mutations_sync = 0, alter_sync = 0" for alter in alters),
    )


def test_P12_an_unfinished_update_is_refused_before_anything_is_queued(place: Place) -> None:
    _make(place, "refused", f"UPDATE {_STUCK} WHERE 1")
    with place.app() as app:
        with pytest.raises(RefusedError, match="unfinished mutations") as caught:
            place.check(app, "db.refused", "lake.ns.refused")
        assert "--mutations wait" in caught.value.hint and "--mutations ignore" in caught.value.hint
        assert app.store.processes(ProcessQuery()) == []
    assert place.frozen == []


def test_P12_told_to_ignore_it_the_rows_are_exported_as_before_and_a_note_says_so(place: Place) -> None:
    _make(place, "ignored", f"UPDATE {_STUCK} WHERE 1", "DELETE WHERE id < 5 AND s != 'before'")
    [process] = place.export("db.ignored", to="lake.ns.ignored", mutations="ignore")
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.read("lake.ns.ignored")["s"].to_pylist() == ["before"] * 10
    with place.app() as app:
        plan = ExportPlan.from_json(app.store.plan(process.id) or "")
    assert len([note for note in plan.notes if "is ignored" in note]) == 2
    assert place.frozen == []


def test_P12_what_was_ignored_and_is_applied_later_is_a_change_since(place: Place) -> None:
    _make(place, "later", f"UPDATE {_STUCK} WHERE 1")
    [process] = place.export("db.later", to="lake.ns.later", mutations="ignore")
    assert process.state is ProcessState.COMPLETED, process.error
    place.execute(
        "KILL MUTATION WHERE table = 'later'",
        "SYSTEM START MERGES",
        "ALTER TABLE db.later UPDATE s = 'after' WHERE id = 3 SETTINGS mutations_sync = 2",
    )
    with place.app() as app:
        checked = place.check(app, "db.later", "lake.ns.later")
    assert [one.partition for one in checked.changed] == ["all"] and not checked.chosen


def test_P12_told_to_wait_the_rows_are_exported_as_after_it(place: Place) -> None:
    _make(place, "waited", "UPDATE s = 'after' WHERE id = 3")
    [process] = place.export("db.waited", to="lake.ns.waited", mutations="wait")
    assert process.state is ProcessState.COMPLETED, process.error
    rows = place.read("lake.ns.waited").to_pylist()
    assert [row["id"] for row in rows if row["s"] == "after"] == [3]
    assert len(rows) == 10


def test_P12_a_mutation_that_fails_ends_the_wait_with_its_reason(place: Place) -> None:
    _make(place, "failing", f"UPDATE {_STUCK} WHERE 1")
    [process] = place.export("db.failing", to="lake.ns.failing", mutations="wait")
    assert process.state is ProcessState.FAILED and process.error is not None
    assert process.error.code == "mutation_fails" and "throwIf" in process.error.message
    assert place.frozen == []


def test_W7_a_pending_rename_is_never_ignored(place: Place) -> None:
    with place.visit() as session:
        session.execute("CREATE TABLE db.renamed (id UInt32, s String) ENGINE = MergeTree ORDER BY id")
        session.execute("SYSTEM STOP MERGES db.renamed")  # and mutations with them
        session.execute("INSERT INTO db.renamed VALUES (1, 'a')")
        session.execute(
            "ALTER TABLE db.renamed RENAME COLUMN s TO t SETTINGS mutations_sync = 0, alter_sync = 0"
        )
        table = describe(session, "db", "renamed")
        with pytest.raises(RefusedError, match="RENAME COLUMN s TO t") as caught:
            freeze.freeze(session, table, ["all"], "calve-renamed-1", ignore=True)
    assert "--mutations wait" in caught.value.hint and "ignore" not in caught.value.hint
    assert place.frozen == []


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("UPDATE s = 'y' WHERE id = 3", True),
        ("(UPDATE _row_exists = 0 WHERE id = 3)", True),
        ("DELETE WHERE id = 3", True),
        ("MATERIALIZE INDEX i", True),
        ("APPLY DELETED MASK", True),
        ("RENAME COLUMN s TO t", False),
        ("DROP COLUMN s", False),
        ("MODIFY COLUMN s UInt8", False),
        ("ADD COLUMN s UInt8", False),
        ("MATERIALIZE COLUMN s", False),
        ("MATERIALIZE TTL", False),
        ("CLEAR COLUMN s IN PARTITION 'x'", False),
        ("SOMETHING NEW", False),
        ("", False),
    ],
)
def test_W7_only_changes_of_rows_alone_may_be_ignored(command: str, kept: bool) -> None:
    assert keeps_the_shape(Mutation(id="1", command=command, parts_to_do=1)) is kept


def test_a_mutation_in_one_partition_does_not_stop_exports_of_another(place: Place) -> None:
    place.execute(
        "CREATE TABLE db.apart (id UInt32, p UInt8, n UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY id",
        "INSERT INTO db.apart SELECT number, number % 3, 0 FROM numbers(9)",
        f"ALTER TABLE db.apart UPDATE {_STUCK} IN PARTITION 0 WHERE 1 SETTINGS mutations_sync = 0",
        f"ALTER TABLE db.apart UPDATE {_STUCK} IN PARTITION ID '2' WHERE 1 SETTINGS mutations_sync = 0",
    )
    [process] = place.export("db.apart", "1", to="lake.ns.apart")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(place.read("lake.ns.apart")["id"].to_pylist()) == [1, 4, 7]
    for partition in ("0", "2"):
        with pytest.raises(RefusedError, match="unfinished mutations"):
            place.export("db.apart", partition, to="lake.ns.apart")


def test_patches_of_one_partition_do_not_stop_exports_of_another(place: Place) -> None:
    settings = "enable_block_number_column = 1, enable_block_offset_column = 1"
    place.execute(
        "CREATE TABLE db.patched (id UInt32, p UInt8, n UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY id"
        f" SETTINGS {settings}",
        "INSERT INTO db.patched SELECT number, number % 2, 0 FROM numbers(6)",
        "SYSTEM STOP MERGES db.patched",
        "UPDATE db.patched SET n = 1 WHERE p = 0 SETTINGS enable_lightweight_update = 1",
    )
    [process] = place.export("db.patched", "1", to="lake.ns.patched")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(place.read("lake.ns.patched")["id"].to_pylist()) == [1, 3, 5]
    with pytest.raises(RefusedError, match="patch parts"):
        place.export("db.patched", "0", to="lake.ns.patched")
