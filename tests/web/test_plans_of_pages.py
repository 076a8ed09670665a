"""Plans on pages: what is started is what was shown, or nothing; a restore is chosen step by step and ends in a plan."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import httpx
import pytest

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Role
from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running
from calve.web.links import is_own
from calve.web.pages import PATHS, RESTORE
from calve.web.plans import again, differences
from support.html import Html
from support.local_runner import LocalRunner
from support.outage_place import until
from web.conftest import Place, page
from web.test_forms import arrived

SOURCE = "main:shop.sales"
TABLE = "(day Date, n UInt64) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY n"


def sql(place: Place, *statements: str) -> list[Any]:
    with EmbeddedSource("main", place.folder / "clickhouse", create=True).visit() as session:
        return [session.rows(one) if one.startswith("SELECT") else session.execute(one) for one in statements]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A table of three months, and a backup of it that the server has looked at."""
    made = Place(tmp_path_factory.mktemp("shop"), looks=False)
    runner = made.calve._app.__dict__["runner"] = LocalRunner()
    sql(
        made,
        "CREATE DATABASE shop",
        f"CREATE TABLE shop.sales {TABLE}",
        f"CREATE TABLE shop.other {TABLE}",
        "INSERT INTO shop.sales SELECT toDate('2026-01-15') + 30 * (number % 3), number FROM numbers(9)",
    )
    with pytest.MonkeyPatch.context() as patch, made.calve, made.served() as made.url:
        patch.setattr(
            "calve.web.documents.KEEP_SECONDS", 0.0
        )  # what a page shows is as new as what it is compared with
        finished(made, made.calve.backup_create("first", ["shop.*"]).process.id)
        with made.browser() as reader:
            answered(reader, "/v1/backups?contents=true")
        yield made
    runner.close()


@pytest.fixture
def admin(shop: Place) -> Iterator[httpx.Client]:
    with shop.signed_in(Role.ADMIN) as client:
        yield client


def finished(place: Place, id: Any) -> None:
    *_, last = place.calve.run([id])
    assert [one.state for one in last.processes] == [ProcessState.COMPLETED], last.processes


def answered(client: httpx.Client, address: str) -> Any:
    """What the API answers in the end."""
    while (answer := client.get(address)).status_code == 202:
        pass
    assert answer.status_code == 200, answer.text[:500]
    return answer.json()


def planned(client: httpx.Client, address: str) -> Html:
    """The plan, after the page was asked for as often as a browser would. Its document waits for the same answer."""
    path, _, query = address.partition("?")
    client.get(f"{path}.json?{query}")
    while 'http-equiv="refresh"' in (answer := client.get(address)).text:
        pass
    assert answer.status_code == 200, answer.text[:500]
    return Html(answer.text)


def test_backups_are_listed_with_what_they_share_and_what_deleting_frees(
    shop: Place, admin: httpx.Client
) -> None:
    html = page(admin, "/backups")
    assert "first" in html.text and "Deleting frees" in html.text and "never" in html.text
    [document] = admin.get("/backups.json").json()["backups"]
    assert document["shares"] + document["frees"] == document["bytes"]
    assert admin.get("/backups.csv").text.splitlines()[1].startswith("first,")
    html = page(admin, "/backups/of?name=first")
    assert "shop.sales" in html.text and "202601" in html.text and "calve backup restore first" in html.text
    page(admin, "/backups/of?name=none", status=404)


def test_a_backup_made_since_the_last_look_is_listed(shop: Place, admin: httpx.Client) -> None:
    """What deleting it would free nobody knows yet."""
    finished(shop, shop.calve.backup_create("since", ["shop.other"]).process.id)
    # A page is shared for a second, and another test may have asked for this one within it.
    until(lambda: "since" in page(admin, "/backups").text, "the backup on the page")
    assert "not looked at yet" in page(admin, "/backups/of?name=since").text
    assert "not looked at yet" in page(admin, "/backups/restore?name=since").text


