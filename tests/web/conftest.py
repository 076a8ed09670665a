import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.token_file import read_token
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.http.server import Shared
from calve.model.access import Role
from calve.model.seen import Sighting
from calve.store import SqlStore
from calve.web.front import dashboard
from support.html import Html
from support.served import served_here

SETTINGS = """
[source.main]
url = "chdb://{folder}/clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///{folder}/catalog.db"
warehouse = "file://{folder}/warehouse"
[limits]
requests_per_second = 5000
answer_seconds = 60
[policy.shown]
source = "main:web.events"
to = "lake.web.events"
"""


class Place:
    """A folder with a store, and servers with the dashboard over it. Without `looks` nothing is looked at because a
    page is open, so what a test says was seen stays so."""

    def __init__(self, folder: Path, *, looks: bool = True, settings: str = SETTINGS) -> None:
        self.folder = folder
        self._looks = looks
        (folder / "calve.toml").write_text(settings.format(folder=folder))
        self.calve = Calve(load_config(folder / "calve.toml", environ={}))
        store = self.calve.registry
        assert isinstance(store, SqlStore)
        self.store = store
        self.url, self.cookie = "", ""
        self.routes: list[BaseRoute] = []  # of the last server
        self._tokens: dict[Role, str] = {}

    @contextmanager
    def served(self, **options: Any) -> Iterator[str]:
        with served_here(self.folder, fronts=[self._front], **options) as url:
            yield url

    def _front(self, shared: Shared) -> Sequence[BaseRoute]:
        self.cookie = shared.cookie
        if not self._looks:
            shared.lookout.next = lambda: None  # type: ignore[method-assign]
        self.routes = [*dashboard(shared), *shared.last]
        return self.routes[: -len(shared.last)]

    def seen_backup(self, name: str) -> None:
        """A backup that the server has seen, and that is not there."""
        seen = {"name": name, "created_at": "2026-11-16T12:00:00+00:00", "source": "main", "process": None, "tables": 1,
                "parts": 1, "rows": 10, "bytes": 100, "own_bytes": 40, "error": None, "left_out": [],
                "contents": {"db.events": ["202601"]}}  # fmt: skip
        look = Sighting(subject=self.calve.config.backup_url, what="backups", summary="{}", seen_by="test")
        self.store.put_sighting(look, [json.dumps([seen])])

    def token(self, role: Role) -> str:
        if role not in self._tokens:
            self._tokens[role] = str(self.calve.token_new(role.value, name=f"{role.value}-1")["token"])
        return self._tokens[role]

    def browser(self, url: str = "", **headers: str) -> httpx.Client:
        """Keeps cookies, follows nothing, says that it wants HTML and that its own pages ask."""
        given = {"Accept": "text/html,*/*", "Origin": url or self.url, "Sec-Fetch-Site": "same-origin"}
        return httpx.Client(
            base_url=url or self.url,
            headers={**given, **headers},
            timeout=30,
            trust_env=False,
            follow_redirects=False,
        )

    @contextmanager
    def signed_in(self, role: Role | None) -> Iterator[httpx.Client]:
        with self.browser() as client:
            if role:
                answer = client.post("/sign-in", data={"secret": self.token(role), "role": role.value})
                assert answer.status_code == 303, answer.text
            yield client

    def local_token(self) -> str:
        return read_token(self.folder / "calve.token")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """On this host: reading needs no session. Shared: a test makes what it counts."""
    made = Place(tmp_path_factory.mktemp("dashboard"), looks=False)
    with made.calve, made.served() as made.url:
        yield made


@pytest.fixture(scope="session")
def table(place: Place) -> str:
    with EmbeddedSource("main", place.folder / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE web")
        session.execute(
            "CREATE TABLE web.events (day Date, n UInt64) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY n"
        )
        session.execute(
            "INSERT INTO web.events SELECT toDate('2026-01-31') + number % 2, number FROM numbers(10)"
        )
    return "main:web.events"


@pytest.fixture
def reader(place: Place) -> Iterator[httpx.Client]:
    with place.browser() as client:
        yield client


@pytest.fixture
def operator(place: Place) -> Iterator[httpx.Client]:
    with place.signed_in(Role.OPERATOR) as client:
        yield client


def page(client: httpx.Client, address: str, status: int = 200) -> Html:
    """A page that was read, and is well-formed."""
    answer = client.get(address)
    assert answer.status_code == status, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Html(answer.text)
