"""Executors read a backup's parts; the result equals an export of the live table; nobody asks the source."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from backup_place import DirectRunner

from calve.app.backups.requests import BackupReach
from calve.backup import submit
from calve.backup.request import BackupOptions
from calve.control.ports import Runner
from calve.model.errors import NotFoundError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner()
    yield runner
    runner.close()


@pytest.fixture
def place(tmp_path: Path, runner: Runner) -> Place:
    place = Place(tmp_path, runner)
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64, day Date, note Nullable(String)) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(day) ORDER BY id",
        "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 60,"
        " if(number % 5 = 0, NULL, toString(number)) FROM numbers(3000)",
        "DELETE FROM db.events WHERE id % 7 = 0",
    )
    return place


def back_up(place: Place, name: str) -> None:
    with place.app() as app:
        app.__dict__["runner"] = DirectRunner()
        reach = BackupReach(app)
        request = submit.request_of(reach, name, "main", ("db.*",), BackupOptions(mutations="wait"))
        [process] = place.finish(app, [submit.submit(reach, app.store, request).process.id])
    assert process.state is ProcessState.COMPLETED, process.error


def test_the_result_equals_an_export_of_the_live_table_and_the_source_may_be_gone(place: Place) -> None:
    back_up(place, "b")
    live = place.export("db.events", to="lake.ns.live")
    shutil.rmtree(place.folder / "clickhouse")
    from_backup = place.export("db.events", to="lake.ns.kept", from_backup="b")
    assert [process.error for process in (*live, *from_backup)] == [None] * 4
    assert [process.rows for process in from_backup] == [process.rows for process in live]
    order = [("id", "ascending")]
    assert place.read("lake.ns.kept").sort_by(order) == place.read("lake.ns.live").sort_by(order)
    # One input, whichever way it comes: what was exported live is not exported again from the backup.
    assert place.export("db.events", to="lake.ns.live", from_backup="b") == []
    assert place.read("lake.ns.live").num_rows == sum(process.rows for process in live)


def test_executors_open_an_encrypted_backup(tmp_path: Path, place: Place) -> None:
    place.settings |= {
        "CALVE_BACKUP__ENCRYPTION_KEY": secrets.token_hex(32), "CALVE_BACKUP__COMPRESSION": "zstd",
    }  # fmt: skip
    back_up(place, "b")
    live = place.export("db.events", to="lake.ns.live")
    from_backup = place.export("db.events", to="lake.ns.kept", from_backup="b")
    assert [process.error for process in (*live, *from_backup)] == [None] * 4
    order = [("id", "ascending")]
    assert place.read("lake.ns.kept").sort_by(order) == place.read("lake.ns.live").sort_by(order)
    with place.app() as app:
        for process in from_backup:
            key = place.settings["CALVE_BACKUP__ENCRYPTION_KEY"]
            assert key not in f"{process}{app.store.plan(process.id)}{app.store.tasks(process.id)}"


def test_what_the_backup_has_not_is_named(place: Place) -> None:
    back_up(place, "b")
    for arguments, words in (
        ({"from_backup": "nothing"}, "no backup 'nothing'"),
        ({"from_backup": "b", "partitions": ("209901",)}, "no partition 209901"),
        ({"from_backup": "b", "parts": ("all_9_9_9",)}, "no part all_9_9_9"),
    ):
        partitions = arguments.pop("partitions", ())
        with pytest.raises(NotFoundError, match=words):
            place.export("db.events", *partitions, **arguments)
    with pytest.raises(NotFoundError, match=r"no table db\.other"):
        place.export("db.other", from_backup="b")
    [process] = place.export("db.events", "202401", from_backup="b")
    assert process.partitions == ("202401",)


def test_a_damaged_part_publishes_nothing(place: Place) -> None:
    back_up(place, "b")
    for index in (place.folder / "backups" / "parts").glob("*/*/*.json"):
        index.write_bytes(index.read_bytes().replace(b"a", b"b", 1))
    [failed] = place.export("db.events", "202402", from_backup="b")
    assert failed.error is not None and failed.error.code == "backup_damaged"
    assert place.read().num_rows == 0
