"""`/backup/*`: what jobs send to clickhouse-backup, and the shapes that they read."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from support.served import Served

pytestmark = pytest.mark.programs

ROW = {"command", "start", "finish", "status", "error", "operation_id"}


@pytest.fixture(scope="module")
def job(served: Served) -> Iterator[httpx.Client]:
    """As a job of cron has it: Basic authorization, the password is the token."""
    with served.client() as admin:
        token = admin.post("/v1/tokens", json={"role": "operator"}).json()["token"]
    with httpx.Client(base_url=served.url, auth=("backup", token), trust_env=False, timeout=60) as client:
        yield client


def lines(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_create_is_acknowledged_and_its_status_can_be_asked(job: httpx.Client) -> None:
    answer = job.post("/backup/create", params={"name": "nightly", "table": "db.*,other.t"})
    said = answer.json()
    assert answer.status_code == 201
    assert (said["status"], said["operation"], said["backup_name"]) == ("acknowledged", "create", "nightly")
    [row] = lines(job.get("/backup/status", params={"operationid": said["operation_id"]}))
    assert set(row) == ROW
    assert row["command"] == "create nightly --tables 'db.*,other.t'"
    assert row["status"] in ("in progress", "error")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row["start"])


def test_without_a_name_it_is_the_time_and_without_tables_all(job: httpx.Client) -> None:
    said = job.post("/backup/create_remote").json()
    assert said["operation"] == "create_remote"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d", said["backup_name"])
    [row] = lines(job.get("/backup/actions", params={"filter": said["backup_name"]}))
    assert row["command"] == f"create {said['backup_name']}"


def test_an_insert_into_its_table_of_actions(job: httpx.Client) -> None:
    body = b'{"command":"create_remote --tables=db.t weekly","start":"1970-01-01 00:00:00"}\n{"command":"create monthly"}\n'
    said = lines(job.post("/backup/actions", content=body))
    assert [one["status"] for one in said] == ["acknowledged"] * 2
    assert [one["operation"] for one in said] == [
        "create --tables=db.t weekly",
        "create monthly",
    ]
    rows = lines(job.get("/backup/actions", params={"last": "2"}))
    assert [one["operation_id"] for one in rows] == [one["operation_id"] for one in said]


def test_lists_have_its_form(job: httpx.Client) -> None:
    assert lines(job.get("/backup/list/local")) == []
    for path in ("/backup/list", "/backup/list/remote"):
        assert lines(job.get(path)) == []
    assert "calve" in job.get("/backup/version").json()["version"]


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("POST", "/backup/restore/nightly", 400, "/v1/backups/NAME/restore"),
        ("POST", "/backup/delete/remote/nightly", 400, "/v1/backups/NAME"),
        ("POST", "/backup/create?name=x&callback=http://203.0.113.1/", 400, "callback"),
        ("POST", "/backup/create?name=x&schema=true", 400, "schema_only"),
        ("POST", "/backup/create?name=x&nonsense=canary", 400, "nonsense"),
        ("POST", "/backup/create?name=../x", 400, "invalid backup name"),
        ("POST", "/backup/create?name=night%20ly&table=db.t", 400, "invalid backup name"),
        ("POST", "/backup/create_remote?name=-rf", 400, "unknown option"),
        ("POST", "/backup/upload/nosuchbackup", 404, "nosuchbackup"),
        ("GET", "/backup/nonsense", 404, "http-api.md"),
        ("GET", "/backup/list/nonsense", 400, "local or remote"),
    ],
)
def test_what_is_not_done_is_refused_with_what_does_it(
    job: httpx.Client, method: str, path: str, status: int, says: str
) -> None:
    answer = job.request(method, path)
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["status"] == "error"
    assert says in body["error"]
    assert "canary" not in answer.text


def test_options_that_are_off_are_as_if_they_were_not_there(job: httpx.Client) -> None:
    answer = job.post("/backup/create", params={"name": "off", "schema": "false", "rbac": "0"})
    assert answer.status_code == 201


def test_roles_are_those_of_the_verbs(served: Served) -> None:
    with served.client("") as anybody:
        assert anybody.get("/backup/list/local").status_code == 200
        for answer in (
            anybody.post("/backup/create", params={"name": "x"}),
            anybody.post("/backup/actions", content='{"command": "create x"}'),
        ):
            assert (answer.status_code, answer.json()["status"]) == (403, "error")
    with served.client("wrong") as wrong:
        answer = wrong.get("/backup/list")
        assert (answer.status_code, answer.json()["status"]) == (401, "error")
        assert "Basic" in answer.headers["www-authenticate"]
