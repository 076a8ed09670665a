"""What is refused before anybody looks at what it asks is a page for a browser, with the next step; a problem for a
program."""

from collections.abc import Iterator
from urllib.parse import urljoin

import httpx
import pytest

from calve.http.problem import MEDIA_TYPE
from calve.model.access import Role
from calve.testing.contracts.contract import submit
from calve.web.frame import POLICY
from support.html import Html
from web.conftest import SETTINGS, Place, page

EVIL = {"Origin": "https://evil.example"}
REFUSED = [
    ("GET", "/tables", {"Host": "evil.example"}, 421, "--allow-host"),
    ("POST", "/do/cancel", EVIL, 403, "open the server's own address"),
    ("POST", "/sign-in", EVIL, 403, "open the server's own address"),
    ("GET", "/", {"X-Forwarded-For": "1.2.3.4"}, 403, "--behind-proxy"),
    ("PATCH", "/tables", {}, 405, "PATCH"),
    ("POST", "/tables", {}, 405, "use its buttons"),
    ("POST", "/nothing", {}, 405, "use its buttons"),
    ("GET", "/nothing/at/all", {}, 404, "the search finds ids"),
    ("GET", "/processes/nothing000000", {}, 404, ""),
    ("POST", "/do/explode", {}, 404, "go back to the page"),
    ("POST", "/do/cancel", {"Content-Encoding": "gzip"}, 415, "send it as it is"),
    ("GET", "/tables?page=x", {}, 400, "give a number"),
]


@pytest.mark.parametrize(("method", "path", "headers", "status", "hint"), REFUSED)
def test_a_refusal_says_what_and_why_and_what_next(
    place: Place, method: str, path: str, headers: dict[str, str], status: int, hint: str
) -> None:
    with place.browser() as client:
        answer = client.request(method, path, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert (
        answer.headers["content-security-policy"] == POLICY and answer.headers["cache-control"] == "no-store"
    )
    assert "www-authenticate" not in answer.headers
    html = Html(answer.text)
    assert html.count("h1") == 1 and hint in html.text
    assert answer.headers["x-request-id"] in html.text, "what to look for in the log"
    assert all(urljoin("/a/b/c", url).startswith("/") for url in html.urls)


@pytest.mark.parametrize(("method", "path", "headers", "status", "hint"), REFUSED[:8])
def test_a_program_gets_a_problem(
    place: Place, method: str, path: str, headers: dict[str, str], status: int, hint: str
) -> None:
    with httpx.Client(base_url=place.url, trust_env=False) as client:
        answer = client.request(method, path, headers=headers)
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["status"] in (status, 404), answer.text


def test_the_api_answers_browsers_with_problems_too(reader: httpx.Client) -> None:
    answer = reader.get("/v1/processes", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.headers["content-type"]) == (421, MEDIA_TYPE)


def test_a_server_that_is_called_otherwise_does_not_send_people_to_its_refused_address(
    reader: httpx.Client,
) -> None:
    assert Html(reader.get("/tables", headers={"Host": "evil.example"}).text).urls == []


def test_a_form_that_is_too_large_is_told_so(reader: httpx.Client) -> None:
    answer = reader.post("/do/cancel", data={"ids": "x" * (2 << 20)})
    assert answer.status_code == 413 and "send less" in Html(answer.text).text


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = SETTINGS.replace("requests_per_second = 5000", "requests_per_second = 1")
    made = Place(tmp_path_factory.mktemp("rate"), looks=False, settings=settings)
    with made.calve, made.served(root_path="/a/b") as made.url:
        yield made


def test_who_asks_too_often_is_told_when_to_come_back_below_any_root(slow: Place) -> None:
    with slow.browser(slow.url.removesuffix("/a/b")) as client:
        for _ in range(1000):
            refused = client.get("/a/b/processes/x")
            if refused.status_code == 429:
                break
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        html = Html(refused.text)
        assert "ask less often" in html.text
        style, home = [url for url in html.urls if url]
        assert urljoin("/a/b/processes/x", home) == "/a/b/"
        assert client.get(urljoin("/a/b/processes/x", style)).status_code == 200, "files are free of the rate"


def test_a_defect_before_any_page_is_a_page_without_its_text(
    place: Place, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a secret")

    one = submit(place.store)
    monkeypatch.setattr("calve.web.frame.Frame.page", broken)
    html = page(reader, f"/processes/{one.id}", status=500)
    assert "a secret" not in html.text and "bug" in html.text and "a secret" in caplog.text


def test_what_a_role_may_not_leads_to_signing_in_and_back(place: Place) -> None:
    with place.signed_in(Role.VIEWER) as viewer:
        html = page(viewer, "/backups/restore?name=x&plan=1", status=403)
        [sign_in] = {url for url in html.urls if "sign-in" in url}
        form = page(viewer, urljoin("/backups/restore", sign_in)).form("sign-in").filled()
        assert form["next"] == ["backups/restore?name=x&plan=1"]


def test_a_refusal_is_rendered_once(
    place: Place, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of refused requests must not cost more than they do."""
    refused = {"Host": "often.example"}
    first = reader.get("/tables", headers=refused)
    assert first.status_code == 421
    monkeypatch.setattr("calve.web.template.Templates.render", lambda *_, **__: pytest.fail("rendered again"))
    second = reader.get("/tables", headers=refused)
    assert second.status_code == 421 and second.headers["x-request-id"] in second.text
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
