"""`calve hold`: rows that are to stay, by whom, why and until when; policies obey, and a typing error is no hold."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.desk import Desk
from calve.cli.main import run
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Caller, Role
from calve.model.errors import DeniedError, NotFoundError, RefusedError, UsageError

TABLE = "main:db.events"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("holds") / "clickhouse"
    with EmbeddedSource("main", made, create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toStartOfMonth(day) ORDER BY id"
        )
        session.execute("INSERT INTO db.events VALUES (1, '2024-01-10')")
    return made


@pytest.fixture
def config(tmp_path: Path, source: Path) -> Path:
    """A store of the test's own over the one source."""
    policy = f'\n[policy.events]\nsource = "{TABLE}"\nto = "lake.ns.events"\nquiet = "0s"\n'
    (tmp_path / "clickhouse").symlink_to(source)
    (tmp_path / "calve.toml").write_text(render() + policy)
    return tmp_path / "calve.toml"


@pytest.fixture
def calve(config: Path) -> Iterator[Calve]:
    with Calve(load_config(config, environ={}, cwd=config.parent)) as opened:
        yield opened


def add(calve: Calve, table: str = "db.events", partition: str = "", **given: Any) -> dict[str, Any]:
    return calve.hold_add(table, partition, **{"reason": "an audit"} | given)


def test_a_hold_knows_its_table_by_name_uuid_and_identity(calve: Calve) -> None:
    made = add(calve)
    assert (made["name"], made["partition"], made["reason"], made["standing"]) == (
        TABLE,
        "",
        "an audit",
        True,
    )
    assert made["uuid"]
    assert made["uuid"] in made["identity"]
    assert made["who"].startswith("local:")
    assert made["announced"] == []


def test_several_holds_stand_on_one_thing_and_each_is_released_alone(calve: Calve) -> None:
    first, second = add(calve, partition="20240101"), add(calve, partition="2024-01-01", reason="a case")
    assert second["partition"] == "20240101"  # by its value
    assert [one["id"] for one in calve.hold_list("db.events")] == [first["id"], second["id"]]
    assert calve.hold_list("db.other") == []
    calve.hold_release(first["id"])
    assert [one["reason"] for one in calve.hold_list()] == ["a case"]
    assert [one["standing"] for one in calve.hold_list(every=True)] == [False, True]
    with pytest.raises(NotFoundError):
        calve.hold_release("hold-none")


@pytest.mark.parametrize(
    ("table", "partition"), [("db.evnets", ""), ("nodb.events", ""), ("db.events", "202401")],
    ids=["table", "database", "partition"],
)  # fmt: skip
def test_what_is_not_there_is_held_only_if_insisted_on(calve: Calve, table: str, partition: str) -> None:
    with pytest.raises(RefusedError) as refused:
        add(calve, table, partition)
    assert refused.value.code == "hold_unmatched"
    assert calve.hold_list() == []
    made = add(calve, table, partition, force=True)
    assert made["unmatched"]
    assert (made["identity"], made["partition"], made["standing"]) == ("", partition, True)


def test_a_source_that_nobody_configured_is_never_held(calve: Calve) -> None:
    with pytest.raises((NotFoundError, UsageError)):
        add(calve, "nowhere:db.events", force=True)


def test_until_is_a_span_or_a_time_of_the_stores_clock(calve: Calve) -> None:
    now = calve.now()
    assert add(calve, until="2999-01-31")["until_at"] == "2999-01-31T00:00:00Z"
    later = add(calve, until="90d")["until_at"]
    assert later[:10] in {f"{now + timedelta(days=days):%Y-%m-%d}" for days in (90, 91)}
    for wrong in ("2020-01-01", "soon", "0d"):
        with pytest.raises(UsageError) as refused:
            add(calve, until=wrong)
        assert refused.value.code == "bad_until"
    with pytest.raises(UsageError):
        add(calve, reason=" ")


def test_a_policy_explains_who_holds_a_partition(calve: Calve) -> None:
    made = add(calve, partition="20240101", reason="case 4711")
    other = add(calve, partition="20240201", reason="another", force=True)
    calve.policy_run("events", dry_run=True)
    [found] = calve.policy_explain("db.events", "20240101")
    assert [(one["id"], one["reason"]) for one in found["holds"]] == [(made["id"], "case 4711")]
    assert found["facts"]["held_by"].endswith("case 4711")
    assert found["state"] == "DUE"  # an export takes nothing away
    calve.hold_release(made["id"])
    [found] = calve.policy_explain("db.events", "20240101")
    assert (found["holds"], found["facts"]["held_by"], other["standing"]) == ([], None, True)


def test_an_operator_holds_and_an_admin_releases(calve: Calve) -> None:
    desk = Desk(calve)
    viewer, operator, admin = (Caller(name=role.value, role=role) for role in Role)
    given = {"table": "db.events", "reason": "an audit"}
    with pytest.raises(DeniedError):
        desk.perform(viewer, "hold_add", given)
    made = desk.perform(operator, "hold_add", given)
    assert made["who"] == "operator"
    assert [one["id"] for one in desk.perform(viewer, "hold_list", {})] == [made["id"]]
    with pytest.raises(DeniedError):
        desk.perform(operator, "hold_release", {"id": made["id"]})
    assert desk.perform(admin, "hold_release", {"id": made["id"]})["released_by"] == "admin"
    said = [(one["who"], one["verb"]) for one in calve.audit()["entries"]]
    assert said == [("admin", "hold_release"), ("operator", "hold_add")]


def test_the_commands_print_what_people_need(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def calve(*words: str) -> tuple[int, str, str]:
        code = run([*words, "--config", str(config)])
        said = capfd.readouterr()
        return code, said.out, said.err

    assert calve("hold", "list")[1:] == ("", "There are no holds.\n")
    code, out, err = calve("hold", "add", "db.events", "20240101", "--reason", "case 4711", "--until", "90d")
    assert (code, "partition 20240101 of main:db.events is held until" in err) == (0, True)
    id = out.strip()
    code, out, _ = calve("hold", "list", "db.events", "--json")
    assert [one["id"] for one in json.loads(out)] == [id]
    code, out, _ = calve("hold", "list")
    assert out.splitlines()[1].split()[:3] == [id, TABLE, "20240101"]
    assert calve("hold", "add", "db.events")[0] == 2
    assert calve("hold", "add", "db.nothing", "--reason", "x")[0] == 4
    assert calve("hold", "release", id)[:2] == (0, f"{id} is released\n")
    assert calve("hold", "release", "hold-none")[0] == 3
    assert "released by" in calve("hold", "list", "--all")[1]
