"""The front for today's engine speaks ClickHouse's HTTP protocol well enough for its clients."""

import base64
import gzip
import http.client
import json
import threading
import urllib.parse
from collections.abc import Iterator

import clickhouse_connect
import pytest

from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser, clickhouse_front

pytestmark = pytest.mark.services
USERS = {
    "default": FrontUser(password="secret"),
    "reader": FrontUser(password="secret", readonly=1),
    "selecter": FrontUser(password="secret", select_only=True),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseFront]:
    with clickhouse_front(
        tmp_path_factory.mktemp("front"), FrontOptions(users=USERS, timezone="Asia/Tokyo")
    ) as started:
        yield started


class Answer:
    """Status, headers and whole body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    front: ClickHouseFront,
    body: bytes | str = b"",
    *,
    method: str = "POST",
    user: str = "default",
    password: str = "secret",
    headers: dict[str, str] | None = None,
    **parameters: str,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    try:
        connection.request(
            method,
            "/?" + urllib.parse.urlencode(parameters),
            body.encode() if isinstance(body, str) else body,
            {"X-ClickHouse-User": user, "X-ClickHouse-Key": password, **(headers or {})},
        )
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def test_ping(front: ClickHouseFront) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    connection.request("GET", "/ping")
    assert connection.getresponse().read() == b"Ok.\n"
    connection.close()


def test_a_query_comes_in_the_url_in_the_body_or_half_in_each(front: ClickHouseFront) -> None:
    assert ask(front, method="GET", query="SELECT 1").text == "1\n"
    assert ask(front, "SELECT 2").text == "2\n"
    assert ask(front, "3", query="SELECT").text == "3\n"


def test_a_get_may_not_write(front: ClickHouseFront) -> None:
    answer = ask(front, method="GET", query="CREATE TABLE t_get (a UInt8) ENGINE = Memory")
    assert (answer.headers["X-ClickHouse-Exception-Code"], answer.status) == ("164", 400)


@pytest.mark.parametrize("user, password", [("default", "wrong"), ("nobody", "secret"), ("default", "")])
def test_wrong_credentials_are_refused(front: ClickHouseFront, user: str, password: str) -> None:
    answer = ask(front, "SELECT 1", user=user, password=password)
    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (403, "516")


def test_basic_authorization_is_understood(front: ClickHouseFront) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    token = base64.b64encode(b"default:secret").decode()
    connection.request("GET", "/?query=SELECT+1", headers={"Authorization": f"Basic {token}"})
    assert connection.getresponse().read() == b"1\n"
    connection.close()


def test_a_read_only_user_changes_nothing(front: ClickHouseFront) -> None:
    assert ask(front, "SELECT 1", user="reader").text == "1\n"
    assert ask(front, "CREATE DATABASE no", user="reader").headers["X-ClickHouse-Exception-Code"] == "164"
    assert (
        ask(front, "SELECT 1", user="reader", max_threads="3").headers["X-ClickHouse-Exception-Code"] == "164"
    )
    assert ask(front, "CREATE DATABASE no", user="selecter").headers["X-ClickHouse-Exception-Code"] == "497"


def test_formats_by_parameter_header_or_clause(front: ClickHouseFront) -> None:
    assert json.loads(ask(front, "SELECT 1 AS a", default_format="JSONEachRow").text) == {"a": 1}
    answer = ask(front, "SELECT 1 AS a", headers={"X-ClickHouse-Format": "CSVWithNames"})
    assert answer.text == '"a"\n1\n'
    answer = ask(front, "SELECT 1 AS a FORMAT TSVWithNames", default_format="JSON")
    assert (answer.text, answer.headers["X-ClickHouse-Format"]) == ("a\n1\n", "TSVWithNames")


def test_settings_last_for_one_request(front: ClickHouseFront) -> None:
    assert ask(front, "SELECT getSetting('max_threads')", max_threads="7").text == "7\n"
    assert all(ask(front, "SELECT getSetting('max_threads')").text != "7\n" for _ in range(5))


def test_parameters_and_the_database(front: ClickHouseFront) -> None:
    assert ask(front, "SELECT {x:UInt8} + 1", param_x="41").text == "42\n"
    assert ask(front, "SELECT currentDatabase()", database="system").text == "system\n"
    assert ask(front, "SELECT currentDatabase()").text == "default\n"


def test_a_session_keeps_its_state(front: ClickHouseFront) -> None:
    assert ask(front, "SET max_threads = 9", session_id="mine").status == 200
    assert ask(front, "SELECT getSetting('max_threads')", session_id="mine").text == "9\n"
    assert ask(front, "SELECT getSetting('max_threads')", session_id="other").text != "9\n"


def test_the_zone_is_the_server_s(front: ClickHouseFront) -> None:
    answer = ask(front, "SELECT timezone(), toString(toDateTime(0))")
    assert (answer.text, answer.headers["X-ClickHouse-Timezone"]) == (
        "Asia/Tokyo\t1970-01-01 09:00:00\n",
        "Asia/Tokyo",
    )


def test_data_is_inserted_from_the_body(front: ClickHouseFront) -> None:
    ask(front, "CREATE TABLE inserted (a UInt64, s String) ENGINE = Memory")
    ask(front, b"1\tx\n2\ty;z\n", query="INSERT INTO inserted FORMAT TSV")
    ask(front, "INSERT INTO inserted FORMAT JSONEachRow\n" + '{"a": 3, "s": "FORMAT"}')
    ask(front, "INSERT INTO inserted VALUES (4, 'v')")
    ask(
        front,
        gzip.compress(b"5,z\n"),
        query="INSERT INTO inserted FORMAT CSV",
        headers={"Content-Encoding": "gzip"},
    )
    native = ask(front, "SELECT toUInt64(6) AS a, 'n' AS s FORMAT Native").body
    ask(front, native, query="INSERT INTO inserted FORMAT Native")
    assert ask(
        front, "SELECT groupArray(a), groupArray(s) FROM (SELECT * FROM inserted ORDER BY a)"
    ).text == ("[1,2,3,4,5,6]\t['x','y;z','FORMAT','v','z','n']\n")


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "lz4", "br", "deflate"])
def test_answers_are_compressed_where_it_is_asked_for(front: ClickHouseFront, encoding: str) -> None:
    from support.front_compression import decompressed

    answer = ask(
        front,
        "SELECT number FROM numbers(100000)",
        enable_http_compression="1",
        headers={"Accept-Encoding": encoding},
    )
    assert answer.headers["Content-Encoding"] == encoding
    assert decompressed(answer.body, encoding).count(b"\n") == 100_000
    assert len(answer.body) < 500_000


def test_an_error_before_the_first_byte_has_its_status(front: ClickHouseFront) -> None:
    answer = ask(front, "SELECT * FROM nowhere")
    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (404, "60")
    assert answer.text.startswith("Code: 60. DB::Exception: ")


def test_an_error_in_mid_stream_cuts_the_body_and_is_tagged(front: ClickHouseFront) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    connection.request(
        "POST",
        "/",
        b"SELECT throwIf(number = 2000000) FROM numbers(3000000)",
        {"X-ClickHouse-User": "default", "X-ClickHouse-Key": "secret"},
    )
    answer = connection.getresponse()
    assert answer.status == 200
    tag = answer.getheader("X-ClickHouse-Exception-Tag")
    assert tag is not None and len(tag) == 16
    with pytest.raises(http.client.IncompleteRead) as cut:
        answer.read()
    assert f"__exception__\r\n{tag}\r\nCode: 395. DB::Exception".encode() in cut.value.partial
    assert cut.value.partial.endswith(f" {tag}\r\n__exception__\r\n".encode())
    connection.close()


def test_a_query_is_killed_by_its_id_while_others_run_beside_it(front: ClickHouseFront) -> None:
    answers: list[Answer] = []
    query = "SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))"
    thread = threading.Thread(
        target=lambda: answers.append(ask(front, query, query_id="slow", wait_end_of_query="1"))
    )
    thread.start()
    while thread.is_alive():
        ask(front, "KILL QUERY WHERE query_id = 'slow' SYNC")
    thread.join()
    assert (answers[0].status, answers[0].headers["X-ClickHouse-Exception-Code"]) == (500, "394")


def test_it_has_what_it_had_after_a_kill(front: ClickHouseFront) -> None:
    ask(front, "CREATE DATABASE kept")
    ask(front, "CREATE TABLE kept.t (a UInt8) ENGINE = MergeTree ORDER BY a")
    ask(front, "INSERT INTO kept.t VALUES (1)")
    port = front.port
    front.kill()
    front.start()
    assert front.port == port
    assert ask(front, "SELECT count() FROM kept.t").text == "1\n"


def test_clickhouse_connect_can_use_it(front: ClickHouseFront) -> None:
    client = clickhouse_connect.get_client(
        host="127.0.0.1", port=front.port, username="default", password="secret"
    )
    client.command("CREATE TABLE connected (a UInt64, s Nullable(String)) ENGINE = MergeTree ORDER BY a")
    client.insert("connected", [[1, "x"], [2, None]], column_names=["a", "s"])
    assert client.query("SELECT * FROM connected ORDER BY a").result_rows == [(1, "x"), (2, None)]
    assert str(client.server_tz) == "Asia/Tokyo"
    with pytest.raises(clickhouse_connect.driver.exceptions.StreamFailureError, match="throwIf"):
        found = client.query(
            "SELECT throwIf(number = 2000000) FROM numbers(3000000)", settings={"wait_end_of_query": 0}
        )
        assert found.result_rows
    client.close()
