"""Forms under attack: sent twice and at once, by a session that has ended, by somebody who may not, with cookies that
somebody else has set, and with fields that were edited."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin

import httpx
import pytest

from calve.app.verbs.roles import VERBS, Reach
from calve.model.access import Role
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running, submit
from calve.web.actions import ACTIONS
from support.html import Html
from web.conftest import Place, page
from web.test_forms import KEY, arrived

AT_ONCE = 8
ARGUMENTS = {
    "first_look": {"table": "main:a.t", "to": "lake.a.t"}, "support": {},
    "cancel": {"ids": "x"}, "retry": {"ids": "x"}, "verify": {"ids": "x"}, "halt": {"table": "main:a.t", "kind": "export"},
    "lift": {"table": "main:a.t", "kind": "export"}, "export": {"table": "main:a.t", "to": "lake.a.t", "all": "1"},
    "optimize": {"table": "lake.a.t"}, "doctor": {}, "backup_create": {"name": "a", "tables": "a.*"},
    "backup_verify": {"name": "a"}, "backup_restore": {"name": "a"}, "backup_delete": {"name": "a", "typed": "a"},
    **{key: {"name": "shown"} for key in ("policy_due", "policy_run", "policy_pause", "policy_resume", "policy_approve")},
    **{key: {"name": "a"} for key in ("schedule_run", "schedule_pause", "schedule_resume", "backup_drill")},
    "policy_undo": {"table": "a.t", "partition": "1"}, "untier": {"table": "a.t", "partition": "1"},
    "policy_drop_plan": {"table": "a.t", "partitions": "1"},
    "policy_drop": {"table": "a.t", "partitions": "1", "approve": "0", "typed": "1"},
    "hold_add": {"table": "a.t", "reason": "x"}, "hold_release": {"id": "hold-1"},
}  # fmt: skip


def test_a_form_sent_many_times_at_once_starts_one_process(place: Place, operator: httpx.Client) -> None:
    one = move(place.store, running(place.store, source="main:storm.t"), ProcessState.FAILED)
    form = page(operator, f"/confirm/retry?ids={one.id}").form("do/retry").filled()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: operator.post("/do/retry", data=form), range(AT_ONCE)))
    assert {answer.status_code for answer in answers} == {303}
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert len(place.store.processes(ProcessQuery(retry_of=one.id))) == 1


def test_an_export_sent_many_times_at_once_is_one_export(
    place: Place, operator: httpx.Client, table: str
) -> None:
    """Also to two servers, which share nothing but the store."""
    to = "lake.web.storm"
    form = (
        page(operator, f"/confirm/export?table={table}&to={to}&partitions=202601").form("do/export").filled()
    )
    with place.served() as url, place.browser(url) as other:
        other.cookies.update(dict(operator.cookies))
        clients = [operator, other] * 2
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda client: client.post("/do/export", data=form), clients))
        ends = [arrived(client, answer) for client, answer in zip(clients, answers, strict=True)]
    [made] = place.store.processes(ProcessQuery(destination=to))
    assert {urljoin(str(end.url), end.headers["location"]).rpartition("/")[2] for end in ends} == {made.id}


def test_a_session_that_ends_in_the_middle_loses_nothing_and_does_nothing(place: Place) -> None:
    one = submit(place.store)
    with place.signed_in(Role.OPERATOR) as client:
        html = page(client, f"/confirm/cancel?ids={one.id}&back=processes")
        form = html.form("do/cancel").filled()
        with place.browser(Cookie=f"{place.cookie}={client.cookies[place.cookie]}") as elsewhere:
            assert elsewhere.post("/sign-out", data=html.form("sign-out").filled()).status_code == 303
        ended = client.post("/do/cancel", data=form)
        assert ended.status_code == 303 and not place.store.process(one.id).cancel_requested
        sign_in = urljoin(str(ended.url), ended.headers["location"])
        fields = page(client, sign_in).form("sign-in").filled(secret=place.token(Role.OPERATOR))
        back = client.post("/sign-in", data=fields)
        again = page(client, urljoin("/sign-in", back.headers["location"])).form("do/cancel").filled()
        assert (again["ids"], again["key"], again["back"]) == (form["ids"], form["key"], ["processes"])
        assert again["token"] != form["token"]
        assert client.post("/do/cancel", data=again).headers["location"] == "../processes"
    assert place.store.process(one.id).cancel_requested


@pytest.mark.parametrize("name", sorted(ACTIONS.keys() - {"look"}))
def test_who_edits_a_form_gets_no_further_than_his_role(place: Place, name: str) -> None:
    """Whatever he sends: a form of another action, or a token of his own."""
    one = submit(place.store)
    data = {field: one.id if field == "ids" else value for field, value in ARGUMENTS[name].items()} | {
        "key": KEY
    }
    action = ACTIONS[name]
    verb = VERBS[action.verb]
    needed = verb.needs({**ARGUMENTS[name], **action.always})
    for role in Role:
        if role.may(needed):
            continue
        with place.signed_in(role) as client:
            look = page(client, "/tables/of?source=main:db.events&to=lake.ns.events").form("do/look").filled()
            assert client.post(f"/do/{name}", data={**data, "token": look["token"]}).status_code == 403
            assert not [
                form for form in page(client, f"/confirm/{name}?{_query(data)}").forms if "do/" in form.action
            ]
        headers = {"Authorization": f"Bearer {place.token(role)}"}
        with place.browser(**headers) as client:
            answer = client.post(f"/do/{name}", data=data)
            assert answer.status_code == 403, (role, answer.text[:300])
            assert f"needs {needed.value}" in Html(answer.text).text
    assert not [halt for halt in place.store.halts() if halt.source == "main:a.t"]
    assert not place.store.process(one.id).cancel_requested


def _query(data: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in data.items() if name not in ("key", "typed"))


def test_every_action_is_attacked() -> None:
    assert set(ARGUMENTS) == ACTIONS.keys() - {"look"}
    assert all(VERBS[one.verb].reach in (Reach.STORE, Reach.OUTSIDE) for one in ACTIONS.values())


def test_a_cookie_that_somebody_else_set_is_nobody(place: Place) -> None:
    one = submit(place.store)
    data = {"ids": one.id, "key": KEY, "token": "a.b"}
    for cookie in ("evil", "", "a" * 5000, '"', "../../x"):
        with place.browser(Cookie=f"{place.cookie}={cookie}") as client:
            answer = client.post("/do/cancel", data=data)
            assert answer.status_code in (303, 400, 403, 431), answer.status_code
            assert answer.status_code != 303 or "sign-in" in answer.headers["location"]
    assert not place.store.process(one.id).cancel_requested


def test_signing_in_never_takes_the_secret_that_the_browser_came_with(place: Place) -> None:
    fixed = "f" * 43
    with place.browser(Cookie=f"{place.cookie}={fixed}") as client:
        answer = client.post("/sign-in", data={"secret": place.token(Role.VIEWER), "role": "viewer"})
        assert answer.status_code == 303 and fixed not in answer.headers["set-cookie"]
    with place.browser(Cookie=f"{place.cookie}={fixed}") as victim:
        assert victim.get("/tables").status_code == 303, "it is no session"


def test_of_two_cookies_of_one_name_the_one_of_the_narrower_path_counts(place: Place) -> None:
    """Browsers send that first. Another program on this host can set one only for a wider path, or the same."""
    with place.signed_in(Role.OPERATOR) as client:
        own = client.cookies[place.cookie]
    with place.browser(Cookie=f"{place.cookie}={own}; {place.cookie}=evil") as client:
        assert "operator · operator-1" in page(client, "/").text


@pytest.mark.parametrize(
    "edited",
    [
        {"back": "https://evil.example/"}, {"back": "//evil.example"}, {"back": "/\\evil.example"}, {"back": "javascript:x"},
        {"back": "processes\r\nSet-Cookie: a=b"}, {"back": "../../etc"},
    ],
)  # fmt: skip
def test_the_way_back_leads_to_our_own_pages_alone(
    place: Place, operator: httpx.Client, edited: dict[str, str]
) -> None:
    one = submit(place.store)
    form = page(operator, f"/confirm/cancel?ids={one.id}").form("do/cancel").filled()
    answer = operator.post("/do/cancel", data={**form, **edited})
    assert (answer.status_code, answer.headers["location"]) == (303, f"../processes/{one.id}")
    assert "a=b" not in answer.headers.get("set-cookie", "")


def test_a_key_of_somebody_else_is_another_request(place: Place, operator: httpx.Client) -> None:
    """Keys belong to who sends them: nobody reads or stops another one's request by guessing its key."""
    one = move(place.store, running(place.store, source="main:keys.t"), ProcessState.FAILED)
    form = page(operator, f"/confirm/retry?ids={one.id}").form("do/retry").filled()
    assert operator.post("/do/retry", data=form).status_code == 303
    with place.signed_in(Role.ADMIN) as admin:
        asked = admin.get(f"/asked/retry/{form['key'][0]}?ids={one.id}")
        assert asked.status_code == 404 and "does not know what became of it" in asked.text
