"""The redactor: every secret of the configuration, and whatever looks like a token."""

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.control.ports import TaskOrder
from calve.model.process import ProcessId
from calve.wire.logs import MASK, Redactor, secrets_of

CANARY = "canary-7f3a"


@pytest.mark.parametrize(
    "text",
    [
        "calve_local_" + "aB3-_" * 9,
        "Authorization: Bearer canary-7f3a-canary",
        "Authorization: Basic Y2FuYXJ5LTdmM2E=",
        "X-ClickHouse-Key: canary-7f3a",
        "postgresql://calve:canary-7f3a@db/calve",
        "https://host/x?password=canary-7f3a&user=u",
        "https://b.s3/x?X-Amz-Credential=canary-7f3a&X-Amz-Signature=canary-7f3a",
        '{"password": "canary-7f3a", "s3.secret-access-key": "canary-7f3a"}',
        "{'session_token': 'canary-7f3a'}",
        "password='canary-7f3a'",
        "https://hooks.slack.com/services/T0/B0/canary-7f3a",
        "eyJhbGciOiJIUzI1NiJ9.canary-7f3a.canary-7f3a",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-canary-7f3a-1",
        "-----BEGIN RSA PRIVATE KEY-----\ncanary-7f3a\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncanary-7f3a",
    ],
)
def test_what_looks_like_a_token_is_masked(text: str) -> None:
    shown = Redactor()(f"before {text} after")
    assert MASK in shown and shown.startswith("before ")
    for secret in (CANARY, "aB3-_aB3", "Y2FuYXJ5", "AKIAIOSFODNN7EXAMPLE"):
        assert secret not in shown


@pytest.mark.parametrize(
    "piece", ["a", "eyJ-", "token", "password=", "://a:", "Bearer ", "calve_a_", "-----BEGIN "]
)
def test_a_long_text_is_looked_through_in_no_time(piece: str) -> None:
    started = time.process_time()
    Redactor(["canary"])(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "process k7d2mqx9rftwa, task 3: attempt 1 failed (1 of 5): token_expired: the catalog said 401",
        "the token of this host is in /srv/calve/calve.token",
        "calve serves http://127.0.0.1:8180; Ctrl-C stops it",
        "GET /v1/tokens 200 3 ms from 127.0.0.1 by alice, request 0123456789abcdef",
        "s3://bucket/data/part-0.parquet and catalog:lake answer again",
        "basic checks passed, basic authentication failed, the bearer credentials are missing",
    ],
)
def test_what_does_not_is_left_as_it_is(text: str) -> None:
    assert Redactor(["canary-7f3a", "k9"])(text) == text


def test_every_secret_is_masked_however_it_is_spelled() -> None:
    quoted = 'quo"te\\d'
    redact = Redactor([quoted, "canary", "canary-longer", "two\nlines", "ab"])
    text = f"{quoted} {json.dumps(quoted)} {quoted!r} canary-longer canary two lines ab abacus"
    assert redact(text) == f"{MASK} \"{MASK}\" '{MASK}' {MASK} {MASK} {MASK} {MASK} {MASK} abacus"


def test_the_secrets_of_a_configuration_are_known_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("of-the-file\n")
    (tmp_path / "calve.toml").write_text(
        """
[source.main]
url = "http://u:in%20the%20url@host:8123"
password_file = "password"
[store]
url = "postgresql://calve:of-the-store@db/calve?sslpassword=of-the-query"
[catalog.lake]
type = "rest"
uri = "http://host"
credential = "of-the-catalog"
token-refresh-enabled = "true"
"s3.secret-access-key" = "of-the-storage"
[catalog.lake.auth]
type = "oauth2"
oauth2 = { client_secret = "of-the-auth" }
[backup]
encryption_key = "first-key\\nsecond-key"
[notify.ops]
url = "https://hooks.example.com/of-the-webhook"
[ping.nightly]
success = "https://ping.example.com/?key=of-the-ping"
"""
    )
    environ = {"CALVE_CATALOG__LAKE__TOKEN": "of-the-environment"}
    config = load_config(tmp_path / "calve.toml", environ=environ)
    redact = Redactor(config.secrets)
    for secret in (
        "of-the-file", "in%20the%20url", "in the url", "of-the-store", "of-the-query", "of-the-catalog",
        "of-the-storage", "of-the-auth", "first-key", "second-key", "of-the-environment",
        "of-the-webhook", "https://hooks.example.com/of-the-webhook", "key=of-the-ping",
    ):  # fmt: skip
        assert redact(f"<{secret}>") == f"<{MASK}>", secret
    assert redact("it is true") == "it is true"
    assert "of-the-file" not in repr(config)


def test_a_payload_tells_its_secrets() -> None:
    payload = {"access": {"password": "a1", "user": "u"}, "files": [{"s3.session-token": "b2"}], "rows": 3}
    assert secrets_of(payload) == ["a1", "b2"]


@pytest.mark.programs
def test_a_task_that_crashes_on_an_executor_is_in_its_log_without_the_secrets_of_its_payload() -> None:
    program = (
        "from calve.control.ports import TaskOrder\n"
        "from calve.spark.executor import execute\n"
        "from calve.wire import logs\n"
        "import json\n"
        "payload = json.dumps({'password': 'canary-7f3a'})\n"
        "order = TaskOrder(process_id='p', number=3, attempt=2, function='json:loads', payload='no JSON canary-7f3a')\n"
        "logs.start_on_executor(payload)\n"
        "with logs.bound(process=order.process_id, task=order.number, attempt=order.attempt):\n"
        "    print(json.dumps(execute(order)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["error"]["code"] == "task_crashed"
    (line,) = [json.loads(text) for text in done.stderr.splitlines()]
    assert (line["process"], line["task"], line["attempt"], line["level"]) == ("p", 3, 2, "warning")
    assert "JSONDecodeError" in line["error"]["traceback"] and CANARY not in done.stderr


def test_a_payload_is_not_in_what_is_shown_of_an_order() -> None:
    order = TaskOrder(process_id=ProcessId("p"), number=0, attempt=1, function="m:f", payload=CANARY)
    logging.getLogger("calve").debug("%s", order)
    assert CANARY not in repr(order)
