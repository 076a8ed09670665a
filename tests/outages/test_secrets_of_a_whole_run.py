"""P22: a canary secret guards every service, each is used and each fails; nothing that the run leaves or shows has one."""

import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from canaries import CANARIES, PLANTED, PROXY, STORE, WRONG, Guarded, guarded_services

from calve.objects.storage import Storage
from support.catalog_faults import Told
from support.outage_place import BUCKET
from support.postgres import Postgres, postgres

pytestmark = [pytest.mark.services, pytest.mark.spark]

DESTINATIONS = {
    "0": "far.ns.events",
    "1": f"s3://{BUCKET}/plain/",
    "2": "client.nsclient.events",
    "3": "token.nstoken.events",
}


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """With users who need a password."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, own_postgres: Postgres) -> Iterator[Guarded]:
    with guarded_services(tmp_path_factory.mktemp("guarded"), own_postgres) as services:
        yield services


@pytest.mark.timeout(900)
def test_P22_nothing_that_a_run_leaves_or_shows_holds_a_secret(guarded: Guarded) -> None:
    _check_that_each_is_needed(guarded)
    seen: list[str] = []
    made, _ = guarded.json("token", "new", "--role", "operator")  # shown once, here
    with guarded.server() as (server, client), _watching(server.pid) as processes:
        host = client.headers["Authorization"].split("_", 2)[2]
        ids = _export(guarded, seen)
        refused, text = guarded.json(
            "export", "db.events", "--partition", "4", "--to", "refused.ns.events", "--debug", codes=(1,)
        )
        seen += [text, *_ask_about(guarded, [*ids, refused["id"]])]
        # P9: refused at once, not tried for an hour.
        assert (refused["state"], refused["error"]["retryable"]) == ("FAILED", False)
        seen += _ask_the_server(client, refused["id"])
        seen += _fail_one_after_another(guarded)
        seen += _ask_the_server(client, refused["id"])
    seen += [server.output.read_text()]
    assert any("java" in line for line in processes.command_lines)
    assert guarded.tokens.given and guarded.tokens.refused
    stored = _everything_in(guarded.store_url)
    canaries = (*CANARIES, made["token"].split("_", 2)[2], host)
    for canary in canaries:
        assert [text[:300] for text in seen if canary in text] == []
        assert [line for line in processes.command_lines if canary in line] == []
        assert [line.split("=")[0] for line in processes.variables if canary in line] == []
        assert canary not in stored
    for file in _left_in(guarded.folder):
        data = _bytes(file)
        assert [canary for canary in canaries if canary.encode() in data] == [], file
    guarded.s3.start()
    _check_objects(guarded)


def _check_that_each_is_needed(guarded: Guarded) -> None:
    """A canary that opens nothing proves nothing."""
    for url in (guarded.store_url, guarded.catalog_url):
        psycopg.connect(url).close()
        user, host = url.split("@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"{user.rpartition(':')[0]}:{WRONG}@{host}")


def _export(guarded: Guarded, seen: list[str]) -> list[str]:
    ids = []
    for partition, to in DESTINATIONS.items():
        queued, text = guarded.json(
            "export", "db.events", "--partition", partition, "--to", to, "--no-wait", "--debug"
        )
        ids.append(queued["id"])
        seen.append(text)
    ended, text = guarded.json("wait", *ids, "--debug")
    assert [(one["state"], one["rows"]) for one in ended] == [("COMPLETED", 200)] * len(ids)
    seen.append(text)
    return ids


def _ask_about(guarded: Guarded, ids: list[str]) -> list[str]:
    seen = [
        guarded.calve("config", "--json"),
        guarded.calve("config"),
        guarded.calve("ps", "--all", "--json"),
        guarded.calve("show", "--json", ids[0]),
        guarded.calve("token", "list", "--json"),
        guarded.calve("policy", "run", "events", "--dry-run", "--debug"),
        guarded.calve("policy", "show", "events", "--json"),
        # The engine that the view would read with is refused by the server, which repeats what it was given.
        guarded.calve(
            "view", "db.events", "--to", "far.ns.events", "--as", "db.events_all", "--debug", codes=(1, 2, 4)
        ),
    ]
    report = guarded.folder / "report.zip"
    seen.append(guarded.calve("support", "--with-names", "--output", str(report)))
    with zipfile.ZipFile(report) as bundle:
        seen += [bundle.read(name).decode() for name in bundle.namelist()]
    return seen + [guarded.calve(*question, ids[-1]) for question in _QUESTIONS]


_QUESTIONS = (("show", "--json"), ("show",), ("events",), ("why",))


_FILLED = {
    "table": "db.events", "to": "far.ns.events", "name": "events", "partition": "4", "q": "events", "source": "main:db.events",
}  # fmt: skip
_PAGES = ("/", "/processes", "/policies", "/backups", "/system", "/metrics", "/healthz", "/readyz")


def _ask_the_server(client: httpx.Client, id: str) -> list[str]:
    """Every question of its own document, pages, metrics, SQL; the wrong token, in each place that takes one."""
    document = client.get("/v1/openapi.json")
    paths = {path: one["get"] for path, one in document.json()["paths"].items() if "get" in one}
    answers = [document, *(client.get(path) for path in _PAGES)]
    for path, question in paths.items():
        if not path.endswith("/stream"):
            given = {
                one["name"]: _FILLED[one["name"]]
                for one in question.get("parameters", ())
                if one["in"] == "query" and one["name"] in _FILLED
            }
            answers.append(client.get(path.format(id=id, ids=id, name="events"), params=given))
    for name in ("processes", "tasks", "events", "workers"):
        answers.append(client.post("/", content=f"SELECT * FROM calve.{name} FORMAT JSON"))
    wrong = {"Authorization": f"Bearer {WRONG}"}
    answers += [
        client.get("/v1/config", headers=wrong),
        client.post("/", content="SELECT 1", headers=wrong | {"X-ClickHouse-Key": WRONG}),
    ]
    good = sum(answer.is_success for answer in answers)
    assert good > len(answers) / 2, [(str(answer.url), answer.status_code) for answer in answers]
    assert answers[-2].status_code in (401, 403)
    return [answer.text + str(answer.headers) for answer in answers]


_PROXIES = dict.fromkeys(
    ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), f"http://anne:{PROXY}@127.0.0.1:1"
)


def _fail_one_after_another(guarded: Guarded) -> list[str]:
    """Each service with wrong secrets, then dead; asked with tracebacks on."""
    wrong_store = guarded.store_url.replace(STORE, WRONG)
    dead_store = guarded.store_url.replace(guarded.store_url.split("@")[1].split("/")[0], "127.0.0.1:1")
    export = ("export", "db.events", "--partition", "4", "--debug", "--no-wait=queued", "--to")
    seen = [
        guarded.calve("ps", "--debug", codes=(1, 2), CALVE_STORE__URL=wrong_store),
        guarded.calve("ps", "--debug", codes=(1, 2), CALVE_STORE__URL=dead_store),
        guarded.calve("partitions", "db.events", "--debug", codes=(1,), CALVE_SOURCE__MAIN__PASSWORD=WRONG),
        # Whoever takes the proxy of the environment fails at it, and its address has a password.
        guarded.calve("doctor", "--no-spark", "--debug", codes=(0, 1), **_PROXIES),
    ]
    guarded.tokens.expire()
    seen.append(guarded.calve(*export, "token.nstoken.events", codes=(1,)))
    guarded.rest.ails = Told.UNAVAILABLE
    seen.append(guarded.calve(*export, "client.nsclient.events"))
    guarded.s3.kill()
    seen.append(guarded.calve(*export, f"s3://{BUCKET}/plain/"))
    guarded.front.kill()
    seen.append(guarded.calve("partitions", "db.events", "--debug", codes=(1,)))
    seen.append(guarded.calve("doctor", "--no-spark", "--debug", codes=(1,)))
    seen.append(guarded.calve("ps", "--all"))
    return seen


# -- what everybody on the machine can see --------------------------------------------------------------


class _watching:  # noqa: N801 - reads as a sentence
    """Looks at every program's command line, and at what our own gave to their children, all the while."""

    def __init__(self, ours: int) -> None:
        self.command_lines: set[str] = set()
        self.variables: set[str] = set()
        self._ours, self._over = ours, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_watching":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.3):
            for folder in Path("/proc").glob("[0-9]*"):
                self._look(folder)

    def _look(self, folder: Path) -> None:
        try:
            self.command_lines.add((folder / "cmdline").read_bytes().decode(errors="replace"))
            if os.getpgid(int(folder.name)) == self._ours:
                environment = (folder / "environ").read_bytes().decode(errors="replace")
                self.variables.update(environment.split("\0"))
        except (OSError, ProcessLookupError):
            return  # it ended meanwhile


def _left_in(folder: Path) -> list[Path]:
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in PLANTED]
    assert any(file.name == "serve.log" for file in files)
    return files


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # it was removed meanwhile


def _everything_in(url: str) -> str:
    """Every row of every table of the store."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert ("processes",) in tables
        return "\n".join(
            str(row)
            for (table,) in tables
            for row in connection.execute(f'SELECT * FROM "{table}"'.encode()).fetchall()
        )


def _check_objects(guarded: Guarded) -> None:
    storage = Storage(guarded.s3.properties())
    objects = storage.list(f"s3://{BUCKET}/")
    assert len(objects) > 5
    for uri in objects:
        data = storage.read(uri)
        assert not [canary for canary in CANARIES if canary.encode() in data], uri
