"""Buttons: each form does what its verb does, once, for who may, and only from a page of his own."""

import io
import re
import time
import zipfile
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from calve.app.verbs.roles import VERBS
from calve.model.access import Role
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running, submit
from calve.web.actions import ACTIONS
from support.html import Html
from web.conftest import Place, page

KEY = "0123456789abcdef"


def press(client: httpx.Client, address: str, **given: str) -> httpx.Response:
    """Open the page of an action, and send its form."""
    html = page(client, address)
    name = urlsplit(address).path.rpartition("/")[2]
    return client.post(f"/do/{name}", data=html.form(f"do/{name}").filled(**given))


def arrived(client: httpx.Client, answer: httpx.Response, status: int = 303) -> httpx.Response:
    """What `/asked` says in the end, after it was asked as often as a browser would."""
    if answer.status_code == status != 303:
        return answer  # it had ended before the post was answered
    assert answer.status_code == 303, answer.text[:500]
    address = urljoin(str(answer.url), answer.headers["location"])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = client.get(address)
        if ("meta", {"http-equiv": "refresh", "content": "1"}) not in Html(found.text).tags:
            assert found.status_code == status, found.text[:500]
            return found
    raise AssertionError("it never ended")


def test_every_action_is_a_verb_and_those_of_tokens_are_none() -> None:
    assert {one.verb for one in ACTIONS.values()} <= set(VERBS)
    assert not any(one.verb.startswith("token") for one in ACTIONS.values())


