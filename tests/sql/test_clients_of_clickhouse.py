"""Real clients over ClickHouse's HTTP interface: clickhouse-connect, and requests as curl sends them."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from calve.cli.main import run
from calve.http.clickhouse import StatementRequest, answer
from calve.model.limits import Limits
from calve.sql.execution import Sql, cages
from calve.sql.tables import TABLES
from sql.conversation import PASSWORD, conversation
from sql.front import DONE, OPERATOR, VIEWER, Front

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def port(front: Front) -> Iterator[int]:
    with conversation(front.sql, OPERATOR) as port:
        yield port


@pytest.fixture(scope="module")
def client(port: int) -> Iterator[Client]:
    client = clickhouse_connect.get_client(host="127.0.0.1", port=port, username="any", password="token")
    yield client
    client.close()


def test_clickhouse_connect_queries(client: Client, front: Front) -> None:
    assert str(client.server_tz) == "UTC"
    found = client.query(
        "SELECT id, rows, created_at, partitions FROM calve.processes WHERE id = %(id)s", {"id": front.done}
    )
    assert found.column_names == ("id", "rows", "created_at", "partitions")
    [(process, rows, _, partitions)] = found.result_rows
    assert (process, rows, partitions) == (front.done, 25, [DONE])
    assert client.ping()


@pytest.mark.parametrize("name", TABLES)
def test_clickhouse_connect_reads_every_column_type(client: Client, name: str) -> None:
    found = client.query(f"SELECT * FROM {name}")
    columns = [column for column, _ in TABLES[name].schema.columns]
    assert list(found.column_names) == (
        columns if found.result_rows else []
    )  # Native says nothing of no rows


def test_clickhouse_connect_commands(client: Client) -> None:
    assert client.command("SELECT 1") == 1
    client.command(
        "ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.connect",
        settings={"export_merge_tree_partition_force_export": 1},
    )
    where = "destination_table = 'ns.connect' AND status = 'PENDING'"
    assert client.query(f"SELECT count() FROM system.distributed_exports WHERE {where}").result_rows == [(1,)]
    killed = client.command(f"KILL EXPORT PARTITION WHERE {where}")
    assert killed[:3] == ["waiting", "db", "t"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM calve.nope", 60),
        ("SELECT file('/etc/passwd')", 46),
        ("SELECT nope FROM calve.processes", 47),
        ("SELECT 1 +", 62),
        ("CREATE TABLE x (a Int8) ENGINE = Memory", 48),
    ],
)
def test_clickhouse_connect_shows_our_errors_with_their_codes(client: Client, text: str, code: int) -> None:
    with pytest.raises(DatabaseError, match=rf"code: {code}\b"):
        client.query(text)


def test_clickhouse_connect_cannot_insert(client: Client) -> None:
    with pytest.raises(DatabaseError):
        client.insert("calve.processes", [["x"]], column_names=["id"], column_type_names=["String"])


def test_a_client_connects_while_every_cage_is_taken(front: Front, port: int, client: Client) -> None:
    """Its greetings were answered before, so they need none."""
    with front.sql.cages.take("a"), front.sql.cages.take("b"):
        again = clickhouse_connect.get_client(host="127.0.0.1", port=port, username="any", password="token")
        with pytest.raises(DatabaseError, match="code: 202"):
            again.query("SELECT count() FROM calve.processes")
        again.close()


_AS_SQLALCHEMY = {"database": "default", "default_format": "TabSeparatedWithNamesAndTypes"}
_AS_CONNECT = {
    "wait_end_of_query": "1",
    "database": "default",
    "session_id": "e1e7facb-f113-4e16-92ad-1e513daaeeb1",
}
# Recorded from clients that tests do not install: what they send to connect, and what people do with them first.
RECORDED = {
    "clickhouse-sqlalchemy 0.3.2": [
        (_AS_SQLALCHEMY, "select version()", b"version()\nString\n"),
        (_AS_SQLALCHEMY, "select currentDatabase()", b"currentDatabase()\nString\ncalve\n"),
        (_AS_SQLALCHEMY, "SHOW DATABASES", b"name\nString\ncalve\nsystem\n"),
        (_AS_SQLALCHEMY, 'EXISTS TABLE "calve"."processes"', b"result\nUInt8\n1\n"),
        (_AS_SQLALCHEMY, 'DESCRIBE TABLE "calve"."processes"', b"name\ttype\tdefault_type\t"),
    ],
    "apache-airflow-providers-clickhousedb 1.0.1": [
        ({}, "SELECT version(), timezone()", b"2"),
        (_AS_CONNECT, "SELECT name, value, readonly FROM system.settings LIMIT 10000\n FORMAT Native", b""),
        (
            {**_AS_CONNECT, "client_protocol_version": "54405"},
            "SELECT 1 AS check\n FORMAT Native",
            b"\x01\x01\x05check",
        ),
        (_AS_CONNECT, "SELECT 1\n FORMAT Native", b"\x01\x01\x011"),
    ],
}


@pytest.mark.parametrize("client", RECORDED)
def test_what_other_clients_were_seen_to_send_is_answered(front: Front, client: str) -> None:
    for parameters, text, begins in RECORDED[client]:
        asked = StatementRequest(
            method="POST", parameters=list(parameters.items()), headers={}, body=text.encode()
        )
        answered = answer(front.sql, VIEWER, asked)
        assert (answered.status, answered.body[: len(begins)]) == (200, begins), text


def ask(port: int, path: str = "/", body: bytes | None = None, **headers: str) -> tuple[int, Message, str]:
    given = {"Authorization": PASSWORD, **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=given)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def query(**parameters: object) -> str:
    return "/?" + urllib.parse.urlencode(parameters)


def test_curl_as_people_type_it(port: int) -> None:
    def curl(*given: str) -> str:
        return subprocess.run(["curl", "-sS", *given], check=True, capture_output=True, text=True).stdout

    url = f"http://127.0.0.1:{port}/"
    assert curl("-u", "any:token", url, "-d", "SELECT 1 AS a FORMAT JSONEachRow") == '{"a":1}\n'
    assert curl("-u", "any:token", "-G", url, "--data-urlencode", "query=SELECT 2") == "2\n"
    assert curl(url + "ping") == "Ok.\n"
    assert curl(url, "-d", "SELECT 1").startswith("Code: 516. DB::Exception: no token")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(port: int) -> None:
    status, headers, _ = ask(port, body=b"x" * (1 << 20))
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (413, "62")


def test_formats_come_from_the_statement_the_header_or_the_url(port: int) -> None:
    assert ask(port, body=b"SELECT 1 AS a")[2] == "1\n"
    assert ask(port, body=b"SELECT 1 AS a FORMAT CSVWithNames")[2] == '"a"\n1\n'
    assert json.loads(ask(port, query(default_format="JSONEachRow"), b"SELECT 1 AS a")[2]) == {"a": 1}
    status, headers, text = ask(port, query(query="SELECT 1 AS a"), **{"X-ClickHouse-Format": "JSONCompact"})
    assert (status, json.loads(text)["data"]) == (200, [[1]])
    assert headers["X-ClickHouse-Format"] == "JSONCompact"
    assert headers["Content-Type"].startswith("application/json")
    assert headers["X-ClickHouse-Timezone"] == "UTC"


def test_the_statement_is_the_query_and_then_the_body(port: int) -> None:
    assert ask(port, query(query="SELECT 1,"), b"2")[2] == "1\t2\n"


def test_an_alter_answers_nothing_and_names_its_processes_in_a_header(port: int) -> None:
    text = b"ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.header"
    status, headers, body = ask(port, query(query_id="q1"), text)
    assert (status, body, headers["X-ClickHouse-Query-Id"]) == (200, "", "q1")
    process = headers["X-Calve-Processes"]
    _, again, _ = ask(port, query(query_id="q2"), text)
    assert (again["X-Calve-Processes"], again["X-Calve-Joined"]) == (process, process)


def test_a_query_id_is_the_key_of_a_submit(port: int, front: Front) -> None:
    """The same statement sent again, as after a lost answer, has the first answer; another one is refused."""
    text = b"ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.key, EXPORT PART '3_4_4_0' TO TABLE lake.ns.key"
    _, first, _ = ask(port, query(query_id="once"), text)
    processes = first["X-Calve-Processes"]
    assert len(processes.split(",")) == 2
    front.run("KILL EXPORT PARTITION WHERE destination_table = 'ns.key'")
    _, again, _ = ask(port, query(query_id="once"), text)
    assert again["X-Calve-Processes"] == processes
    status, headers, _ = ask(port, query(query_id="once"), text.replace(b"ns.key", b"ns.other"))
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (422, "36")


def test_a_query_id_is_in_the_tables_where_people_look_for_it(port: int, front: Front) -> None:
    text = b"ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE lake.ns.%s, EXPORT PARTITION ID '3' TO TABLE lake.ns.more"
    _, by_header, _ = ask(port, body=text % b"seen", **{"X-ClickHouse-Query-Id": "nightly-7"})
    assert by_header["X-ClickHouse-Query-Id"] == "nightly-7"
    _, made, _ = ask(port, body=text.split(b",")[0] % b"made")
    found = front.rows(
        "SELECT query_id, groupUniqArray(transaction_id) AS ids FROM system.replicated_partition_exports "
        "WHERE destination_table IN ('ns.seen', 'ns.more', 'ns.made') GROUP BY query_id"
    )
    assert {row["query_id"]: sorted(row["ids"]) for row in found} == {
        "nightly-7": sorted(by_header["X-Calve-Processes"].split(",")),
        made["X-ClickHouse-Query-Id"]: [made["X-Calve-Processes"]],
    }
    killed = front.run("KILL EXPORT PARTITION WHERE query_id = 'nightly-7'")
    assert set(killed.processes) == set(by_header["X-Calve-Processes"].split(","))


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (query(query="KILL EXPORT PARTITION WHERE 1"), None, 405, "164"),
        (query(database="other"), b"SELECT 1", 404, "81"),
        (query(param_x="1"), b"SELECT {x:Int8}", 400, "115"),
        (query(no_such_setting="1"), b"SELECT 1", 400, "115"),
        (query(compress="1"), b"SELECT 1", 400, "115"),
        (query(user="any", password="canary"), b"SELECT 1", 400, "115"),
        (query(max_execution_time="soon"), b"SELECT 1", 400, "115"),
        (query(query_id="a\nb"), b"SELECT 1", 400, "62"),
        (query(query_id="a#1"), b"SELECT 1", 400, "62"),
        ("/?database=&database=", b"SELECT 1", 400, "62"),
        ("/", b"SELECT '\xff'", 400, "62"),
        ("/", b"", 400, "62"),
        ("/", b"SELECT 1 FORMAT Nope", 400, "73"),
        ("/", b"SELECT '" + b"x" * 70_000 + b"'", 413, "62"),
        ("/", b"SELECT 1 INTO OUTFILE 'x'", 403, "392"),
        ("/", b"ALTER TABLE db.t EXPORT PARTITION ID 'no' TO TABLE lake.ns.t", 404, "36"),
    ],
)
def test_what_is_wrong_is_answered_as_clickhouse_does(
    port: int, path: str, body: bytes | None, status: int, code: str
) -> None:
    found, headers, text = ask(port, path, body)
    assert (found, headers["X-ClickHouse-Exception-Code"]) == (status, code)
    assert text.startswith(f"Code: {code}. DB::Exception: ")
    assert "canary" not in text


def test_a_viewer_is_denied_with_the_code_of_access(front: Front) -> None:
    for text in (
        b"ALTER TABLE db.t EXPORT PARTITION ALL TO TABLE lake.ns.t",
        b"KILL EXPORT PARTITION WHERE 1",
    ):
        denied = answer(
            front.sql, VIEWER, StatementRequest(method="POST", parameters=(), headers={}, body=text)
        )
        assert (denied.status, denied.headers["X-ClickHouse-Exception-Code"]) == (403, "497")


def test_the_command_over_a_server(
    port: int, front: Front, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same answers, errors and exit codes as here."""
    monkeypatch.setenv("CALVE_SERVER", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("CALVE_TOKEN", "token")
    monkeypatch.chdir(front.place.folder.parent)
    assert run(["sql", "SELECT 1 AS a FORMAT CSVWithNames"]) == 0
    assert capfd.readouterr().out == '"a"\n1\n'
    assert run(["sql", "SELECT file('x')"]) == 2
    assert "error: function file() is not allowed in a SELECT here\nhint: " in capfd.readouterr().err
    assert run(["sql", "ALTER TABLE db.t EXPORT PARTITION ID 'no' TO TABLE lake.ns.t"]) == 3
    monkeypatch.setenv("CALVE_TOKEN", "wrong")
    assert run(["sql", "SELECT 1"]) == 1
    assert "no token" in capfd.readouterr().err


def test_a_select_ends_with_the_connection_that_asked_for_it(front: Front) -> None:
    """As after Ctrl-C; else the caller's next one would be refused until the first ends by its limit, here an hour."""
    held = cages(Limits(), required=True)
    patient = Sql(front.sql.desk, held, Limits(select_seconds=3600))
    slow = b"SELECT count() FROM (SELECT arrayJoin(range(300000)) AS a) AS x, (SELECT arrayJoin(range(300000)) AS b) AS y"
    try:
        with conversation(patient, OPERATOR) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: {PASSWORD}\r\nContent-Length: {len(slow)}\r\n\r\n"
                connection.sendall(head.encode() + slow)
                assert soon(lambda: bool(held.taken))
                assert ask(port, "/", b"SELECT 1")[0] == 503
            assert soon(lambda: ask(port, "/", b"SELECT 1")[0] == 200)
    finally:
        held.close()


def soon(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
