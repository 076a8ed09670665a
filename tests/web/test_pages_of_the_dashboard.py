"""Pages: documents as HTML, whose links lead to pages, and into which nothing from outside gets as more than text."""

import csv
import io
import re
from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest
from sqlalchemy import delete

from calve import __version__
from calve.app.desk import Desk
from calve.app.verbs.roles import KINDS
from calve.model.access import Role
from calve.model.errors import ErrorInfo, StoreError
from calve.model.process import BatchId
from calve.model.states import ProcessState
from calve.store.tables import events
from calve.testing.contracts.contract import move, publishing, running, submit
from calve.web.frame import POLICY
from calve.web.pages import PAGES, PATHS, PLAN, table_file
from support.html import Html
from web.conftest import Place, page

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "</title></svg></main><script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "a/b?c=d&e#f%2F..",
    "\u202eevil\u2066\u200b",
    "\x01\x1b[31m\x7f",
    "tab\tand\nnew line",
    "&lt;b&gt; &amp;amp;",
    "ünï-🧊-名前",
    "x" * 600,
    "--help",
    "$(rm -rf /)`id`",
]

BACKUP = "pages-1116"


@pytest.fixture(autouse=True, scope="module")
def backup(place: Place) -> None:
    place.seen_backup(BACKUP)


def addresses(process: str) -> dict[str, str]:
    return {
        "attention": "/", "tables": "/tables", "page": "/processes", "sheet": f"/processes/{process}",
        "table": "/tables/of?source=main%3Adb.events&to=lake.ns.events", "system": "/system", "search": "/search?q=zzzz",
        "vault": "/backups", "backup": f"/backups/of?name={BACKUP}",
        "policies": "/policies", "policy": "/policies/of?name=shown",
    }  # fmt: skip


def test_every_page_answers_every_role_as_html_that_holds_nothing_from_elsewhere(place: Place) -> None:
    one = submit(place.store, source="main:roles.t", destination="lake.roles.t")
    found = addresses(one.id)
    assert set(found) == set(PAGES), "a page without a test"
    for role in (None, *Role):
        with place.signed_in(role) as client:
            for name, address in found.items():
                answer = client.get(address)
                assert answer.status_code == 200, (name, answer.text[:300])
                assert answer.headers["content-security-policy"] == POLICY
                assert answer.headers["cache-control"] == "no-store"
                assert answer.headers["x-calve-version"] == __version__
                assert "page;dur=" in answer.headers["server-timing"]
                html = Html(answer.text)
                assert html.count("h1") == 1 and html.count("main") == 1
                _holds_nothing_from_elsewhere(html)


def _holds_nothing_from_elsewhere(html: Html) -> None:
    for tag, given in html.tags:
        assert tag not in ("style", "iframe", "object", "base"), tag
        assert tag != "script" or "assets/" in given.get("src", ""), given
        assert not any(name == "style" or name.startswith("on") for name in given), (tag, given)
    for url in html.urls + [form.action for form in html.forms]:
        assert not re.match(r"[a-z]+:|/", url), f"{url} is not relative"


def test_a_page_as_json_is_its_document(place: Place, reader: httpx.Client) -> None:
    one = submit(place.store, source="main:json.t", destination="lake.json.t")
    for name, address in addresses(one.id).items():
        path, _, query = ("/attention" if name == "attention" else address).partition("?")
        answer = reader.get(f"{path}.json?{query}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"] == "application/json"
        assert {"now", "cursor", "version"} <= set(answer.json())
    assert reader.get(f"/processes/{one.id}.json").json()["process"]["id"] == one.id


def test_the_plan_and_a_task_of_a_process_are_documents_of_their_own(
    place: Place, reader: httpx.Client
) -> None:
    one = running(place.store, tasks=3, source="main:parts.t", destination="lake.parts.t")
    assert reader.get(f"/processes/{one.id}/plan.json").json() == {"plan": 1}
    for number in (1, 3):
        assert reader.get(f"/processes/{one.id}/task.json?number={number}").json()["number"] == number
    links = [urljoin(f"/processes/{one.id}", url) for url in page(reader, f"/processes/{one.id}").urls]
    assert {f"/processes/{one.id}/task.json?number={number}" for number in (1, 2, 3)} <= set(links)
    for address in (
        f"{one.id}/task.json?number=9",
        f"{one.id}/task.json",
        "none/plan.json",
        "none/task.json?number=1",
    ):
        assert reader.get(f"/processes/{address}").status_code == 404, address