def test_a_cancel_says_what_it_does_and_leads_to_its_process(place: Place, operator: httpx.Client) -> None:
    one = submit(place.store)
    html = page(operator, f"/confirm/cancel?ids={one.id}")
    assert f"calve cancel {one.id}" in html.text and "nothing is published" in html.text
    answer = press(operator, f"/confirm/cancel?ids={one.id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"../processes/{one.id}")
    assert place.store.process(one.id).cancel_requested


def test_the_page_after_a_change_shows_it(
    place: Place, operator: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are shared for a moment; what somebody just did must not look undone to him."""
    monkeypatch.setattr("calve.web.documents.KEEP_SECONDS", 3600.0)
    one = submit(place.store)
    assert "stopping" not in page(operator, f"/processes/{one.id}").text
    assert press(operator, f"/confirm/cancel?ids={one.id}").status_code == 303
    assert "stopping" in page(operator, f"/processes/{one.id}").text


def test_a_cancel_that_comes_too_late_is_told(place: Place, operator: httpx.Client) -> None:
    one = move(place.store, running(place.store), ProcessState.FAILED)
    answer = press(operator, f"/confirm/cancel?ids={one.id}")
    assert answer.status_code == 409 and 'role="alert"' in answer.text
    assert not place.store.process(one.id).cancel_requested


def test_the_same_form_sent_twice_is_done_once(place: Place, operator: httpx.Client) -> None:
    one = move(place.store, running(place.store, source="main:twice.t"), ProcessState.FAILED)
    form = page(operator, f"/confirm/retry?ids={one.id}").form("do/retry").filled()
    first, second = (operator.post("/do/retry", data=form) for _ in range(2))
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]
    retries = place.store.processes(ProcessQuery(retry_of=one.id))
    assert [f"../processes/{each.id}" for each in retries] == [first.headers["location"]]
    other = move(place.store, running(place.store), ProcessState.FAILED)
    answer = operator.post("/do/retry", data={**form, "ids": [other.id]})
    fresh = Html(answer.text).form("do/retry").filled()
    assert answer.status_code == 409 and fresh["key"] != form["key"] and fresh["ids"] == [other.id]


def test_a_form_belongs_to_its_session_and_its_action(place: Place, operator: httpx.Client) -> None:
    one = submit(place.store)
    form = page(operator, f"/confirm/cancel?ids={one.id}").form("do/cancel").filled()
    with place.signed_in(Role.OPERATOR) as another:
        answer = another.post("/do/cancel", data=form)
        assert answer.status_code == 403
        fresh = Html(answer.text).form("do/cancel").filled()
        assert fresh["ids"] == [one.id]
        assert operator.post("/do/retry", data=form).status_code == 403
        for token in ("", "x", form["token"][0] + "0"):
            assert operator.post("/do/cancel", data={**form, "token": [token]}).status_code == 403
        assert not place.store.process(one.id).cancel_requested
        assert another.post("/do/cancel", data=fresh).status_code == 303
    assert place.store.process(one.id).cancel_requested


def test_another_page_cannot_send_it(place: Place, operator: httpx.Client) -> None:
    one = submit(place.store)
    form = page(operator, f"/confirm/cancel?ids={one.id}").form("do/cancel").filled()
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
        assert operator.post("/do/cancel", data=form, headers=headers).status_code == 403
    del operator.headers["Origin"]
    assert operator.post("/do/cancel", data=form).status_code == 403
    assert operator.get("/do/cancel", params={"ids": one.id}).status_code == 404
    assert not place.store.process(one.id).cancel_requested


def test_who_may_not_is_told_what_it_needs(place: Place, reader: httpx.Client) -> None:
    one = submit(place.store)
    html = page(reader, f"/confirm/cancel?ids={one.id}")
    assert "Needs operator." in html.text and not [form for form in html.forms if "do/" in form.action]
    for role in (None, Role.VIEWER):
        with place.signed_in(role) as client:
            token = _token(page(client, "/"))
            answer = client.post("/do/cancel", data={"ids": one.id, "key": KEY, "token": token})
            assert answer.status_code == 403
    with place.signed_in(Role.OPERATOR) as client:
        html = page(client, "/confirm/backup_delete?name=nightly")
        assert "Needs admin." in html.text
    assert not place.store.process(one.id).cancel_requested


def _token(html: Html) -> str:
    return next((form.filled()["token"][0] for form in html.forms if "token" in form.filled()), "")


def test_what_cannot_be_undone_is_typed(place: Place) -> None:
    with place.signed_in(Role.ADMIN) as admin:
        answer = press(admin, "/confirm/backup_delete?name=nightly", typed="nightl")
        assert (
            answer.status_code == 409
            and "not_typed" not in answer.headers
            and "nothing was done" in answer.text
        )
        answer = press(admin, "/confirm/backup_restore?name=nightly", existing="replace")
        assert answer.status_code == 409 and "nothing was done" in answer.text
        fields = Html(answer.text).form("do/backup_restore").filled()
        assert fields["name"] == ["nightly"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ({"ids": "x", "key": "short"}, 400),
        ({"ids": "x"}, 400),
        ({"ids": "x", "key": KEY, "evil": "1"}, 400),
        ({"key": KEY}, 400),
        ({"ids": "calve_abcdefghij_" + "a" * 43, "key": KEY}, 400),
        ({"ids": ["x"] * 6000, "key": KEY}, 400),
    ],
)
def test_what_is_wrong_in_a_form_is_said(place: Place, data: dict[str, str], status: int) -> None:
    headers = {"Authorization": f"Bearer {place.token(Role.OPERATOR)}"}
    with place.browser() as client:
        answer = client.post("/do/cancel", data=data, headers=headers)
        assert answer.status_code == status, answer.text[:300]
        assert Html(answer.text).count("h1") == 1
        assert client.post("/do/cancel", json={"ids": ["x"]}, headers=headers).status_code == 415
        assert client.post("/do/explode", data=data, headers=headers).status_code == 404


def test_a_halt_and_its_end(place: Place, operator: httpx.Client) -> None:
    answer = press(
        operator, "/confirm/halt?table=main:halted.t&kind=optimize&back=processes", reason="maintenance"
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "../processes")
    [halt] = [one for one in place.store.halts() if one.source == "main:halted.t"]
    assert (halt.who, halt.reason) == ("operator-1", "maintenance")
    assert (
        press(operator, "/confirm/lift?table=main:halted.t&kind=optimize").headers["location"] == "../system"
    )
    assert not [one for one in place.store.halts() if one.source == "main:halted.t"]


def test_a_plan_is_shown_and_what_is_started_leads_to_its_process(
    place: Place, operator: httpx.Client, table: str
) -> None:
    address = f"/tables/plan?source={table}&to=lake.web.planned&partition=202601"
    deadline = time.monotonic() + 60
    while "refresh" in (found := operator.get(address)).text and time.monotonic() < deadline:
        pass
    assert found.status_code == 200, found.text[:500]
    form = Html(found.text).form("do/export").filled()
    assert form["table"] == [table] and form["partitions"] == ["202601"]
    answer = arrived(operator, operator.post("/do/export", data=form))
    [made] = place.store.processes(ProcessQuery(destination="lake.web.planned"))
    assert answer.headers["location"] == f"../../processes/{made.id}" and made.partitions == ("202601",)
    # Its address answers so for ever, on every server; a second one joins.
    asked = str(answer.url)
    with place.served() as url, place.browser(url) as other:
        other.cookies.update(dict(operator.cookies))
        again = other.get(f"{url}{urlsplit(asked).path}?{urlsplit(asked).query}")
        assert again.headers["location"] == answer.headers["location"]
        assert [one.id for one in place.store.processes(ProcessQuery(destination="lake.web.planned"))] == [
            made.id
        ]
    joined = arrived(
        operator,
        press(operator, f"/confirm/export?table={table}&to=lake.web.planned&partitions=202601"),
        status=200,
    )
    assert "joined it" in joined.text and made.id in joined.text


def test_what_failed_outside_is_told_with_the_form_filled_in_again(
    place: Place, operator: httpx.Client
) -> None:
    answer = arrived(
        operator, press(operator, "/confirm/optimize?table=lake.web.nothere", full="1"), status=404
    )
    html = Html(answer.text)
    assert "nothere" in html.text
    fields = html.form("do/optimize").filled()
    assert fields["table"] == ["lake.web.nothere"] and fields["full"] == ["1"]


def test_a_server_that_does_not_know_what_became_of_it_says_so_and_starts_nothing(
    place: Place, operator: httpx.Client
) -> None:
    html = page(operator, f"/asked/optimize/{KEY}?table=lake.web.unknown", status=404)
    assert "does not know what became of it" in html.text
    assert html.form("do/optimize").filled()["key"] == [KEY]
    assert page(operator, f"/asked/optimize/{KEY}?table=lake.web.unknown", status=404)
    assert not place.store.processes(ProcessQuery(destination="lake.web.unknown"))


def test_an_operator_downloads_a_support_bundle_without_secrets(place: Place, operator: httpx.Client) -> None:
    form = page(operator, "/system").form("do/support").filled()
    answer = arrived(operator, operator.post("/do/support", data=form), status=200)
    [link] = [one for one in Html(answer.text).urls if one.endswith(".zip")]
    address = urljoin(str(answer.url), link)
    found = operator.get(address)
    assert re.fullmatch(
        r'attachment; filename="calve-support-\w+\.zip"', found.headers["content-disposition"]
    )
    with zipfile.ZipFile(io.BytesIO(found.content)) as bundle:
        text = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert {"versions.json", "config.json", "doctor.json", "audit.json"} <= set(text)
    assert "operator-1" not in text["audit.json"]
    assert not [name for name in text if place.local_token() in text[name]]
    with place.signed_in(Role.VIEWER) as viewer:
        assert viewer.get(address).status_code == 403
        assert not [one for one in page(viewer, "/system").forms if one.action.endswith("support")]
        assert viewer.post("/do/support", data={**form, "token": [""]}).status_code == 403
    assert operator.get(address.replace(form["key"][0], "0" * 22)).status_code == 404


def test_a_long_list_is_asked_for_too(place: Place, operator: httpx.Client, table: str) -> None:
    names = [f"{number:06d}" for number in range(1000)]
    form = page(operator, f"/confirm/export?table={table}&to=lake.web.long").form("do/export").filled()
    answer = operator.post("/do/export", data={**form, "partitions": names})
    assert answer.status_code == 303 and len(answer.headers["location"]) < 4096
    found = arrived(operator, answer, status=404)  # of partitions that there are not
    assert Html(found.text).form("do/export").filled()["partitions"] == names
