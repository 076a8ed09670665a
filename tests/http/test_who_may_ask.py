"""Tokens and roles, from outside."""

import base64
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.served import Served

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    with served.client() as admin:
        return {
            role: admin.post("/v1/tokens", json={"role": role, "name": f"{role}-{id(served)}"}).json()[
                "token"
            ]
            for role in ("viewer", "operator", "admin")
        }


CASES = [
    ("GET", "/v1/processes", None, "viewer"),
    ("GET", "/v1/config", None, "operator"),
    ("GET", "/v1/tokens", None, "admin"),
    ("POST", "/v1/processes/cancel", {"ids": ["none"]}, "operator"),
    ("POST", "/v1/exports", {"table": "db.t", "to": "lake.a.b", "all": True, "allow_shrink": True}, "admin"),
    ("DELETE", "/v1/backups/none", None, "admin"),
    ("POST", "/v1/backups/prune", {"dry_run": True}, "viewer"),
    ("POST", "/v1/verbs/cancel", {"ids": ["none"]}, "operator"),
    ("POST", "/v1/verbs/token_list", {}, "admin"),
]


@pytest.mark.parametrize(("method", "path", "body", "needed"), CASES)
def test_a_role_may_do_what_its_verbs_say_and_no_more(
    served: Served, tokens: dict[str, str], method: str, path: str, body: object, needed: str
) -> None:
    order = ("viewer", "operator", "admin")
    for role in order:
        with served.client(tokens[role]) as client:
            status = client.request(method, path, json=body).status_code
        assert (status == 403) == (order.index(role) < order.index(needed)), (role, status)


def test_whoever_is_on_this_host_reads_without_a_token_and_changes_nothing(reader: httpx.Client) -> None:
    assert reader.get("/v1/workers").status_code == 200
    answer = reader.post("/v1/processes/cancel", json={"ids": ["x"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "role")


def test_a_wrong_token_is_refused_and_is_not_a_reader(served: Served, tokens: dict[str, str]) -> None:
    wrong = tokens["viewer"][:-1] + ("A" if tokens["viewer"][-1] != "A" else "B")
    for text in ("x", wrong, "calve_local_" + "A" * 43):
        with served.client(text) as client:
            answer = client.get("/v1/processes")
        assert (answer.status_code, answer.json()["code"]) == (401, "token_wrong")
        assert "Bearer" in answer.headers["www-authenticate"]
        assert text not in answer.text or text == "x"


def test_a_token_comes_in_any_of_the_headers_that_clients_use(served: Served, tokens: dict[str, str]) -> None:
    basic = base64.b64encode(f"anybody:{tokens['operator']}".encode()).decode()
    for headers in (
        {"Authorization": f"Basic {basic}"},
        {"Authorization": f"bearer {tokens['operator']}"},
        {"X-ClickHouse-User": "anybody", "X-ClickHouse-Key": tokens["operator"]},
    ):
        with served.client("") as client:
            assert client.get("/v1/config", headers=headers).status_code == 200
    with served.client("") as client:
        assert client.get("/v1/config", headers={"Authorization": "Basic ???"}).status_code == 401


def test_a_revoked_token_ends_within_seconds(served: Served, admin: httpx.Client) -> None:
    made = admin.post("/v1/tokens", json={"role": "viewer"}).json()
    assert admin.post("/v1/tokens/revoke", json={"names": [made["name"]]}).status_code == 200
    with served.client(made["token"]) as client:  # never seen before, so nothing is kept of it
        assert client.get("/v1/processes").status_code == 401


def test_changes_say_who_asked_for_them(served: Served, admin: httpx.Client) -> None:
    name = admin.post("/v1/tokens", json={"role": "viewer"}).json()["name"]
    listed = {one["name"]: one for one in admin.get("/v1/tokens").json()}
    assert listed[name]["created_by"] == "local"
    assert "token" not in listed[name]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--host", "0.0.0.0"], "there are no tokens"),
        (["--host", "192.0.2.1"], "cannot listen on"),
        (["--tls-cert", "missing.pem"], "missing.pem does not exist"),
    ],
)
def test_an_unsafe_address_is_not_served(tmp_path: Path, options: list[str], code: str) -> None:
    (tmp_path / "calve.toml").write_text("")
    command = [sys.executable, "-m", "calve.cli", "serve", "--port", "0", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert code in done.stderr
    assert "hint:" in done.stderr


def test_behind_a_proxy_reading_needs_a_token_that_is_not_guessed_and_the_hosts_own_does_not_count(
    tmp_path: Path,
) -> None:
    made = Served(tmp_path / "s", ["--behind-proxy"])
    try:
        forwarded = {"X-Forwarded-For": "10.0.0.1, 203.0.113.9"}
        with made.client("") as client:
            assert client.get("/v1/processes", headers=forwarded).status_code == 401
        with made.client() as client:
            assert client.get("/v1/processes", headers=forwarded).status_code == 401
            assert client.get("/v1/processes").status_code == 401
        assert "from 203.0.113.9" in made.log.read_text()
        with made.client("wrong") as client:
            many = [client.get("/v1/processes", headers=forwarded) for _ in range(20)]
            assert {one.status_code for one in many} == {401, 429}
            assert (
                many[-1].json()["code"] == "too_many_requests" and int(many[-1].headers["retry-after"]) >= 1
            )
            sql = client.post("/", content="SELECT 1", headers=forwarded)
            assert (sql.status_code, sql.headers["X-ClickHouse-Exception-Code"]) == (429, "202")
            assert client.get("/v1/processes").status_code == 401  # another address
    finally:
        made.close()
