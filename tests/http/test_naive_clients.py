"""What people type before they have read anything."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from calve.app.access import Gatekeeper
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.http.errands import Errands
from calve.http.guard import Guard, Rules
from calve.http.identity import Identities
from calve.http.routes import application
from calve.http.service import VerbService
from calve.http.store_threads import StoreThreads

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/json", ""])
def test_a_body_is_json_whatever_its_type_says(admin: httpx.Client, kind: str) -> None:
    """`curl -d` says that it is a form."""
    headers = {"Content-Type": kind} if kind else {}
    for path in ("/v1/processes/cancel", "/v1/verbs/cancel"):
        answer = admin.post(path, content='{"ids": ["none"]}', headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "process_not_found")
        for body, said in (("hello", "the body is not JSON"), ("[1]", "the body is not an object")):
            answer = admin.post(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["message"]) == (400, said)


def test_an_option_that_is_missing_or_unknown_is_named(admin: httpx.Client) -> None:
    for body, said in (({}, "ids is missing"), ({"ids": ["x"], "id": "x"}, "unknown option 'id'")):
        for path in ("/v1/processes/cancel", "/v1/verbs/cancel"):
            answer = admin.post(path, json=body)
            assert (answer.status_code, answer.json()["message"]) == (400, said)


@pytest.mark.parametrize("span", ["999999999d", "999999999w", "36501d", "-1d", "1y", ""])
def test_a_span_that_no_calendar_has_is_refused(admin: httpx.Client, span: str) -> None:
    answer = admin.post("/v1/tokens", json={"role": "viewer", "expires": span})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("text", ["cancel \0", "cancel \ud800", "cancel a\nb", "create \x1b[2J"])
def test_commands_that_cannot_be_shown_are_not_accepted(admin: httpx.Client, text: str) -> None:
    line = '{"command": "' + "".join(f"\\u{ord(sign):04x}" for sign in text) + '"}'
    for path in ("/v1/actions", "/backup/actions"):
        assert admin.post(path, content=line).status_code == 400


@pytest.mark.parametrize("path", ["/healthz", "/ping"])
def test_a_monitor_may_ask_without_wanting_an_answer(reader: httpx.Client, path: str) -> None:
    assert reader.head(path).status_code == 200


class Defective(Desk):
    def perform(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("canary")


async def ask_a_defect(calve: Calve) -> httpx.Response:
    threads = StoreThreads(answer_seconds=30.0)
    errands = Errands(at_once=1, per_service=1, keep_seconds=1.0, down_seconds=1.0)
    gate = Gatekeeper(calve.registry, local_token="", now=calve.now)
    service = VerbService(
        Defective(calve), Identities(gate, open_reading=True), threads, errands, answer_seconds=30.0
    )
    guard: Any = Guard(application(service, proof=str), Rules(hosts=frozenset({"testserver"})))
    transport = httpx.ASGITransport(app=guard, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.get("/v1/workers")
    finally:
        threads.close()
        errands.close()


def test_a_defect_is_a_problem_with_an_id_and_says_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "calve.toml").write_text("")
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as calve:
        answer = asyncio.run(ask_a_defect(calve))
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["code"] == "internal"
    assert "canary" not in answer.text
    assert answer.json()["request_id"] in caplog.text
    assert "ZeroDivisionError" in caplog.text