def test_a_restore_ends_in_a_plan_and_starts_exactly_that(shop: Place, admin: httpx.Client) -> None:
    choice = page(admin, "/backups/restore").form("restore")
    assert choice.method == "get"
    form = page(admin, "/backups/restore?name=first").form("restore").filled()
    assert form["into"] == ["shop_restored"] and sorted(form["tables"]) == ["shop.other", "shop.sales"]
    assert form["existing"] == ["refuse"], "what exists is left alone, unless somebody decides otherwise"
    asked = {**form, "tables": ["shop.sales"], "partitions": ["202601 202602"]}
    html = planned(admin, f"/backups/restore?{urlencode(asked, doseq=True)}")
    assert "shop_restored.sales" in html.text and "Nothing that exists is changed" in html.text
    start = html.form("do/backup_restore").filled()
    assert start["plan_hash"][0].startswith("r1-") and start["partitions"] == ["202601", "202602"]
    assert f"--plan {start['plan_hash'][0]}" in html.text
    answer = arrived(admin, admin.post("/do/backup_restore", data=start))
    [made] = shop.store.processes(ProcessQuery(kind="restore"))
    assert answer.headers["location"].endswith(f"processes/{made.id}")
    finished(shop, made.id)
    assert sql(shop, "SELECT count() AS n FROM shop_restored.sales") == [[{"n": 6}]]
    until(lambda: made.id in page(admin, "/backups").text, "the restore on the page: a list of their own")
    assert "restored" in page(admin, "/backups/of?name=first").text


def test_a_restore_whose_plan_changed_shows_both_and_starts_nothing(shop: Place, admin: httpx.Client) -> None:
    address = "/backups/restore?name=first&into=changed&existing=append&plan=1"
    start = planned(admin, address).form("do/backup_restore").filled()
    sql(shop, "CREATE DATABASE changed", f"CREATE TABLE changed.sales {TABLE}")
    answer = arrived(admin, admin.post("/do/backup_restore", data=start))
    html = planned(admin, urljoin(str(answer.url), answer.headers["location"]))
    assert "The plan changed after it was shown" in html.text
    assert (
        "table changed.sales" in html.text
        and "is created; 9 rows" in html.text
        and "exists; 9 rows" in html.text
    )
    assert not shop.store.processes(
        ProcessQuery(kind="restore", destination="main:changed.other,changed.sales")
    )
    now = html.form("do/backup_restore").filled()
    assert now["plan_hash"] != start["plan_hash"] and now["key"] != start["key"]
    answer = arrived(admin, admin.post("/do/backup_restore", data=now))
    assert "/processes/" in answer.headers["location"], "the new plan can be started"


def test_what_cannot_be_restored_so_has_no_button(shop: Place, admin: httpx.Client) -> None:
    html = planned(admin, "/backups/restore?name=first&existing=refuse&plan=1")
    assert "This cannot be restored so" in html.text and "shop.sales" in html.text
    assert not [form for form in html.forms if form.action.endswith("do/backup_restore")]
    [back] = [url for url in html.urls if "restore?name=first" in url]
    assert page(admin, urljoin("/backups/restore", back)).form("restore").filled()["into"] == [""]


def test_replacing_is_typed(shop: Place, admin: httpx.Client) -> None:
    html = planned(admin, "/backups/restore?name=first&existing=replace&plan=1")
    assert "are lost" in html.text and "cannot be undone" in html.text
    start = html.form("do/backup_restore").filled()
    assert start["typed"] == [""]
    before = len(shop.store.processes(ProcessQuery(kind="restore")))
    assert admin.post("/do/backup_restore", data=start).status_code == 409
    assert len(shop.store.processes(ProcessQuery(kind="restore"))) == before


def test_an_operator_may_look_at_backups_and_not_restore_one(shop: Place) -> None:
    with shop.signed_in(Role.OPERATOR) as operator:
        assert "Needs admin." in page(operator, "/backups/restore?name=first").text
        page(operator, "/backups/restore?name=first&plan=1", status=403)
        assert operator.get("/backups/restore.json?name=first").status_code == 403


