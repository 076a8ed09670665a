"""A browser signs in with a token and keeps a session; no other page can do that for it, or use it."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from calve.model.access import Role
from support.html import Html
from web.conftest import Place, page

PROXIED = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https"}


@contextmanager
def closed(place: Place) -> Iterator[str]:
    """A server where everything needs a session."""
    place.token(Role.VIEWER)
    with place.served(behind_proxy=True) as url:
        yield url


def browser(place: Place, url: str, **headers: str) -> httpx.Client:
    """Behind a proxy that has TLS."""
    own = {"Origin": url.replace("http:", "https:"), **PROXIED}
    return place.browser(url, **{**own, **headers})


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    pair, *rest = answer.headers["set-cookie"].split("; ")
    return {"pair": pair, **{part.partition("=")[0].lower(): part.partition("=")[2] for part in rest}}


def sign_in(client: httpx.Client, secret: str, **given: str) -> httpx.Response:
    return client.post("/sign-in", data={"secret": secret, **given})


def test_signing_in_leads_back_and_the_page_says_who_it_is(place: Place) -> None:
    with place.browser() as client:
        html = page(client, "/sign-in?next=tables%3Fq%3Dx")
        form = html.form("sign-in")
        assert form.filled()["role"] == ["operator"] and form.filled()["next"] == ["tables?q=x"]
        answer = client.post("/sign-in", data=form.filled(secret=place.token(Role.ADMIN)))
        assert (answer.status_code, answer.headers["location"]) == (303, "tables?q=x")
        given = cookie_of(answer)
        assert given["pair"].startswith("calve_") and place.token(Role.ADMIN) not in given["pair"]
        assert {"httponly", "samesite", "path", "max-age"} <= set(given) and "secure" not in given
        assert (given["samesite"], given["path"], given["max-age"]) == ("Strict", "/", "43200")
        assert "operator · admin-1" in page(client, "/").text


def test_people_of_one_role_share_a_page_but_not_what_is_their_own(place: Place) -> None:
    with place.signed_in(Role.OPERATOR) as anne, place.browser() as bert:
        sign_in(bert, place.token(Role.ADMIN), role="operator")
        pages = [page(client, "/backups") for client in (anne, bert)]
    mine, his = ((html.text, html.form("sign-out").filled()["token"]) for html in pages)
    assert "operator · operator-1" in mine[0] and "operator · admin-1" in his[0]
    assert "admin-1" not in mine[0] and "operator-1" not in his[0]
    assert mine[1] != his[1] and all("." in token[0] for token in (mine[1], his[1]))


def test_behind_tls_the_cookie_goes_over_tls_alone_and_below_the_root_alone(place: Place) -> None:
    place.token(Role.VIEWER)
    with (
        place.served(behind_proxy=True, root_path="/a/b") as url,
        browser(place, url.removesuffix("/a/b")) as client,
    ):
        given = cookie_of(client.post("/a/b/sign-in", data={"secret": place.token(Role.VIEWER)}))
        assert "secure" in given and given["path"] == "/a/b/"


def test_the_host_s_own_token_signs_in_on_the_host(place: Place) -> None:
    with place.browser() as client:
        answer = sign_in(client, place.local_token(), role="admin")
        assert answer.status_code == 303
        assert "admin · local" in page(client, "/").text


@pytest.mark.parametrize(
    ("next", "to"),
    [
        ("", "./"),
        ("processes/abc?after=5", "processes/abc?after=5"),
        ("tables/of?source=main%3At&to=a", "tables/of?source=main%3At&to=a"),
        ("confirm/cancel?ids=abc", "confirm/cancel?ids=abc"),
        ("//evil.example", "./"),
        ("https://evil.example", "./"),
        ("/\\evil.example", "./"),
        ("tables\\evil", "./"),
        ("javascript:alert(1)", "./"),
        ("tables?a=\r\nSet-Cookie: x=1", "./"),
        ("v1/processes", "./"),
        ("do/cancel", "./"),
        ("../tables", "./"),
    ],
)
def test_it_leads_to_pages_of_ours_alone(place: Place, next: str, to: str) -> None:
    with place.browser() as client:
        answer = sign_in(client, place.token(Role.VIEWER), next=next)
        assert (answer.status_code, answer.headers["location"]) == (303, to)


def test_a_wrong_token_is_told_the_same_and_few_times(place: Place) -> None:
    with closed(place) as url, browser(place, url) as client:
        texts = set()
        for wrong in (
            "",
            "x",
            f"{place.token(Role.VIEWER)[:-1]}x",
            "calve_nosuchid00_" + "a" * 43,
            place.local_token(),
        ):
            answer = sign_in(client, wrong)
            assert answer.status_code == 401 and "set-cookie" not in answer.headers
            assert "www-authenticate" not in answer.headers
            texts.add(Html(answer.text).text)
        assert len(texts) == 1
        answer = sign_in(client, place.token(Role.VIEWER))
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        assert sign_in(client, place.token(Role.VIEWER)).status_code == 429
        with browser(place, url, **{"X-Forwarded-For": "8.8.8.8"}) as other:
            assert sign_in(other, place.token(Role.VIEWER)).status_code == 303


def test_only_our_own_page_signs_in_and_out(place: Place, operator: httpx.Client) -> None:
    with place.browser() as client:
        for origin in ("https://evil.example", "null"):
            answer = client.post(
                "/sign-in", data={"secret": place.token(Role.ADMIN)}, headers={"Origin": origin}
            )
            assert answer.status_code == 403
        del client.headers["Origin"]
        answer = sign_in(client, place.token(Role.ADMIN))
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
    for token in ("", "x.y"):
        assert operator.post("/sign-out", data={"token": token}).status_code == 403
    assert "operator-1" in page(operator, "/").text


def test_signing_out_ends_the_session_everywhere(place: Place, operator: httpx.Client) -> None:
    secret = dict(operator.cookies)
    form = page(operator, "/").form("sign-out")
    answer = operator.post("/sign-out", data=form.filled())
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert cookie_of(answer)["max-age"] == "0" and not operator.cookies
    with place.browser() as another:
        another.cookies.update(secret)
        answer = another.get("/tables")
        assert (answer.status_code, answer.headers["location"]) == (303, "sign-in?next=tables")
        html = another.get("/sign-in?next=tables")
        assert "Your session has ended" in html.text and cookie_of(html)["max-age"] == "0"


def test_without_a_session_a_closed_server_asks_for_one_and_shows_nothing(place: Place) -> None:
    with closed(place) as url, browser(place, url) as client:
        answer = client.get("/tables/of?source=main%3Adb.t&to=lake.a.b")
        assert answer.status_code == 303 and "www-authenticate" not in answer.headers
        assert answer.headers["location"] == (
            "../sign-in?next=tables%2Fof%3Fsource%3Dmain%253Adb.t%26to%3Dlake.a.b"
        )
        for address in (
            "/",
            "/confirm/cancel?ids=x",
            "/asked/export/0123456789abcdef",
            "/nowhere",
            "/tables.csv",
        ):
            assert client.get(address).status_code == 303
        answer = client.get("/tables.json")
        assert answer.status_code == 401 and answer.json()["code"] == "token_missing"
        assert "www-authenticate" not in answer.headers
        answer = client.post("/do/cancel", data={"ids": "x", "key": "0123456789abcdef"})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith(
            "../sign-in?next=confirm%2Fcancel%3Fids%3Dx%26key%3D0123456789abcdef"
        )
        assert client.get("/sign-in").status_code == 200


def test_a_link_from_elsewhere_is_loaded_again_once(place: Place) -> None:
    with closed(place) as url, browser(place, url) as client:
        del client.headers["Origin"]
        for site in ("cross-site", "same-site"):
            link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
            answer = client.get("/tables?q=x", headers=link)
            assert answer.status_code == 200
            assert ("meta", {"http-equiv": "refresh", "content": "0"}) in Html(answer.text).tags
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        answer = client.get(
            "/tables?q=x", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
        )
        assert answer.status_code == 303


def test_servers_of_one_store_take_each_others_sessions(place: Place, operator: httpx.Client) -> None:
    with place.served() as url, place.browser(url) as client:
        client.cookies.update(dict(operator.cookies))
        html = page(client, "/")
        assert "operator · operator-1" in html.text
        # And the forms of each other's pages.
        answer = operator.post("/sign-out", data=html.form("sign-out").filled())
        assert answer.status_code == 303


def test_a_session_ends_with_its_token(place: Place) -> None:
    made = place.calve.token_new("operator", name="shortlived")
    with place.served() as url, place.browser(url) as client:
        assert sign_in(client, str(made["token"])).status_code == 303
        place.calve.token_revoke(["shortlived"])
        # A server remembers for five seconds; another one asks the store.
        with place.served() as second, place.browser(second) as other:
            other.cookies.update(dict(client.cookies))
            assert other.get("/").headers["location"].startswith("sign-in")


def test_a_page_lets_its_forms_say_where_they_come_from(reader: httpx.Client) -> None:
    """With `no-referrer`, which all other answers have, a browser sends `Origin: null` with a form."""
    for address in ("/sign-in", "/", "/processes"):
        assert reader.get(address).headers["referrer-policy"] == "same-origin"
    assert reader.get("/v1/attention").headers["referrer-policy"] == "no-referrer"
