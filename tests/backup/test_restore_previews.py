"""`calve backup restore --dry-run` shows what a restore makes, and `--plan` holds it to that."""

import json
from typing import Any

import pytest
from backup_place import BackupPlace

from calve.app.backups.documents import restore_preview_json
from calve.app.backups.requests import restore, restore_preview
from calve.model.errors import RefusedError
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from calve.restore.schema import made_uuid
from calve.restore.submit import RestoreOptions
from support.calve_command import Run


def shown(place: BackupPlace, **asked: Any) -> dict[str, Any]:
    with place.app() as app:
        return restore_preview_json(restore_preview(app, "b", RestoreOptions(**asked)))


def databases(place: BackupPlace) -> set[str]:
    return {row["name"] for row in place.select("SELECT name FROM system.databases")}


def test_what_is_shown_is_restored_and_nothing_else(place: BackupPlace) -> None:
    place.try_create("b")
    before = databases(place)
    found = shown(place, into="db2")
    assert databases(place) == before
    with place.app() as app:
        assert app.store.processes(ProcessQuery(kind="restore")) == [], "it queues nothing"
    tables = {one["table"]: one for one in found["tables"]}
    assert set(tables) == {"db.events", "db.users"}
    events = tables["db.events"]
    assert (events["target"], events["rows"], events["exists"], events["refused"]) == (
        "db2.events", 2000, False, None,
    )  # fmt: skip
    assert events["create"].startswith("CREATE TABLE `db2`.`events`") and "UUID" not in events["create"]
    assert found["rows"] == 2110 and found["left_out"]
    assert shown(place, into="db2")["plan_hash"] == found["plan_hash"]
    with place.app() as app:
        options = RestoreOptions(into="db2", plan_hash=found["plan_hash"])
        [process] = place.finish(app, [restore(app, app.store, "b", options).process.id])
    assert (process.state, process.rows) == (ProcessState.COMPLETED, found["rows"]), process.error
    assert place.select("SELECT count() AS n FROM db2.events") == [{"n": 2000}]


def test_tables_that_exist_are_refused_or_taken_as_asked_for(place: BackupPlace) -> None:
    place.try_create("b")
    found = shown(place)
    assert all(one["exists"] and one["refused"]["code"] == "table_exists" for one in found["tables"])
    other = shown(place, existing="append")
    assert not any(one["refused"] for one in other["tables"])
    assert other["plan_hash"] != found["plan_hash"]
    part = shown(place, existing="append", tables=("db.events",), partitions=("202401",))
    assert [(one["table"], one["rows"] < 2000) for one in part["tables"]] == [("db.events", True)]


def test_another_plan_is_refused_before_anything_is_queued(place: BackupPlace) -> None:
    place.try_create("b")
    agreed = shown(place, into="db2", existing="append")["plan_hash"]
    place.execute("CREATE DATABASE db2", "CREATE TABLE db2.users (id UInt64) ENGINE = MergeTree ORDER BY id")
    options = RestoreOptions(into="db2", existing="append", plan_hash=agreed)
    with place.app() as app:
        with pytest.raises(RefusedError, match="not the plan that was approved") as refused:
            restore(app, app.store, "b", options)
        assert refused.value.code == "plan_changed"
        assert app.store.processes(ProcessQuery(kind="restore")) == []


def test_what_an_earlier_try_has_made_is_its_own(place: BackupPlace) -> None:
    place.try_create("b")
    with place.app() as app:
        options = RestoreOptions(into="db2")
        seed = json.loads(restore(app, app.store, "b", options).process.request)["seed"]
        made = made_uuid(seed, ("db2", "users"))
        place.execute(
            "CREATE DATABASE db2",
            f"CREATE TABLE db2.users UUID '{made}' (id UInt64) ENGINE = MergeTree ORDER BY id",
        )
        found = restore_preview_json(restore_preview(app, "b", options))
    users = next(one for one in found["tables"] if one["target"] == "db2.users")
    assert (users["goes_on"], users["exists"], users["refused"]) == (True, False, None)


def test_the_command_prints_it(run: Run) -> None:
    assert run("backup", "create", "b", "--tables", "db.*").code == 0
    assert run("backup", "restore", "b", "--dry-run").code == 4
    made = run("backup", "restore", "b", "--as", "db2", "--dry-run")
    assert made.code == 0 and "db2.t" in made.out and "created" in made.out
    document = json.loads(run("backup", "restore", "b", "--as", "db2", "--dry-run", "--json").out)
    assert f"--plan {document['plan_hash']}" in made.out
    done = run("backup", "restore", "b", "--as", "db2", "--plan", document["plan_hash"])
    assert done.code == 0, done
    assert run("backup", "restore", "b", "--as", "db2", "--plan", document["plan_hash"]).code == 4