@pytest.mark.parametrize("root", ["", "/processes"])
@pytest.mark.usefixtures("table")  # a source that is there: a page looks into it
def test_every_link_leads_to_a_page_under_any_root(place: Place, root: str) -> None:
    submit(place.store, source="main:links.t", destination="lake.links.t")
    with place.served(root_path=root) as url, place.browser(url.removesuffix(root)) as client:
        todo, seen = [f"{root}/"], set[str]()
        while todo:
            path = todo.pop()
            answer = client.get(path)
            if answer.is_redirect:
                todo.append(urljoin(path, answer.headers["location"]))
                continue
            assert answer.status_code == 200, (path, answer.status_code)
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            html = Html(answer.text)
            assert all(urljoin(path, form.action).startswith(f"{root}/") for form in html.forms)
            for link in html.urls:
                to = urljoin(path, link.partition("#")[0])
                assert to.startswith(f"{root}/"), (path, link)
                # One of each page, and what it shows: not every process of the store.
                kind = re.sub(r"[a-z0-9]{13}", "ID", urlsplit(to).path)
                if kind not in seen and not urlsplit(to).path.endswith("/search"):
                    seen.add(kind)
                    todo.append(to)
        assert {
            f"{root}{path}" for path in ("/tables", "/processes", "/processes/ID", "/system", "/sign-in")
        } <= seen


def test_the_root_without_its_slash_leads_to_the_root_with_it(place: Place) -> None:
    with place.served(root_path="/a/b") as url, place.browser(url.removesuffix("/a/b")) as client:
        answer = client.get("/a/b")
        assert (answer.status_code, answer.headers["location"]) == (307, "b/")
        assert client.get("/a/b", headers={"Accept": "*/*"}).text == "Ok.\n"


def test_the_root_is_a_ping_and_takes_statements_for_clients_of_clickhouse(reader: httpx.Client) -> None:
    for accept in ("*/*", "", "application/json"):
        assert reader.get("/", headers={"Accept": accept}).text == "Ok.\n"
    assert reader.get("/?query=SELECT%201%20FORMAT%20TSV").text == "1\n"
    assert Html(reader.get("/").text).count("main") == 1
    assert not any("query" in one.options for one in (*PAGES.values(), PLAN))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_on_every_page(place: Place, operator: httpx.Client, name: str) -> None:
    error = ErrorInfo(code="denied", message=f"refused: {name}", hint=name)
    source, to = f"main:{name}", f"lake.{name}" if "/" not in name else "lake.ns.slash"
    one = move(
        place.store,
        running(place.store, source=source, destination=to, partitions=(name,)),
        ProcessState.FAILED,
        error=error,
    )
    in_query = f"source={quote(source, safe='')}&to={quote(to, safe='')}"
    for address in (
        "/", "/tables", "/processes", f"/processes/{one.id}", f"/tables/of?{in_query}",
        f"/search?q={quote(name[:100], safe='')}", f"/confirm/retry?ids={one.id}", f"/confirm/look?table={quote(source, safe='')}",
        f"/processes?table={quote(name, safe='')}", f"/sign-in?next={quote(name, safe='')}",
    ):  # fmt: skip
        answer = operator.get(address)
        assert answer.status_code in (200, 303), (address, answer.text[:300])
        html = Html(answer.text)
        _holds_nothing_from_elsewhere(html)
        assert not any(sign in html.text for sign in "\u202e\u2066\u200b\x01\x1b\x7f"), address


def test_what_stands_in_no_path_is_a_page_that_says_so(place: Place, reader: httpx.Client) -> None:
    for address in ("/nowhere", "/processes/nosuchprocess", "/confirm/explode", "/tables/of/x"):
        html = page(reader, address, status=404)
        assert html.count("h1") == 1 and "request " in html.text
    assert reader.get("/nowhere", headers={"Accept": "*/*"}).json()["code"] == "no_such_route"
    assert reader.get("/v1/nowhere", headers={"Accept": "application/json"}).json()["code"] == "no_such_route"


def test_what_is_wrong_in_an_address_is_said_on_a_page(reader: httpx.Client) -> None:
    for address in (
        "/tables?page=x",
        "/tables?sort=evil",
        "/processes?view=x",
        "/processes?state=BROKEN",
        "/tables/of",
    ):
        html = page(reader, address, status=400)
        assert "bad_option" in html.text or "missing_option" in html.text


@pytest.mark.parametrize("kind", ["export", "backup", "optimize"])
def test_a_process_whose_history_is_gone_has_a_page(place: Place, reader: httpx.Client, kind: str) -> None:
    row = publishing(place.store, kind=kind, source="main:old.t", destination="lake.old.t")
    move(place.store, row, ProcessState.COMPLETED)
    with place.store.database.engine.begin() as connection:
        connection.execute(delete(events).where(events.c.process_id == row.id))
    assert row.id in page(reader, f"/processes/{row.id}").text


