"""The desk: who may do what, arguments that are wrong, and answers that are the JSON of the command line."""

import inspect
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import update

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.desk import SERVED, Desk
from calve.app.values import Selection
from calve.app.verbs.roles import VERBS, Reach
from calve.app.view import process_json
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Caller, Role
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    RefusedError,
    StoreUnknownError,
    UsageError,
)
from calve.model.process import ProcessQuery
from calve.store import SqlStore, open_store
from calve.store.tables import requests

VIEWER, OPERATOR, ADMIN = (Caller(name=role.value, role=role) for role in Role)
EXPORT = {"table": "db.t", "to": "lake.ns.t", "all": True}
# The table of the design, in other words than the code's.
VIEWERS = [
    "now",
    "tasks",
    "totals",
    "versions",
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
    "source_tables",
    "parts",
    "health",
    "export_preview",
    "optimize_preview",
    "backup_list",
    "backup_show",
    "page",
    "servers",
    "breakers",
    "halts",
    "proofs",
    "keys",
    "feed",
    "seen",
    "attention",
    "tables",
    "table",
    "sheet",
    "vault",
    "tiering",
    "system",
    "search",
    "policy_list",
    "policy_show",
    "policy_explain",
    "policy_drop",
    "hold_list",
    "schedule_list",
    "schedule_show",
    "view_show",
]
OPERATORS = [
    "policy_run",
    "policy_pause",
    "policy_resume",
    "policy_undo",
    "untier",
    "hold_add",
    "schedule_run",
    "backup_drill",
    "schedule_pause",
    "schedule_resume",
    "stop",
    "settings",
    "audit",
    "halt",
    "lift",
    "verify",
    "backup_verify",
    "doctor",
    "support",
    "export",
    "backup_create",
    "optimize",
    "notify_test",
    "cancel",
    "retry",
]
ADMINS = [
    "backup_restore",
    "restore_preview",
    "backup_delete",
    "backup_prune",
    "token_new",
    "token_list",
    "token_revoke",
    "hold_release",
    "view_create",
    "view_drop",
    "policy_approve",
]


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
    assert sorted([*VIEWERS, *OPERATORS, *ADMINS]) == sorted(SERVED)
    for verb in SERVED:
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
        ("export", EXPORT | {"all": None, "older_than": "999999999d"}, "bad_age"),
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


def submitted(calve: Calve) -> list[str]:
    return [one.id for one in calve.processes(ProcessQuery(limit=1000))]


def audited(calve: Calve) -> list[tuple[str, str, str]]:
    entries = calve.registry.audited(None, 1000)
    return [(one.who, one.verb, " ".join(one.processes)) for one in entries]


def test_the_same_key_and_request_are_answered_as_they_were_first(calve: Calve, desk: Desk) -> None:
    wanted = {"table": "db.t", "to": "lake.ns.keys", "partitions": ["0"]}
    first = desk.perform(OPERATOR, "export", wanted, key="k1")
    known, noted = submitted(calve), audited(calve)
    desk.perform(OPERATOR, "cancel", {"ids": [first["processes"][0]["id"]]})
    assert desk.perform(OPERATOR, "export", wanted, key="k1") == first  # as it was then, not as it is now
    assert desk.perform(OPERATOR, "export", dict(reversed(wanted.items())), key="k1") == first
    assert desk.replay(OPERATOR, "export", wanted, "k1") == first
    assert submitted(calve) == known
    assert audited(calve)[1:] == noted
    assert noted[0] == ("operator", "export", first["processes"][0]["id"])


def test_a_request_that_is_refused_is_refused_again_under_its_key(desk: Desk) -> None:
    wanted = {"table": "db.t", "to": "lake.ns.keys", "partitions": ["9"]}
    for _ in range(2):
        with pytest.raises(NotFoundError):
            desk.perform(OPERATOR, "export", wanted, key="k-absent")
        assert desk.replay(OPERATOR, "export", wanted, "k-absent") is None


def test_a_key_is_not_taken_for_another_request_or_from_another_caller(calve: Calve, desk: Desk) -> None:
    wanted = {"table": "db.t", "to": "lake.ns.others", "partitions": ["0"]}
    first = desk.perform(OPERATOR, "export", wanted, key="k2")
    with pytest.raises(RefusedError) as caught:
        desk.perform(OPERATOR, "export", wanted | {"partitions": ["1"]}, key="k2")
    assert caught.value.code == "key_reused"
    assert desk.replay(ADMIN, "export", wanted, "k2") is None
    with pytest.raises(DeniedError):
        desk.replay(VIEWER, "export", wanted, "k2")
    again = desk.perform(ADMIN, "export", wanted, key="k2")  # another's key: a request of its own, that joins
    assert again["joined"] == [one["id"] for one in first["processes"]]


def test_one_key_at_the_same_moment_is_one_submission(calve: Calve, desk: Desk) -> None:
    wanted = {"table": "db.t", "to": "lake.ns.race", "all": True}
    before = len(submitted(calve))
    barrier = Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait(30)
        return desk.perform(OPERATOR, "export", wanted, key="k3")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert len(submitted(calve)) == before + 2
    assert {tuple(one["id"] for one in answer["processes"]) for answer in answers} == {
        tuple(one["id"] for one in answers[0]["processes"])
    }


