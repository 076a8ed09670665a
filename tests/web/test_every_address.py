"""Every link of every page, followed as a browser would behind a proxy; what a page makes a browser load; and the policy
that every answer carries."""

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from starlette.routing import Route

from calve.model.access import Role
from calve.model.errors import ErrorInfo
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running, submit
from calve.web.assets import Assets
from calve.web.frame import POLICY
from support.html import Html
from support.reverse_proxy import behind_a_proxy
from web.conftest import SETTINGS, Place, page

ROOT = "/a/b"
BACKUP = "crawled-1116"
RULES = """
[policy.crawled]
source = "main:db.events"
to = "lake.ns.events"
release = "quarantine"
[backup.schedule.nightly]
every = "1d"
at = "02:00"
tables = "db.*"
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A store with something on every page."""
    made = Place(tmp_path_factory.mktemp("crawled"), looks=False, settings=SETTINGS + RULES)
    with made.calve:
        made.seen_backup(BACKUP)
        error = ErrorInfo(code="denied", message="refused", hint="allow it")
        for kind in ("export", "optimize", "backup", "restore"):
            given = {"kind": kind, "source": f"main:db.{kind}", "destination": f"lake.ns.{kind}"}
            submit(made.store, **given)
            move(made.store, running(made.store, **given), ProcessState.FAILED, error=error)
        running(made.store, tasks=120, source="main:db.long", destination="lake.ns.long")
        yield made


@pytest.mark.parametrize(("role", "strips"), [(Role.VIEWER, False), (Role.ADMIN, True)], ids=str)
def test_every_link_of_every_page_leads_somewhere_behind_a_proxy(
    crawled: Place, role: Role, strips: bool
) -> None:
    with (
        crawled.served(root_path=ROOT, behind_proxy=True) as server,
        behind_a_proxy(server.removesuffix(ROOT), ROOT, strips=strips) as url,
        crawled.browser(url.removesuffix(ROOT)) as client,
    ):
        answer = client.get(f"{ROOT}/tables?q=a%26b")
        assert answer.status_code == 303, "reading needs a session behind a proxy"
        sign_in = urljoin(str(answer.url), answer.headers["location"])
        form = page(client, sign_in).form("sign-in")
        data = form.filled(secret=crawled.token(role), role=role.value)
        answer = client.post(urljoin(sign_in, form.action), data=data)
        assert urljoin(sign_in, answer.headers["location"]) == f"{url}/tables?q=a%26b", (
            "and back where it was"
        )
        seen = _crawl(client, f"{url}/")
    wanted = {
        "", "tables", "tables/of", "processes", "processes/ID", "backups", "backups/of", "backups/restore", "system",
        "policies", "policies/of", "policies.json", "policies.csv", "policies/of.json",
        "attention.json", "tables.json", "tables.csv", "processes.json", "processes.csv", "processes/ID.json",
        "backups.json", "system.json",
    }  # fmt: skip
    if role is Role.ADMIN:
        wanted |= {
            f"confirm/{name}"
            for name in (
                "cancel",
                "retry",
                "backup_delete",
                "backup_verify",
                "halt",
                "policy_run",
                "policy_pause",
                "hold_add",
                "schedule_run",
            )
        }
    assert not (missing := wanted - seen), missing


def _crawl(client: httpx.Client, start: str) -> set[str]:
    """Every page below an address, one of each kind: kinds by path and by the names of what the query says."""
    todo, seen, kinds = [start], set[str](), set[tuple[str, tuple[str, ...]]]()
    while todo:
        address = todo.pop()
        answer = client.get(address)
        if answer.is_redirect:
            todo.append(urljoin(address, answer.headers["location"]))
            continue
        assert answer.status_code == 200, (address, answer.status_code, answer.text[:200])
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        html = Html(answer.text)
        for link in [*html.urls, *(form.action for form in html.forms)]:
            assert not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", link), f"{link} on {address} is not relative"
            to = urljoin(address, link.partition("#")[0])
            assert to.startswith(start), (address, link)
        for link in html.urls:
            to = urlsplit(urljoin(address, link.partition("#")[0]))
            path = to.path.removeprefix(urlsplit(start).path)
            names = tuple(sorted({pair.partition("=")[0] for pair in to.query.split("&")}))
            if (path, names) not in kinds and path not in ("search", "sign-in", "tables/plan", "tables/new"):
                kinds.add((path, names))
                seen.add(re.sub(r"[a-z0-9]{13}", "ID", path))
                todo.append(to.geturl())
    return seen


def test_a_page_makes_a_browser_load_the_style_the_script_and_the_icon_and_nothing_else(
    crawled: Place,
) -> None:
    """Two requests for a page that is not the first: itself, and the stream. The files are kept for ever."""
    known = set(Assets().known)
    with crawled.served() as url, crawled.browser(url) as client:
        for address in (
            "/",
            "/tables",
            "/processes",
            "/backups",
            f"/backups/of?name={BACKUP}",
            "/policies",
            "/policies/of?name=crawled",
            "/system",
            "/sign-in",
        ):
            html = page(client, address)
            loaded = [
                given.get("href") or given["src"]
                for tag, given in html.tags
                if tag == "link" or "src" in given
            ]
            names = [re.sub(r"\.[0-9a-f]{16}", "", url.rpartition("/")[2]) for url in loaded]
            assert len(names) == len(set(names)) and set(names) <= known, names
            for file in loaded:
                answer = client.get(urljoin(f"{url}{address}", file))
                assert answer.status_code == 200
                assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
                assert not re.search(rb"@import|url\((?!\"#)", answer.content), "a file loads another one"
            assert not {tag for tag, _ in html.tags} & {
                "img",
                "iframe",
                "object",
                "embed",
                "video",
                "audio",
                "source",
            }


def test_every_answer_has_a_strict_policy(crawled: Place) -> None:
    with crawled.served() as url, crawled.browser(url) as client:
        process = submit(crawled.store).id
        seen = set[str]()
        for route in crawled.routes:
            if not isinstance(route, Route):
                continue
            path = route.path
            for name, value in {
                "id": process,
                "action": "cancel",
                "key": "0" * 16,
                "address": "x",
                "path:path": "x",
            }.items():
                path = path.replace(f"{{{name}}}", value)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                answer = client.request(method, path)
                policy = answer.headers["content-security-policy"]
                html = answer.headers.get("content-type", "").startswith("text/html")
                assert policy == POLICY if html else policy.startswith("default-src 'none'"), (method, path)
                assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                seen.add(route.path)
        assert len(seen) > 30


def test_a_page_has_no_script_and_no_style_inside(crawled: Place) -> None:
    with crawled.served() as url, crawled.browser(url) as client:
        for address in (
            "/",
            "/tables",
            "/processes",
            "/backups",
            "/policies",
            "/policies/of?name=crawled",
            "/system",
            "/sign-in",
            "/confirm/doctor",
            "/nothing",
        ):
            text = client.get(address).text
            html = Html(text)
            for tag, given in html.tags:
                assert tag != "style" and "style" not in given, (address, tag, given)
                assert not [name for name in given if name.startswith("on")], (address, tag, given)
                assert tag != "script" or "src" in given, address
            assert "javascript:" not in text