def test_an_export_whose_plan_changed_shows_both_and_starts_nothing(shop: Place, admin: httpx.Client) -> None:
    address = f"/tables/plan?source={SOURCE}&to=lake.shop.grown&all=1"
    html = planned(admin, address)
    start = html.form("do/export").filled()
    [shown] = start["plan_hash"]
    assert shown[:12] in html.text and f"--plan {shown}" in html.text
    sql(shop, "INSERT INTO shop.sales VALUES ('2026-01-20', 100)")
    answer = arrived(admin, admin.post("/do/export", data=start))
    changed = urljoin(str(answer.url), answer.headers["location"])
    html = planned(admin, changed)
    assert "The plan changed after it was shown" in html.text
    assert "3 rows in 1 parts" in html.text and "4 rows in 2 parts" in html.text
    assert not shop.store.processes(ProcessQuery(destination="lake.shop.grown"))
    exact, then = [form.filled() for form in html.forms if form.action.endswith("do/export")]
    assert exact["plan_hash"] != [shown] and "plan_hash" not in then
    # The hash of a restore, which a viewer may not see, shows none of it here.
    other = (
        planned(admin, "/backups/restore?name=first&into=secret&plan=1").form("do/backup_restore").filled()
    )
    crossed = planned(admin, f"{address}&was={other['plan_hash'][0]}")
    assert "secret" not in crossed.text and "does not have the earlier plan" in crossed.text
    # Another server has not seen the first plan: it says so, and asks all the same.
    with shop.served() as url, shop.browser(url) as other:
        other.cookies.update(dict(admin.cookies))
        html = planned(other, f"{url}{urlsplit(changed).path}?{urlsplit(changed).query}")
        assert "does not have the earlier plan any more" in html.text
    answer = arrived(admin, admin.post("/do/export", data=exact))
    made = shop.store.processes(ProcessQuery(destination="lake.shop.grown"))
    assert len(made) == 3 and answer.headers["location"].endswith(f"processes?batch={made[0].batch}")


def test_a_plan_that_no_page_can_show_is_asked_for_without_its_hash(shop: Place, admin: httpx.Client) -> None:
    address = f"/confirm/export?table={SOURCE}&to=lake.shop.where&all=1&where=n%3E1&plan_hash=p1-0"
    form = page(admin, address).form("do/export").filled()
    answer = arrived(admin, admin.post("/do/export", data=form), status=409)
    again = Html(answer.text).form("do/export").filled()
    assert "not the plan that was approved" in Html(answer.text).text
    assert again["where"] == ["n>1"] and "plan_hash" not in again
    assert not shop.store.processes(ProcessQuery(destination="lake.shop.where"))


def test_a_range_of_the_list_is_a_selection(shop: Place, admin: httpx.Client) -> None:
    to = "lake.shop.range"
    move(shop.store, running(shop.store, source=SOURCE, destination=to), ProcessState.FAILED)
    answered(admin, f"/v1/partitions?table={SOURCE}&to={to}")
    listed = [row["id"] for row in admin.get(f"/tables/of.json?source={SOURCE}&to={to}").json()["partitions"]]
    assert len(listed) == 3
    matrix = page(admin, f"/tables/of?source={SOURCE}&to={to}").form("plan")
    assert {"first", "last"} <= {name for name, _ in matrix.fields}
    for ends in ((listed[0], listed[1]), (listed[1], listed[0])):
        address = f"/tables/plan?source={SOURCE}&to={to}&first={ends[0]}&last={ends[1]}"
        assert planned(admin, address).form("do/export").filled()["partitions"] == listed[:2]
    address = f"/tables/plan?source={SOURCE}&to={to}&first={listed[0]}&last={listed[0]}&partition={listed[2]}"
    assert planned(admin, address).form("do/export").filled()["partitions"] == [listed[2], listed[0]]
    assert (
        "not among those"
        in page(admin, f"/tables/plan?source={SOURCE}&to={to}&first=x&last=y", status=400).text
    )
    assert "nothing is selected" in page(admin, f"/tables/plan?source={SOURCE}&to={to}", status=400).text


