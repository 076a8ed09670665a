"""The desk: who may do what, arguments that are wrong, and answers that are the JSON of the command line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.desk import _SERVED, VERBS, Desk, Reach
from calve.app.view import process_json
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Caller, Role
from calve.model.errors import DeniedError, UsageError
from calve.model.process import ProcessQuery

VIEWER, OPERATOR, ADMIN = (Caller(name=role.value, role=role) for role in Role)
EXPORT = {"table": "db.t", "to": "lake.ns.t", "all": True}
# The table of the design, in other words than the code's.
VIEWERS = [
    "now",
    "find",
    "has_workers",
    "notes",
    "outages",
    "processes",
    "show",
    "events",
    "why",
    "standing",
    "workers",
    "history",
    "partitions",
    "parts",
    "health",
    "export_preview",
    "optimize_preview",
    "backup_list",
    "backup_show",
]
OPERATORS = [
    "settings",
    "verify",
    "backup_verify",
    "doctor",
    "export",
    "backup_create",
    "optimize",
    "cancel",
    "retry",
]
ADMINS = ["backup_restore", "backup_delete", "backup_prune"]


@pytest.fixture(scope="module")
def calve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calve]:
    made = tmp_path_factory.mktemp("desk")
    (made / "calve.toml").write_text(render())
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
        )
        session.execute("INSERT INTO db.t SELECT number, number % 2 FROM numbers(100)")
    with Calve(load_config(made / "calve.toml", environ={})) as opened:
        yield opened


@pytest.fixture(scope="module")
def desk(calve: Calve) -> Desk:
    return Desk(calve)


def allowed(desk: Desk, caller: Caller, verb: str, arguments: dict[str, Any] | None = None) -> bool:
    try:
        desk.check(caller, verb, arguments or {})
    except DeniedError as error:
        assert error.code == "role"
        return False
    return True


def test_the_roles_of_verbs(desk: Desk) -> None:
    assert sorted([*VIEWERS, *OPERATORS, *ADMINS]) == sorted(_SERVED)
    for verb in _SERVED:
        assert allowed(desk, VIEWER, verb) == (verb in VIEWERS), verb
        assert allowed(desk, OPERATOR, verb) == (verb not in ADMINS), verb
        assert allowed(desk, ADMIN, verb), verb


@pytest.mark.parametrize(
    "option", ["ignore_row_policies", "discard_deletes", "allow_shrink", "allow_overlap", "unsigned"]
)
def test_an_operator_may_not_export_with_an_option_that_gives_up_rows_or_shows_hidden_ones(
    desk: Desk, option: str
) -> None:
    assert allowed(desk, OPERATOR, "export", EXPORT | {option: False})
    assert not allowed(desk, OPERATOR, "export", EXPORT | {option: True})
    assert not allowed(desk, OPERATOR, "export", EXPORT | {option: "yes"})  # wrong, but denied first
    assert allowed(desk, ADMIN, "export", EXPORT | {option: True})
    with pytest.raises(DeniedError, match=f"operator is operator, and export with {option} needs admin"):
        desk.perform(OPERATOR, "export", EXPORT | {option: True})


def test_a_backup_of_hidden_rows_is_the_admins(desk: Desk) -> None:
    assert not allowed(desk, OPERATOR, "backup_create", {"ignore_row_policies": True})


def test_a_prune_that_deletes_nothing_is_for_viewers(desk: Desk) -> None:
    assert allowed(desk, VIEWER, "backup_prune", {"last": 1, "dry_run": True})
    assert not allowed(desk, OPERATOR, "backup_prune", {"last": 1, "dry_run": False})


@pytest.mark.parametrize("verb", ["run", "worker", "pin", "_store", "close", "config", "__init__", "no such"])
def test_what_needs_the_program_that_asks_or_is_no_verb_is_not_served(desk: Desk, verb: str) -> None:
    assert verb not in VERBS or VERBS[verb].reach is Reach.HERE
    with pytest.raises(UsageError) as caught:
        desk.perform(ADMIN, verb, {})
    assert caught.value.code == "unknown_verb"


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("show", {}, "missing_option"),
        ("show", {"ids": []}, "missing_option"),
        ("show", {"ids": "abc"}, "bad_option"),
        ("show", {"ids": [1]}, "bad_option"),
        ("show", {"id": ["x"]}, "unknown_option"),
        ("history", {"limit": True}, "bad_option"),
        ("history", {"limit": -1}, "bad_option"),
        ("history", {"limit": 10**30}, "bad_option"),
        ("processes", {"since": "yesterday"}, "bad_option"),
        ("processes", {"states": ["RUNING"]}, "bad_option"),
        ("export", EXPORT | {"mutations": "perhaps"}, "bad_option"),
        ("export", EXPORT | {"casts": {"a": 1}}, "bad_option"),
        ("export", EXPORT | {"all": None}, "selection"),
        ("export", EXPORT | {"all": None, "older_than": "ninety"}, "bad_age"),
        ("export", {"to": "lake.ns.t", "all": True}, "missing_option"),
        ("backup_verify", {"name": "x", "read_share": 1.5}, "bad_option"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_asked(
    desk: Desk, verb: str, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        desk.perform(ADMIN, verb, arguments)
    assert caught.value.code == code
    assert caught.value.hint


def test_the_value_of_a_misspelled_option_is_not_repeated(desk: Desk) -> None:
    with pytest.raises(UsageError) as caught:
        desk.perform(ADMIN, "show", {"pasword": "hunter2"})
    assert "hunter2" not in f"{caught.value.message}{caught.value.hint}"


def test_answers_are_json_that_begins_as_that_of_the_command_line(calve: Calve, desk: Desk) -> None:
    asked = desk.perform(OPERATOR, "export", EXPORT | {"older_than": None})
    assert json.loads(json.dumps(asked)) == asked
    ids = [one["id"] for one in asked["processes"]]
    assert len(ids) == 2
    assert asked["joined"] == []
    assert desk.perform(OPERATOR, "export", EXPORT)["joined"] == ids
    listed = desk.perform(VIEWER, "processes", {"table": "db.t"})
    assert [one["id"] for one in listed] == ids[::-1]
    for document, process in zip(listed, calve.processes(ProcessQuery(source="db.t")), strict=True):
        printed = process_json(process)
        assert list(document)[: len(printed)] == list(printed)
        assert {name: document[name] for name in printed} == printed
    for verb in ("find", "show", "events", "why", "standing", "outages", "has_workers", "notes"):
        answer = desk.perform(VIEWER, verb, {"ids": ids})
        assert json.loads(json.dumps(answer)) == answer, verb
    assert desk.perform(VIEWER, "standing", {"ids": [asked["batch"]]})["pinned"] is False
    cancelled = desk.perform(OPERATOR, "cancel", {"ids": [asked["batch"]]})
    assert [one["process"]["id"] for one in cancelled] == ids
    assert all(one["accepted"] and one["process"]["cancel_requested"] for one in cancelled)


def test_reports_are_the_documents_of_the_command_line(calve: Calve, desk: Desk) -> None:
    assert desk.perform(VIEWER, "partitions", {"table": "db.t"}) == calve.partitions("db.t")
    shown = desk.perform(VIEWER, "export_preview", EXPORT)
    assert shown["rows"] == 100
    assert desk.perform(OPERATOR, "settings", {}) == calve.settings()


def test_the_services_that_a_verb_will_ask(desk: Desk) -> None:
    assert desk.services("export", EXPORT) == ("source:main", "catalog:lake")
    assert desk.services("partitions", {"table": "other:db.t"}) == ("source:other",)
    assert desk.services("health", {"table": "lake.ns.t"}) == ("catalog:lake",)
    assert desk.services("export", {"table": "t", "to": "s3://b/x"}) == ("source:main", "storage:s3")
    assert desk.services("backup_list", {}) == ("backups",)
    assert desk.services("verify", {"ids": ["x"]}) == ("verify",)
