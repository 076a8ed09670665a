"""The statements of ClickHouse's users at a real `calve serve`; what they do is tested in `tests/sql`."""

import clickhouse_connect
import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from support.served import Served

pytestmark = pytest.mark.programs


def test_clickhouse_connect_with_the_token_as_its_password(served: Served) -> None:
    at = httpx.URL(served.url)
    client = clickhouse_connect.get_client(host=at.host, port=at.port, username="any", password=served.token)
    assert client.ping()
    assert client.query("SELECT count() AS n FROM calve.processes").column_names == ("n",)
    with pytest.raises(DatabaseError, match="code: 46"):
        client.query("SELECT file('/etc/passwd')")
    with pytest.raises(DatabaseError, match="code: 36"):
        client.command("ALTER TABLE db.nothing EXPORT PARTITION ALL TO TABLE lake.ns.t")
    client.close()


def test_who_is_on_this_host_reads_without_a_token_and_changes_nothing(reader: httpx.Client) -> None:
    assert reader.get("/ping").text == "Ok.\n"
    read = reader.get("/", params={"query": "SELECT 1 AS a FORMAT JSONEachRow"})
    assert (read.status_code, read.json()) == (200, {"a": 1})
    denied = reader.post("/", content="SYSTEM STOP EXPORTS")
    assert (denied.status_code, denied.headers["X-ClickHouse-Exception-Code"]) == (403, "497")


def test_a_wrong_token_is_refused_as_clickhouse_does(served: Served) -> None:
    with served.client("calve_0123456789_" + "x" * 43) as client:
        refused = client.post("/", content="SELECT 1")
    assert (refused.status_code, refused.headers["X-ClickHouse-Exception-Code"]) == (401, "516")
    assert "WWW-Authenticate" in refused.headers


def test_stop_and_start_are_seen_by_the_api(admin: httpx.Client) -> None:
    assert admin.post("/", content="SYSTEM STOP EXPORTS db.t").status_code == 200
    [halt] = admin.get("/v1/halts").json()
    assert (halt["kind"], halt["source"], halt["who"]) == ("export", "main:db.t", "local")
    assert admin.post("/", content="SYSTEM START EXPORTS db.t").status_code == 200
    assert admin.get("/v1/halts").json() == []
    assert admin.get("/", params={"query": "SYSTEM STOP EXPORTS"}).status_code == 405