def test_a_table_that_was_never_exported_is_found_and_started_from_its_matrix(shop: Place) -> None:
    with shop.signed_in(Role.OPERATOR) as operator:
        doors = [one for one in page(operator, "/tables").urls if one.endswith("tables/new")]
        answer = operator.get(f"/{doors[0]}")
        assert answer.headers["location"].endswith("tables/new?source=main"), "there is one source"
        tables = answered(operator, "/tables/new.json?source=main")["tables"]
        assert {one["table"] for one in tables} >= {SOURCE, "main:shop.other"}
        html = planned(operator, f"/tables/new?source=main&q={SOURCE}")
        assert SOURCE in html.text and "shop.other" not in html.text
        [link] = [one for one in html.urls if "confirm/first_look" in one]
        form = page(operator, urljoin(f"{shop.url}/tables/new", link)).form("do/first_look")
        assert form.filled()["to"] == ["lake.shop.sales"], "proposed"
        answer = arrived(operator, operator.post("/do/first_look", data=form.filled(to="lake.shop.never")))
        matrix = page(operator, urljoin(str(answer.url), answer.headers["location"]))
        listed = [given["value"] for tag, given in matrix.tags if given.get("name") == "partition"]
        assert sorted(listed) == ["202601", "202602", "202603"]
        asked = urlencode({"source": SOURCE, "to": "lake.shop.never", "first": "202602", "last": "202603"})
        start = planned(operator, f"/tables/plan?{asked}").form("do/export").filled()
        assert start["plan_hash"][0].startswith("p1-")
        arrived(operator, operator.post("/do/export", data=start))
        made = shop.store.processes(ProcessQuery(source=SOURCE, destination="lake.shop.never"))
        assert sorted(name for one in made for name in one.partitions) == ["202602", "202603"]


def test_a_look_at_a_pair_without_an_export_is_kept_for_those_who_may_export_it(shop: Place) -> None:
    address = f"/tables/of?source={SOURCE}&to=lake.shop.unseen"
    with shop.signed_in(Role.VIEWER) as viewer:
        html = page(viewer, address)
        assert "Nothing was ever exported" in html.text
        assert not [one for one in html.forms if one.action.endswith("first_look")], "needs operator"
        given = {"table": SOURCE, "to": "lake.shop.unseen", "key": "0" * 16}
        assert viewer.post("/do/first_look", data=given).status_code == 403
        assert viewer.get(f"/v1/partitions?table={SOURCE}&to=lake.shop.unseen&keep=true").status_code == 403
    assert shop.store.sighting(f"{SOURCE} -> lake.shop.unseen", "pair") is None
    with shop.signed_in(Role.OPERATOR) as operator:
        form = [one for one in page(operator, address).forms if one.action.endswith("first_look")][-1]
        arrived(operator, operator.post("/do/first_look", data=form.filled()))
        matrix = page(operator, address).text
        assert "Not yet exported" in matrix and "Files at the destination" not in matrix, (
            "there is nothing yet"
        )
        bad = form.filled(to="nowhere.ns.t", key="1" * 16)
        answer = arrived(operator, operator.post("/do/first_look", data=bad), status=400)
        assert Html(answer.text).form("do/first_look").filled()["to"] == ["nowhere.ns.t"], "filled in again"


def test_a_plan_as_json_is_what_the_api_answers(shop: Place, admin: httpx.Client) -> None:
    address = f"/tables/plan.json?source={SOURCE}&to=lake.shop.json&partition=202602"
    assert answered(admin, address)["plan_hash"].startswith("p1-")
    assert answered(admin, "/backups/restore.json?name=first&into=json")["plan_hash"].startswith("r1-")
    assert (
        "www-authenticate"
        not in httpx.get(f"{shop.url}/backups/restore.json?name=first", trust_env=False).headers
    )


def test_the_way_back_to_a_plan_is_a_page_of_ours_and_keeps_what_was_asked() -> None:
    asked = {"name": "a b&c", "into": "x", "plan_hash": "r1-1"}
    address = again("backup_restore", asked, "")
    assert is_own(address, PATHS) and address == "backups/restore?name=a%20b%26c&into=x&plan=1&was=r1-1"
    assert again("backup_restore", {**asked, "plan_hash": "r1-2"}, address) == address[:-1] + "2"
    assert again("backup_restore", {**asked, "unsigned": True}, "") == "", "no page shows that"
    assert again("backup_restore", {"name": "a"}, address) == "" and again("cancel", asked, "") == ""
    assert again("export", {"plan_hash": "p1-1"}, f"{RESTORE.path[1:]}?name=x").startswith("tables/plan?")


def test_plans_that_are_equal_have_no_differences() -> None:
    plan = {"rows": 1, "bytes": 2, "tables": [], "partitions": []}
    assert differences(plan, plan) == []
    assert [one.what for one in differences(plan, {**plan, "rows": 2})] == ["rows"]
    assert re.fullmatch(r"[a-z]+", differences(plan, {**plan, "bytes": 2**20})[0].what)
