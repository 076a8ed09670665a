"""The API is asked everything that its own document allows, and much that it does not."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from calve.app.verbs.roles import VERBS, Reach
from calve.http.routes import ROUTES
from support.served import Served

pytestmark = pytest.mark.programs

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize(
    ("phases", "examples"), [("fuzzing", 3), pytest.param("coverage,fuzzing", 50, marks=pytest.mark.long)]
)
def test_nothing_that_is_asked_gets_a_500_or_an_answer_that_is_not_documented(
    fuzzed: Served, tmp_path: Path, phases: str, examples: int
) -> None:
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{fuzzed.url}/v1/openapi.json"]
    options = [
        "--phases",
        phases,
        "--checks",
        CHECKS,
        "-n",
        str(examples),
        "--seed",
        "1",
        "--suppress-health-check",
        "all",
    ]
    token = ["--header", f"Authorization: Bearer {fuzzed.token}", "--request-timeout", "20"]
    done = subprocess.run(
        [*map(str, command), *options, *token], cwd=tmp_path, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"Tested: {len(ROUTES) + 3}" in done.stdout


def test_every_verb_that_is_served_has_a_route(reader: httpx.Client) -> None:
    document = reader.get("/v1/openapi.json").json()
    routed = {route.verb for route in ROUTES}
    over_verbs_only = {
        "now",
        "find",
        "has_workers",
        "notes",
        "outages",
        "processes",
        "keys",
        "seen",
    }  # what a command line needs
    served = {verb.name for verb in VERBS.values() if verb.reach is not Reach.HERE}
    assert served - routed == over_verbs_only
    listed = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert routed <= listed


def test_a_problem_says_what_the_command_line_says(reader: httpx.Client) -> None:
    answer = reader.get("/v1/processes/none")
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"], body["exit_code"]) == (404, "process_not_found", 3)
    assert body["hint"] == "calve ps --all"
    assert body["request_id"] == answer.headers["x-request-id"]


def test_an_option_that_there_is_not_is_refused_and_the_nearest_is_named(admin: httpx.Client) -> None:
    wrong = [
        admin.get("/v1/processes?state=RUNNING"),
        admin.post("/v1/verbs/page", json={"state": "RUNNING"}),
        admin.get("/v1/processes/none/tasks?nonsense=1"),
        admin.post("/v1/exports", json={"table": "db.t", "too": "lake.ns.t", "to": "lake.ns.t"}),
        admin.get("/v1/tables/exports.jsonl?limits=1"),
        admin.get("/v1/workers?a=1"),
    ]
    assert [(one.status_code, one.json()["code"]) for one in wrong] == [(400, "unknown_option")] * len(wrong)
    assert [one.json()["hint"] for one in wrong] == [
        "did you mean states?",
        "did you mean states?",
        "there are first, limit",
        "did you mean to?",
        "did you mean limit?",
        "there are none",
    ]


def test_a_wrong_value_is_not_told_again(admin: httpx.Client) -> None:
    for body in ({"role": "viewer", "expires": ["canary"]}, {"role": "canary"}, {"canary_name": "canary"}):
        answer = admin.post("/v1/tokens", json=body)
        assert answer.status_code == 400
        assert "canary" not in answer.text.replace("canary_name", "")
    answer = admin.post("/v1/tokens", content=b'{"role": ' + b"[" * 100_000)
    assert answer.status_code == 400


def test_texts_that_no_store_keeps_are_refused_and_said(admin: httpx.Client) -> None:
    for body in (b'{"table": "\\ud800"}', b'{"table": "a\\u0000b"}'):
        for path in ("/v1/verbs/page", "/v1/verbs/partitions"):
            answer = admin.post(path, content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_option")


def test_a_login_that_cannot_be_read_is_refused(served: Served) -> None:
    with served.client("") as client:
        answer = client.get("/v1/workers", headers={"Authorization": b"Basic \xff\xfe"})  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["code"]) == (401, "token_wrong")


def test_a_message_that_repeats_what_was_asked_is_bounded(admin: httpx.Client) -> None:
    answer = admin.get("/v1/processes/" + "a" * 20_000)
    assert answer.status_code == 404 and len(answer.content) < 10_000