def test_an_answer_that_was_not_kept_is_made_again_from_its_processes(
    calve: Calve, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(Exception):
        """Between the submission and the text of its answer."""

    def die(*_: Any) -> None:
        raise Dies

    wanted = {"table": "db.t", "to": "lake.ns.dies", "partitions": ["1"]}
    with monkeypatch.context() as patch:
        patch.setattr(type(calve.registry), "answer_request", die)
        with pytest.raises(Dies):
            desk.perform(OPERATOR, "export", wanted, key="k4")
    known = submitted(calve)
    again = desk.perform(OPERATOR, "export", wanted, key="k4")
    assert [one["id"] for one in again["processes"]] == known[:1]
    assert again["destination"] == "lake.ns.dies"
    assert submitted(calve) == known


def test_T10_a_kept_answer_that_cannot_be_read_is_made_again_from_its_processes(
    calve: Calve, desk: Desk
) -> None:
    wanted = {"table": "db.t", "to": "lake.ns.damaged", "partitions": ["0"]}
    first = desk.perform(OPERATOR, "export", wanted, key="k-damaged")
    with open_store(calve.config.store_url) as store:
        assert isinstance(store, SqlStore)
        with store.database.engine.begin() as connection:
            connection.execute(
                update(requests).where(requests.c.key == "k-damaged").values(answer='{"processes": [')
            )
    known = submitted(calve)
    again = desk.perform(OPERATOR, "export", wanted, key="k-damaged")
    assert [one["id"] for one in again["processes"]] == [one["id"] for one in first["processes"]]
    assert submitted(calve) == known


def test_a_lost_acknowledgement_is_read_back(
    calve: Calve, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(calve.registry)
    submit = store.submit  # type: ignore[attr-defined]

    def lost(*given: Any, **named: Any) -> Any:
        submit(*given, **named)
        raise StoreUnknownError("the commit's acknowledgement was lost", code="store_unknown")

    wanted = {"table": "db.t", "to": "lake.ns.lost", "partitions": ["1"]}
    with monkeypatch.context() as patch:
        patch.setattr(store, "submit", lost)
        answer = desk.perform(OPERATOR, "export", wanted, key="k5")
    assert [one["id"] for one in answer["processes"]] == submitted(calve)[:1]


def test_every_change_is_noted_with_who_asked_for_it() -> None:
    """Each of these writes the audit: with the change (see the contracts of the store), or before it and after."""
    ways = ("self._store(", "self._asking(", "self._audited(")
    changes = [verb.name for verb in VERBS.values() if verb.changes and verb.reach is not Reach.HERE]
    silent = [
        name for name in changes if not any(way in inspect.getsource(getattr(Calve, name)) for way in ways)
    ]
    assert silent == ["stop"]  # it carries out what `cancel` was noted for


def test_what_changes_outside_of_the_store_is_audited_before_and_after(calve: Calve, desk: Desk) -> None:
    with pytest.raises(CalveError):
        desk.perform(ADMIN, "backup_delete", {"name": "none"})
    desk.perform(ADMIN, "backup_prune", {"last": 1})
    desk.perform(VIEWER, "backup_prune", {"last": 1, "dry_run": True})
    entries = calve.registry.audited(None, 4)
    assert [(one.verb, one.outcome.value) for one in entries] == [
        ("backup_prune", "done"), ("backup_prune", "asked"), ("backup_delete", "failed"), ("backup_delete", "asked"),
    ]  # fmt: skip
    assert {one.who for one in entries} == {"admin"}


def test_a_local_change_names_the_user(calve: Calve) -> None:
    calve.export("db.t", "lake.ns.mine", Selection(all=True))
    who, verb, _ = audited(calve)[0]
    assert who.startswith("local:")
    assert verb == "export"


def test_pages_meet_every_process_once(calve: Calve, desk: Desk) -> None:
    calve.export("db.t", "lake.ns.pages", Selection(all=True))
    seen: list[str] = []
    after = None
    while True:
        page = desk.perform(VIEWER, "page", {"limit": 2, "after": after})
        assert len(page["processes"]) <= 2
        seen += [one["id"] for one in page["processes"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == submitted(calve)
    to = desk.perform(VIEWER, "page", {"table": "lake.ns.pages"})["processes"]
    assert {one["destination"] for one in to} == {"lake.ns.pages"}
    assert desk.perform(VIEWER, "page", {"table": "db.t", "limit": 1000})["processes"]
    assert desk.perform(VIEWER, "page", {"table": "db.none"}) == {"processes": [], "next": None}


def test_halts_are_made_once_shown_and_lifted_one_by_one(calve: Calve, desk: Desk) -> None:
    made = desk.perform(OPERATOR, "halt", {"table": "db.t", "reason": "a migration"})
    assert (made["kind"], made["source"], made["who"]) == ("export", "main:db.t", "operator")
    assert made["unaware_workers"] == []
    again = desk.perform(ADMIN, "halt", {"table": "main:db.t", "reason": "another"})
    assert again["reason"] == "a migration"
    desk.perform(ADMIN, "halt", {})
    assert [one["source"] for one in desk.perform(VIEWER, "halts", {})] == ["", "main:db.t"]
    with pytest.raises(RefusedError) as caught:
        desk.perform(OPERATOR, "lift", {"table": "db.t"})
    assert caught.value.code == "all_halted"
    for table, lifted in (("", True), ("db.t", True), ("db.t", False)):
        assert desk.perform(OPERATOR, "lift", {"table": table})["lifted"] is lifted
    assert desk.perform(VIEWER, "halts", {}) == []
    with pytest.raises(UsageError):
        desk.perform(OPERATOR, "halt", {"kind": "everything"})


def test_the_audit_is_read_in_pages(calve: Calve, desk: Desk) -> None:
    for _ in range(3):
        desk.perform(ADMIN, "token_new", {"role": "viewer"})
    first = desk.perform(OPERATOR, "audit", {"limit": 2})
    assert [one["verb"] for one in first["entries"]] == ["token_new", "token_new"]
    rest = desk.perform(OPERATOR, "audit", {"before": first["next"]})
    assert rest["entries"][0]["verb"] == "token_new"
    assert rest["entries"][0]["number"] < first["next"]
    assert rest["next"] is None
