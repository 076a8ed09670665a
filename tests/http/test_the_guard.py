"""What a request must be before anybody looks at what it asks."""

import json
import socket
from pathlib import Path

import httpx
import pytest

from calve.app.config import ServeConfig
from calve.http.guard import Rates
from calve.http.routes import ROUTES
from calve.http.server import _listening
from support.served import Served

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost evil", "[::1"])
def test_a_name_that_is_not_this_servers_is_refused(reader: httpx.Client, host: str) -> None:
    answer = reader.get("/v1/processes", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8180", "[::1]:8180", "localhost."])
def test_its_own_names_are_answered_with_any_port(reader: httpx.Client, host: str) -> None:
    assert reader.get("/v1/processes", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_another_web_page_may_not_ask(admin: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v1/processes"), ("POST", "/v1/processes/cancel")):
        answer = admin.request(
            method, path, headers=headers, json={"ids": ["x"]} if method == "POST" else None
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "origin")


def test_its_own_page_and_a_followed_link_may(served: Served, reader: httpx.Client) -> None:
    own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    assert reader.get("/v1/processes", headers=own).status_code == 200
    for site in ("cross-site", "same-site"):
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert reader.get("/v1/processes", headers=link).status_code == 200
        assert reader.post("/v1/processes/cancel", json={"ids": ["x"]}, headers=link).status_code == 403


def test_a_proxy_that_was_not_declared_is_refused(admin: httpx.Client) -> None:
    for name in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"):
        answer = admin.get("/v1/processes", headers={name: "1.2.3.4"})
        assert (answer.status_code, answer.json()["code"]) == (403, "proxy_not_declared")


def test_bodies_are_bounded_and_plain(admin: httpx.Client) -> None:
    answer = admin.post("/v1/exports", content=b"x" * (1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    def endless() -> object:
        for _ in range(100):
            yield b"x" * 65536

    answer = admin.post("/v1/exports", content=endless())  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    for headers in ({"Content-Encoding": "gzip"}, {"Content-Type": "application/json; charset=utf-16"}):
        assert admin.post("/v1/exports", content=b"{}", headers=headers).status_code == 415


def test_a_body_with_two_lengths_is_refused(served: Served) -> None:
    """A proxy in front and this server would each read another request."""
    port = httpx.URL(served.url).port
    assert port
    smuggled = b"GET /v1/workers HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head % (5 + len(smuggled)) + b"0\r\n\r\n" + smuggled)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400")


def test_methods_that_nobody_serves_are_refused(admin: httpx.Client) -> None:
    for method in ("OPTIONS", "TRACE", "PATCH", "BREW"):
        answer = admin.request(method, "/v1/processes")
        assert answer.status_code == 405
        assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_has_the_headers_that_browsers_obey(reader: httpx.Client) -> None:
    for path in ("/v1/processes", "/nowhere", "/v1/exports"):
        headers = reader.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert len(headers["x-request-id"]) == 16


def test_a_query_is_never_logged(served: Served, reader: httpx.Client) -> None:
    reader.get("/v1/partitions", params={"table": "canary_in_a_query"})
    reader.get("/v1/nothing%0d%0aforged")
    log = served.log.read_text()
    assert "/v1/partitions" in log
    assert "canary_in_a_query" not in log
    assert "\nforged" not in log


def test_the_log_is_json_and_names_the_request_that_the_answer_names(
    served: Served, reader: httpx.Client
) -> None:
    request_id = reader.get("/v1/workers").headers["x-request-id"]
    reader.get("/healthz")  # the line is written after the answer: now it is there
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    (line,) = [one for one in lines if one.get("request") == request_id]
    assert line["message"].startswith("GET /v1/workers 200 ") and line["level"] == "info"


def test_a_head_that_drips_is_cut_off(served: Served) -> None:
    host, port = httpx.URL(served.url).host, httpx.URL(served.url).port
    assert port
    with socket.create_connection((host, port), timeout=30) as peer:
        peer.sendall(b"GET /v1/processes HTTP/1.1\r\nHost: localhost\r\nX-")
        assert peer.recv(100) == b""  # closed by the server, which has a deadline (`client_seconds`)


def test_a_peer_that_asks_too_often_waits() -> None:
    now = [0.0]
    rates = Rates(50, lambda: now[0], burst=200)
    assert [rates.wait_for("a") for _ in range(200)] == [0.0] * 200
    assert rates.wait_for("a") > 0
    assert rates.wait_for("b") == 0
    now[0] = 1.0
    assert [rates.wait_for("a") for _ in range(50)] == [0.0] * 50
    assert rates.wait_for("a") > 0


def test_no_get_changes_anything() -> None:
    from calve.app.verbs.roles import VERBS

    assert all(not VERBS[route.verb].changes for route in ROUTES if route.method == "GET")


def test_it_answers_below_its_root_path_and_without_it(tmp_path: Path) -> None:
    made = Served(tmp_path / "s", ["--root-path", "/a/b/"])
    try:
        with made.client("") as client:
            assert made.url.endswith("/a/b")
            assert client.get("/v1/processes").status_code == 200
            assert client.get(f"{made.url.removesuffix('/a/b')}/v1/processes").status_code == 200
            assert client.get(f"{made.url.removesuffix('/a/b')}/a/bc").status_code == 404
    finally:
        made.close()


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """asyncio turns Nagle's delay off for sockets that say they are TCP, and for no others."""
    with _listening(ServeConfig(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with socket.create_connection(listener.getsockname()) as _, listener.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_it_lives_and_it_is_ready(reader: httpx.Client) -> None:
    assert [reader.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