def test_a_prefix_leads_to_its_process_and_a_batch_to_its_list(place: Place, reader: httpx.Client) -> None:
    one = submit(place.store)
    answer = reader.get(f"/processes/{one.id[:10]}?state=FAILED")
    assert (answer.status_code, answer.headers["location"]) == (303, f"../processes/{one.id}?state=FAILED")
    batch = BatchId("batch-0123456789")
    for _ in range(2):
        submit(place.store, batch=batch)
    answer = reader.get(f"/processes/{batch}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"../processes?batch={batch}")


def test_one_hit_is_opened_and_a_token_is_not_searched_for(place: Place, reader: httpx.Client) -> None:
    one = submit(place.store)
    assert reader.get(f"/search?q={one.id}").headers["location"] == f"processes/{one.id}"
    token = place.local_token()
    html = reader.get("/search", params={"q": f" {token}"})
    assert html.status_code == 400 and token not in html.text and "sign in with it" in html.text


def test_a_view_is_a_filter(place: Place, reader: httpx.Client) -> None:
    waits = submit(place.store, source="main:views.t")
    failed = move(place.store, running(place.store, source="main:views.t"), ProcessState.FAILED)
    for view, shown in (("waiting", [waits.id]), ("failed", [failed.id]), ("all", [failed.id, waits.id])):
        document = reader.get(f"/processes.json?view={view}&table=main:views.t").json()
        assert [one["id"] for one in document["processes"]] == shown


def test_a_file_for_a_spreadsheet_computes_nothing(place: Place, reader: httpx.Client) -> None:
    submit(place.store, source="=1+1", destination="lake.csv.t")
    answer = reader.get("/processes.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="processes.csv"'
    assert answer.content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert "'=1+1" in {row["source"] for row in rows}
    made = table_file(
        [{"a": "-1", "b": -1, "c": {"d": ["@x", "y"]}, "e": None}], ["a", "b", "c.d", "e", "f.g"]
    )
    assert made.decode("utf-8-sig").splitlines()[1] == "'-1,-1,'@x y,,"
    assert reader.get("/tables.csv").content.startswith(b"\xef\xbb\xbfsource,destination")


def test_a_script_gets_the_main_part_alone(reader: httpx.Client) -> None:
    answer = reader.get("/tables", headers={"X-Calve-Part": "main"})
    html = Html(answer.text)
    assert html.tags[0][0] == "main" and html.count("html") == 0 and html.count("head") == 0
    given = html.tags[0][1]
    assert given["data-cursor"] and given["data-now"] and given["data-title"].endswith("· Calve")


def test_files_of_the_program_are_kept_for_ever_by_their_hash(reader: httpx.Client) -> None:
    html = page(reader, "/")
    files = [url for url in html.urls if "assets/" in url]
    assert len(set(files)) >= 2
    for url in set(files):
        answer = reader.get(urljoin("/", url))
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    old = re.sub(r"\.[0-9a-f]{16}\.", ".0123456789abcdef.", urljoin("/", files[0]))
    answer = reader.get(old)
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    for address in (
        "/assets/../pages.py",
        "/assets/..%2Fpages.py",
        "/assets/evil.0123456789abcdef.css",
        "/assets/calve.css",
    ):
        assert reader.get(address).status_code == 404


def test_while_the_store_is_down_the_last_document_is_shown_with_its_age(
    place: Place, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = submit(place.store)
    address = f"/processes/{one.id}"
    assert "does not answer" not in page(reader, address).text

    def down(*_: object, **__: object) -> None:
        raise StoreError("the store does not answer", code="store_down", hint="calve doctor")

    monkeypatch.setattr(Desk, "perform", down)
    monkeypatch.setattr("calve.web.documents.KEEP_SECONDS", 0.0)
    html = page(reader, address)
    assert "The store does not answer." in html.text and one.id in html.text
    assert not [form for form in html.forms if "/do/" in form.action]
    answer = reader.get("/processes/other000000000")
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert ("meta", {"http-equiv": "refresh", "content": "5"}) in Html(answer.text).tags
    monkeypatch.undo()
    assert "does not answer" not in page(reader, address).text


def test_a_defect_is_a_page_without_its_text(
    reader: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(Desk, "check", broken)
    html = page(reader, "/tables", status=500)
    assert "a secret" not in html.text and "bug" in html.text
    assert "a secret" in caplog.text


def test_every_path_of_a_page_is_its_own() -> None:
    assert len(set(PATHS.values())) == len(PATHS)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/processes?after=garbage", 404),
        ("/processes?since=99999999999d", 400),
        ("/tables?page=99999999999999999999", 400),
        ("/tables?page=999999999", 200),
        ("/tables/of?source=main:db.events&to=lake.ns.events&page=999999999", 200),
        ("/processes/nope?after=1", 404),
        ("/backups?page=999999999", 200),
        ("/backups/of", 400),
        ("/search?q=%25%25", 200),
    ],
)
def test_what_nobody_would_ask_is_answered(reader: httpx.Client, address: str, status: int) -> None:
    page(reader, address, status)


def test_the_system_says_which_looks_failed(place: Place, reader: httpx.Client) -> None:
    subject = "main:failing.t -> lake.failing.t"
    assert place.store.claim_look(subject, "pair", again_seconds=0, lease_seconds=60)
    place.store.fail_look(subject, "pair", "the source did not <answer>")
    text = reader.get("/system", headers={"X-Calve-After": f"x.{10**17}.0"}).text  # made anew
    assert "main:failing.t" in text and "the source did not &lt;answer&gt;" in text


def test_processes_of_every_kind_can_be_asked_for(reader: httpx.Client) -> None:
    offered = [given.get("value") for tag, given in page(reader, "/processes").tags if tag == "option"]
    assert set(KINDS) <= set(offered)
