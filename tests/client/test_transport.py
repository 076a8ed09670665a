"""HTTP to a server: answers that take their time, answers that are lost, errors as they were raised, and a token
that goes to nobody else."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from calve.app.token_file import hello, keep_token, make_token
from calve.app.verbs.roles import SUBMITS
from calve.client.transport import _ONCE, Transport, _is_loopback, given_token
from calve.model.errors import (
    CalveError,
    DeniedError,
    NotFoundError,
    PermanentError,
    RefusedError,
    TemporaryError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)

Answer = tuple[int, Any, dict[str, str]] | None  # None: the connection ends without one


@dataclass
class Peer:
    """A real HTTP server that answers as a test says, and remembers what it was asked."""

    url: str = ""
    port: int = 0
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def tokens(self) -> list[str]:
        return [headers["Authorization"] for _, headers, _ in self.asked if "Authorization" in headers]


@contextmanager
def serving(answer: Callable[[str, int], Answer]) -> Iterator[Peer]:
    """`answer` takes the path and how many requests came before."""
    peer = Peer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(json.loads(body) if self.path.startswith("/v1/") else body)

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, body: Any) -> None:
            peer.asked.append((self.path, dict(self.headers), body))
            given = answer(self.path, len(peer.asked) - 1)
            if given is None:
                self.close_connection = True
                return
            status, document, headers = given
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    peer.port = server.server_address[1]
    peer.url = f"http://127.0.0.1:{peer.port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def waited() -> list[float]:
    return []


@contextmanager
def talking(url: str, waited: list[float], **given: Any) -> Iterator[Transport]:
    with ExitStack() as stack:
        transport = Transport(url, sleep=waited.append, **given)
        stack.callback(transport.close)
        yield transport


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (202, {"status": "running"}),
        (429, {"code": "too_many_requests"}),
        (503, {"code": "store_slow", "outcome": "unknown"}),
        (503, {"code": "server_busy", "outcome": "not_applied"}),
    ],
)
def test_an_answer_that_takes_its_time_is_asked_for_again_with_the_same_key(
    waited: list[float], status: int, said: dict[str, str]
) -> None:
    """Also where we asked too often, or the server has too much to do."""

    def answer(_: str, before: int) -> Answer:
        return (status, said, {"Retry-After": "2"}) if before < 2 else (200, {"done": 1}, {})

    with serving(answer) as peer, talking(peer.url, waited) as transport:
        assert transport.call("export", {"table": "t"}) == {"done": 1}
    assert waited == [2.0, 2.0]
    assert [(path, body) for path, _, body in peer.asked] == [("/v1/verbs/export", {"table": "t"})] * 3
    assert len({headers["Idempotency-Key"] for _, headers, _ in peer.asked}) == 1


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (503, {"code": "select_busy", "outcome": "not_applied"}),
        (503, {"code": "store_slow", "outcome": "unknown"}),
        (429, {"code": "too_many_requests", "outcome": "not_applied"}),
    ],
)
def test_a_statement_that_meets_a_busy_server_is_sent_again_with_the_same_id(
    waited: list[float], status: int, problem: dict[str, str]
) -> None:
    def answer(_: str, before: int) -> Answer:
        if before < 2:
            return status, {}, {"Retry-After": "2", "X-Calve-Error": json.dumps(problem)}
        return 200, {"a": 1}, {"X-ClickHouse-Format": "JSONEachRow"}

    with serving(answer) as peer, talking(peer.url, waited) as transport:
        assert transport.statement("SELECT 1 AS a").form == "JSONEachRow"
    assert waited == [2.0, 2.0]
    assert len({path for path, _, _ in peer.asked}) == 1  # it has the query_id
    assert len(peer.asked) == 3


def test_patience_ends(waited: list[float]) -> None:
    with (
        serving(lambda *_: (202, {}, {})) as peer,
        talking(peer.url, waited, patience_seconds=0.0) as transport,
        pytest.raises(TemporaryError) as caught,
    ):
        transport.call("export", {})
    assert caught.value.code == "server_slow"


def test_a_submit_whose_answer_is_lost_is_sent_again_with_its_key(waited: list[float]) -> None:
    def answer(_: str, before: int) -> Answer:
        return None if before < 2 else (200, {"ok": True}, {})

    with serving(answer) as peer, talking(peer.url, waited) as transport:
        assert transport.call("export", {}) == {"ok": True}
        assert transport.call("export", {}) == {"ok": True}
    keys = [headers["Idempotency-Key"] for _, headers, _ in peer.asked]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


def test_a_server_that_is_gone_is_named_after_three_tries(waited: list[float]) -> None:
    with (
        serving(lambda *_: None) as peer,
        talking(peer.url, waited) as transport,
        pytest.raises(UnavailableError) as caught,
    ):
        transport.call("now", {})
    assert (caught.value.code, caught.value.exit_code, caught.value.service) == (
        "server_unavailable",
        1,
        "server",
    )
    assert peer.url in caught.value.message
    assert len(peer.asked) == 3


@pytest.mark.parametrize(
    ("status", "more", "kind"),
    [
        (400, {"exit_code": 2}, UsageError),
        (404, {"exit_code": 3}, NotFoundError),
        (409, {"exit_code": 4}, RefusedError),
        (403, {"exit_code": 1}, DeniedError),
        (502, {"exit_code": 1}, PermanentError),
        (503, {"exit_code": 1, "retryable": True}, TemporaryError),
        (503, {"exit_code": 1, "retryable": True, "service": "catalog:lake"}, UnavailableError),
        (503, {"exit_code": 1, "retryable": True, "outcome": "unknown"}, UnknownOutcomeError),
    ],
)
def test_a_problem_is_the_error_that_the_server_raised(
    status: int, more: dict[str, Any], kind: type[CalveError], waited: list[float]
) -> None:
    problem = {"code": "some_code", "message": "what happened", "hint": "calve doctor", **more}
    with (
        serving(lambda *_: (status, problem, {})) as peer,
        talking(peer.url, waited) as transport,
        pytest.raises(CalveError) as caught,
    ):
        transport.call("export", {})
    error = caught.value
    assert type(error) is kind
    assert (error.message, error.code, error.hint) == ("what happened", "some_code", "calve doctor")
    assert error.exit_code == more["exit_code"]
    assert error.info.outcome.value == more.get("outcome", "not_applied")


def test_what_is_not_calve_is_not_taken_for_it(waited: list[float]) -> None:
    for status, document in ((200, None), (502, {"detail": "Bad Gateway"}), (404, ["x"])):
        with (
            serving(lambda *_, s=status, d=document: (s, d, {})) as peer,  # type: ignore[misc]
            talking(peer.url, waited) as transport,
            pytest.raises(UnavailableError) as caught,
        ):
            transport.get("/v1/x")
        assert caught.value.code == "server_answer"


def test_a_stream_of_something_else_is_one_clear_error_after_what_came_before(waited: list[float]) -> None:
    sent = b'id: 1\nevent: completed\ndata: {"rows": 3}\n\nid: 2\ndata: <html>\n\n'
    with (
        serving(lambda *_: (200, sent, {"Content-Type": "text/event-stream"})) as peer,
        talking(peer.url, waited) as transport,
    ):
        messages = transport.stream("")
        assert next(messages).data == {"rows": 3}
        with pytest.raises(UnavailableError) as caught:
            next(messages)
    assert caught.value.code == "server_answer"


def test_a_redirect_is_not_followed_and_the_token_stays(waited: list[float]) -> None:
    with serving(lambda *_: (200, {"stolen": True}, {})) as thief:
        moved = {"Location": f"{thief.url}/v1/verbs/export"}
        with (
            serving(lambda *_: (307, {}, moved)) as peer,
            talking(peer.url, waited, token=make_token()[1]) as transport,
            pytest.raises(UnavailableError),
        ):
            transport.call("export", {})
        assert thief.asked == []


def knowing(token: str, port: Callable[[], int]) -> Callable[[str, int], Answer]:
    """A server of this host: it proves that it knows the token, for the port that it is bound to."""

    def answer(path: str, _: int) -> Answer:
        if path.startswith("/v1/hello"):
            nonce = parse_qs(urlsplit(path).query)["nonce"][0]
            return 200, {"proof": hello(token, port(), nonce)}, {}
        return 200, {"done": True}, {}

    return answer


def test_the_token_of_this_host_goes_to_a_server_that_knows_it(tmp_path: Path, waited: list[float]) -> None:
    file = tmp_path / "calve.token"
    token = keep_token(file)
    ports: list[int] = []
    with serving(knowing(token, lambda: ports[0])) as peer:
        ports.append(peer.port)
        with talking(peer.url, waited, local_file=file) as transport:
            transport.call("export", {})
            transport.call("export", {})
    assert peer.tokens == [f"Bearer {token}"] * 2
    assert [path.partition("?")[0] for path, _, _ in peer.asked].count("/v1/hello") == 1


def denied(path: str, _: int) -> Answer:
    if path.startswith("/v1/hello"):
        return 200, {"proof": "0" * 64}, {}
    return 401, {"code": "token", "message": "a token is needed", "exit_code": 1, "hint": ""}, {}


def test_a_squatter_on_the_port_does_not_learn_it(tmp_path: Path, waited: list[float]) -> None:
    file = tmp_path / "calve.token"
    token = keep_token(file)
    with (
        serving(denied) as squatter,
        talking(squatter.url, waited, local_file=file) as transport,
        pytest.raises(DeniedError) as caught,
    ):
        transport.call("export", {})
    assert token not in json.dumps(squatter.asked)
    assert "was not sent" in caught.value.hint
    assert str(file) in caught.value.hint


def test_a_squatter_who_passes_the_question_on_does_not_learn_it_either(
    tmp_path: Path, waited: list[float]
) -> None:
    file = tmp_path / "calve.token"
    token = keep_token(file)
    ports: list[int] = []
    with serving(knowing(token, lambda: ports[0])) as real:
        ports.append(real.port)

        def relay(path: str, _: int) -> Answer:
            return 200, requests.get(real.url + path, timeout=10).json(), {}

        with serving(relay) as squatter, talking(squatter.url, waited, local_file=file) as transport:
            transport.call("now", {})
        assert len(real.asked) == 2
        assert token not in json.dumps(squatter.asked)


def test_an_unsafe_file_is_refused_before_anything_is_said(tmp_path: Path, waited: list[float]) -> None:
    file = tmp_path / "calve.token"
    keep_token(file)
    file.chmod(0o644)
    with serving(denied) as peer, talking(peer.url, waited, local_file=file) as transport:
        with pytest.raises(UsageError):
            transport.call("now", {})
        assert peer.asked == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("localhost", True), ("[::1]", True), ("127.9.9.9", True), ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False), ("10.0.0.1", False), ("0.0.0.0", False), ("[::ffff:10.0.0.1]", False),
    ],
)  # fmt: skip
def test_which_addresses_are_this_host(host: str, expected: bool) -> None:
    assert _is_loopback(f"http://{host}:8180") is expected


@pytest.mark.parametrize(
    "url", ["", "localhost:8180", "ftp://x", "http://", "http://u:p@h", "http://h:99999", "http://h/?a=b", "http://h:0"]
)  # fmt: skip
def test_an_address_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Transport(url)
    assert caught.value.code == "server_url"
    assert not url or url not in caught.value.message


def test_the_token_that_is_named_first_wins(tmp_path: Path) -> None:
    one, other, third = (make_token()[1] for _ in range(3))
    file, named = tmp_path / "a", tmp_path / "b"
    file.write_text(one + "\n")
    named.write_text(other)
    environ = {"CALVE_TOKEN": third, "CALVE_TOKEN_FILE": str(named)}
    assert given_token(str(file), environ) == one
    assert given_token(None, environ) == third
    assert given_token(None, {"CALVE_TOKEN_FILE": str(named)}) == other
    assert given_token(None, {}) == ""
    named.write_text("hunter2")
    with pytest.raises(UsageError) as caught:
        given_token(str(named), {})
    assert "hunter2" not in caught.value.message


def test_an_address_that_is_almost_right_says_what_is_wrong(waited: list[float]) -> None:
    missing = {"code": "no_such_route", "message": "Not Found", "exit_code": 2}
    with serving(lambda *_: (404, missing, {})) as peer:
        for url, said, hint in (
            (f"{peer.url}/foo", "there is no Calve at http://", "--root-path"),
            (peer.url.replace("http:", "https:"), "does not speak TLS", "use http://"),
        ):
            with talking(url, waited) as transport, pytest.raises(CalveError, match=said) as caught:
                transport.call("now", {})
            assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("token_new", {"code": "store_slow", "outcome": "unknown"}),  # a second one would be another token
        ("partitions", {"code": "source_unavailable", "outcome": "not_applied", "service": "source:main"}),
    ],
)
def test_what_another_try_would_not_help_is_said_at_once(
    waited: list[float], verb: str, said: dict[str, str]
) -> None:
    problem = {**said, "message": "no", "retryable": True}
    with (
        serving(lambda *_: (503, problem, {})) as peer,
        talking(peer.url, waited) as transport,
        pytest.raises(CalveError) as caught,
    ):
        transport.call(verb, {})
    assert (caught.value.code, waited, len(peer.asked)) == (said["code"], [], 1)


def test_what_is_sent_again_though_it_may_have_happened_is_done_once() -> None:
    assert set(_ONCE) - {"cancel", "stop"} == SUBMITS
