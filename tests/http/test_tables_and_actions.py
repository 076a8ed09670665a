"""`/v1/actions` and `/v1/tables/*.jsonl`: what a ClickHouse server reads and writes through URL tables."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from calve.app.actions import Actions
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Caller, Role
from calve.sql.url_tables import columns, statements
from support.clickhouse_server import ClickHouseServer, clickhouse_server
from support.served import Served

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def table(served: Served) -> str:
    with EmbeddedSource("main", served.folder / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE IF NOT EXISTS acted")
        session.execute(
            "CREATE TABLE acted.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
        )
        session.execute("INSERT INTO acted.t SELECT number, number % 3 FROM numbers(300)")
    return "acted.t"


@pytest.fixture
def facade(served: Served) -> Iterator[Calve]:
    with Calve(load_config(served.folder / "calve.toml", environ={})) as made:
        yield made


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with clickhouse_server(tmp_path_factory.mktemp("old")) as server:
        yield server


def ask(server: ClickHouseServer, sql: str) -> str:
    answer = httpx.post(server.url, content=sql, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.text


def lines(answer: httpx.Response) -> list[dict[str, object]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def act(client: httpx.Client, *commands: str, **headers: str) -> httpx.Response:
    body = "".join(json.dumps({"command": one, "status": "ignored"}) + "\n" for one in commands)
    return client.post("/v1/actions", content=body, headers=headers)


def row_of(client: httpx.Client, operation: object) -> dict[str, object]:
    return next(one for one in lines(client.get("/v1/actions")) if one["operation_id"] == operation)


def ended(client: httpx.Client, operation: object) -> dict[str, object]:
    """Its row once it has ended."""
    for _ in range(600):
        row = row_of(client, operation)
        if row["status"] != "in progress":
            return row
        threading.Event().wait(0.05)
    raise AssertionError(f"not carried out: {row}")


def exports_to(client: httpx.Client, destination: str) -> list[dict[str, object]]:
    """Once there are any."""
    for _ in range(600):
        rows = lines(client.get("/v1/tables/exports.jsonl"))
        if found := [one for one in rows if one["destination"] == destination]:
            return found
        threading.Event().wait(0.05)
    raise AssertionError(f"nothing was exported to {destination}")


def test_an_action_is_acknowledged_and_then_carried_out(
    admin: httpx.Client, reader: httpx.Client, table: str, facade: Calve
) -> None:
    command = f"export {table} --partition 0 --to lake.acted.one --exclude m"
    [said] = lines(act(admin, command))
    assert (said["status"], said["operation"]) == ("acknowledged", command)
    [made] = exports_to(reader, "lake.acted.one")
    assert (made["partitions"], made["state"]) == (["0"], "PENDING")
    assert (made["cancel_requested"], made["finished_at"]) == (0, "1970-01-01 00:00:00")
    row = row_of(reader, said["operation_id"])
    assert (row["command"], row["status"], row["error"]) == (command, "in progress", "")
    assert row["finish"] == "1970-01-01 00:00:00"
    [asked] = [one for one in admin.get("/v1/audit").json()["entries"] if made["id"] in one["processes"]]
    assert asked["who"] == "local"
    [cancelled] = lines(act(admin, f"kill {made['id']}"))
    assert ended(reader, cancelled["operation_id"])["status"] == "success"
    assert facade.find([str(made["id"])])[0].cancel_requested


def test_what_a_dead_server_had_acknowledged_is_done_by_another(
    admin: httpx.Client, reader: httpx.Client, table: str, facade: Calve
) -> None:
    dead = Actions(Desk(facade), facade.registry, now=facade.now)
    caller = Caller(name="local", role=Role.ADMIN)
    [action] = dead.accept(caller, [f"export {table} --partition 1 --to lake.acted.two"])
    [woken] = lines(act(admin, "cancel nosuchprocess"))
    assert ended(reader, woken["operation_id"])["status"] == "error"
    [made] = exports_to(reader, "lake.acted.two")
    dead.carry_out(action)  # it was not quite dead
    assert [one["id"] for one in exports_to(reader, "lake.acted.two")] == [made["id"]]


WRONG = ["[]", '{"command": 1}', '{"command": " "}', "nonsense", '{"command": "drop x"}', "[" * 100_000]


def test_lines_that_are_wrong_are_refused_together(served: Served, admin: httpx.Client) -> None:
    before = {one["operation_id"] for one in lines(admin.get("/v1/actions"))}
    for line in WRONG:
        answer = admin.post("/v1/actions", content='{"command": "cancel a"}\n' + line)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_command"), line
    assert admin.post("/v1/actions", content='{"command": "cancel a"}\n' * 101).status_code == 400
    assert lines(admin.post("/v1/actions", content="")) == []
    token = admin.post("/v1/tokens", json={"role": "operator"}).json()["token"]
    with served.client(token) as operator:
        refused = act(operator, "cancel a", "delete nightly")
    assert (refused.status_code, refused.json()["code"]) == (403, "role")
    with served.client("") as anybody:
        assert act(anybody, "cancel a").status_code == 403
    assert {one["operation_id"] for one in lines(admin.get("/v1/actions"))} == before


def test_the_same_lines_with_the_same_key_are_the_same_actions(admin: httpx.Client) -> None:
    key = {"Idempotency-Key": "nightly"}
    first = lines(act(admin, "cancel nosuch", **key))
    assert lines(act(admin, "cancel nosuch", **key)) == first
    assert act(admin, "cancel another", **key).json()["code"] == "key_reused"


def test_tables_have_limits_and_names(reader: httpx.Client) -> None:
    assert len(lines(reader.get("/v1/tables/actions.jsonl?limit=1"))) <= 1
    for limit in ("0", "-1", "1e3", "100000", "9" * 50):
        assert reader.get(f"/v1/tables/exports.jsonl?limit={limit}").status_code == 400
    assert reader.get("/v1/tables/tokens.jsonl").json()["code"] == "no_such_table"


@pytest.mark.services
def test_a_server_of_2018_inserts_an_action(old_server: ClickHouseServer, tmp_path: Path) -> None:
    """It sends no headers, so its token is in the address; that has to be allowed."""
    made = Served(tmp_path / "s", settings="[serve]\nlogin_in_urls = true\n")
    try:
        with made.client() as admin:
            token = admin.post("/v1/tokens", json={"role": "operator"}).json()["token"]
            listed = ", ".join(f"{name} {kind}" for name, kind in columns("actions").items())
            address = f"{made.url}/v1/actions?user=any&pass={token}"
            ask(old_server, f"CREATE TABLE acts ({listed}) ENGINE = URL('{address}', JSONEachRow)")
            ask(old_server, "INSERT INTO acts (command) VALUES ('cancel one'), ('cancel two')")
            rows = lines(admin.get("/v1/actions"))
            assert [one["command"] for one in rows] == ["cancel two", "cancel one"]
            assert ask(old_server, "SELECT count() FROM acts") == "2\n"
            assert admin.get(f"/v1/config?pass={token}", headers={"Authorization": ""}).status_code != 200
        assert token not in made.log.read_text()
    finally:
        made.close()


def test_a_token_in_an_address_is_refused_and_not_repeated(reader: httpx.Client) -> None:
    for path in ("/v1/actions", "/v1/tables/exports.jsonl", "/backup/list/local"):
        answer = reader.get(path, params={"user": "any", "pass": "canary"})
        assert answer.status_code == 400
        assert "login_in_urls" in answer.text
        assert "canary" not in answer.text


@pytest.mark.services
def test_tables_are_made_on_a_server_by_what_install_prints(
    old_server: ClickHouseServer, served: Served, reader: httpx.Client, table: str
) -> None:
    for statement in statements(served.url, database="installed", read_only=True):
        ask(old_server, statement)
    seen = ask(old_server, "SELECT id FROM installed.exports ORDER BY id FORMAT TabSeparated").split()
    assert seen == sorted(str(one["id"]) for one in lines(reader.get("/v1/tables/exports.jsonl")))


def test_today_s_engine_reads_and_inserts_with_a_token_that_it_does_not_show(
    served: Served, admin: httpx.Client, tmp_path: Path
) -> None:
    made = admin.post("/v1/tokens", json={"role": "operator"}).json()
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        for statement in statements(served.url, token=made["token"]):
            session.execute(statement)
        session.execute("INSERT INTO calve.actions (command) VALUES ('cancel inserted')")
        [row] = session.rows("SELECT operation_id FROM calve.actions WHERE command = 'cancel inserted'")
        shown = session.rows(
            "SELECT create_table_query, engine_full FROM system.tables WHERE database = 'calve'"
        )
        shown += session.rows("SHOW CREATE TABLE calve.actions")
        kept = {one: one.read_text() for one in (tmp_path / "clickhouse").rglob("*.sql")}
    assert len(shown) == 5
    assert made["token"] not in str(shown)
    assert len(kept) > 5  # the database, four tables and the collection
    assert [one.parent.name for one, text in kept.items() if made["token"] in text] == ["named_collections"]
    assert ended(admin, row["operation_id"])["status"] == "error"


@pytest.mark.services
@pytest.mark.parametrize("name", ["exports", "backups", "processes", "actions"])
def test_a_server_of_2018_reads_every_table(
    old_server: ClickHouseServer, served: Served, reader: httpx.Client, name: str
) -> None:
    listed = ", ".join(f"`{column}` {kind}" for column, kind in columns(name).items())
    ask(old_server, f"CREATE TABLE {name} ({listed}) ENGINE = URL('{served.url}/v1/tables/{name}.jsonl', JSONEachRow)")  # fmt: skip
    rows = lines(reader.get(f"/v1/tables/{name}.jsonl"))
    seen = [
        json.loads(line) for line in ask(old_server, f"SELECT * FROM {name} FORMAT JSONEachRow").splitlines()
    ]
    assert [as_texts(one) for one in seen] == [as_texts(one) for one in rows]


def as_texts(row: dict[str, object]) -> dict[str, str]:
    """64-bit numbers are quoted there, and the time 0 is written so."""
    return {name: str(value).replace("0000-00-00", "1970-01-01") for name, value in row.items()}
