"""DETACH and ATTACH give parts new names. What was exported is still there, and nothing else passes for it."""

from pathlib import Path

import pytest

from calve.app.partitions import Exported, list_partitions
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place

TO = "lake.ns.t"
AGAIN = ("ALTER TABLE db.t DETACH PARTITION 1", "ALTER TABLE db.t ATTACH PARTITION 1")


@pytest.fixture
def place(tmp_path: Path, runner: LocalRunner) -> Place:
    """Its source is opened anew at each visit, as after a restart of the server."""
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.t (id UInt64, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY tuple()"
        " SETTINGS old_parts_lifetime = 0",
        *(f"INSERT INTO db.t SELECT number + {first}, 1 FROM numbers(100)" for first in (0, 100, 200)),
        "SYSTEM START MERGES",
        "DELETE FROM db.t WHERE id % 10 = 7",
        "SYSTEM STOP MERGES",
    )
    [process] = place.export("db.t", "1", to=TO)
    assert process.state is ProcessState.COMPLETED and process.rows == 270, process.error
    return place


def names(place: Place) -> list[str]:
    rows = place.select(
        "SELECT name FROM system.parts WHERE active AND database = 'db' AND table = 't' ORDER BY name"
    )
    return [row["name"] for row in rows]


def state(place: Place) -> Exported:
    with place.app() as app:
        status = list_partitions(app, "db.t", TO)[0].exported
    assert status is not None
    return status


def test_a_partition_that_was_detached_and_attached_is_unchanged(place: Place) -> None:
    before = names(place)
    place.execute(*AGAIN)
    assert len(names(place)) == len(before) and not set(names(place)) & set(before)
    assert state(place) is Exported.UNCHANGED
    assert place.export("db.t", "1", to=TO) == []
    [forced] = place.export("db.t", "1", to=TO, force=True)
    assert forced.state is ProcessState.COMPLETED, forced.error
    assert place.read(TO).num_rows == 270


def test_T11_a_partition_that_was_deleted_in_the_lake_is_listed_as_missing(place: Place) -> None:
    with place.app() as app:
        app.catalog("lake").load_table(TO.removeprefix("lake.")).delete()
    assert state(place) is Exported.MISSING


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE db.t UPDATE id = id + 1000 WHERE id = 5 SETTINGS mutations_sync = 2",
        "DELETE FROM db.t WHERE id = 5",
        "INSERT INTO db.t SELECT number, 1 FROM numbers(100)",
        "ALTER TABLE db.t DROP PART '{first}'",
    ],
    ids=["updated", "deleted", "inserted", "dropped"],
)
def test_a_change_between_two_such_moves_is_a_change(place: Place, change: str) -> None:
    place.execute(*AGAIN)
    place.execute("SYSTEM START MERGES", change.format(first=names(place)[0]))
    place.execute(*AGAIN)
    assert state(place) is Exported.CHANGED
    place.export("db.t", "1", to=TO)
    assert place.read(TO).num_rows == 270  # refused, so as it was
