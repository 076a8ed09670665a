"""Each backup says what is not in it: when it is made, when it is restored, and whenever it is shown."""

from pathlib import Path

import pytest
from backup_place import BackupPlace

from calve.archive.left_out import left_out
from calve.clickhouse.embedded.source import EmbeddedSource
from support.calve_command import Run


@pytest.fixture
def said(place: BackupPlace) -> dict[str, str]:
    place.execute(
        "CREATE TABLE db.log (x UInt8) ENGINE = Log",
        "CREATE TABLE db.buffer AS db.users ENGINE = Buffer(db, users, 1, 10, 100, 10, 100, 10, 100)",
        "CREATE TABLE db.far (x UInt8) ENGINE = URL('http://127.0.0.1:1/x', CSV)",
        "CREATE DICTIONARY db.d (id UInt64, name String) PRIMARY KEY id"
        " SOURCE(CLICKHOUSE(DATABASE 'db' TABLE 'users')) LAYOUT(FLAT()) LIFETIME(0)",
        "CREATE VIEW db.v AS SELECT * FROM db.users",
        "ALTER TABLE db.events DETACH PARTITION 202401",
    )
    return {one.what: one.why for one in left_out(place.create("b"))}


def test_what_is_left_out_is_named(said: dict[str, str]) -> None:
    assert "structure alone" in said["db.log"]
    assert "flushed" in said["db.buffer"]
    assert "elsewhere" in said["db.far"]
    assert "loaded again" in said["db.d"]
    assert "1 in its detached folder" in said["detached parts of db.events"]
    assert "--rbac" in said["users, roles, grants, quotas, settings profiles and named collections"]
    assert "server configuration" in said
    assert "db.v" not in said and "db.events" not in said


def test_a_selection_of_partitions_is_said(place: BackupPlace) -> None:
    made = place.create("b", "db.events", partitions=("202401",))
    assert ("other partitions", "only these were asked for: 202401") in [
        (one.what, one.why) for one in left_out(made)
    ]


def test_people_and_scripts_see_it(run: Run, tmp_path: Path) -> None:
    with EmbeddedSource("main", tmp_path / "clickhouse").visit() as session:
        session.execute("CREATE TABLE db.log (x UInt8) ENGINE = Log")
    created = run("backup", "create", "b", "--tables", "db.*")
    assert "not in the backup: db.log: " in created.err and "not in the backup: server conf" in created.err
    assert created.err.count("db.log: ") == 1, "once, not as a warning too"
    shown = run("backup", "show", "b")
    assert "not in this backup:" in shown.out and "server configuration" in shown.out
    document = run("backup", "show", "b", "--json").json
    assert {"db.log", "server configuration"} <= {one["what"] for one in document["left_out"]}
    assert document["rbac"] is False and document["access"] == []
    restored = run("backup", "restore", "b", "--as", "r", "--json")
    assert {"db.log"} <= {one["what"] for one in restored.json["detail"]["left_out"]}
    restored = run("backup", "restore", "b", "--as", "r2")
    assert "not in the backup: db.log: " in restored.err
    some = run("backup", "restore", "b", "--tables", "db.t", "--as", "r3")
    assert some.code == 0, some.err
    assert "not in the backup: server conf" in some.err and "db.log" not in some.err
