"""A real installation for a browser: server, worker, embedded ClickHouse, a lake in a folder, all in this program; only
tasks run in a child. The first tables are exported before the first page is opened."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.app.rules import following_rules
from calve.app.wiring import App
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.access import Caller, Role
from calve.web.front import dashboard
from support.browser import Person
from support.served import served_here
from support.watched_runner import WatchedRunner

SETTINGS = """
[source.main]
url = "chdb://{folder}/clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///{folder}/catalog.db"
warehouse = "file://{folder}/warehouse"
[catalog.far]
type = "sql"
uri = "{far}"
warehouse = "file://{folder}/far"
[backup]
url = "{folder}/backups"
[limits]
requests_per_second = 5000
tick_seconds = 0.05
slots = 1
connect_seconds = 2
call_seconds = 6
probe_seconds = 0.5
backoff_first_seconds = 0.1
backoff_most_seconds = 1
"""
OpenAs = Callable[..., Person]
_ADMIN = Caller(name="test", role=Role.ADMIN)
ROWS = 300  # of a table, in three partitions


class Scene:
    """`table(name)` makes one more; `exported(name)` also brings it to the lake."""

    def __init__(self, folder: Path, runner: WatchedRunner, far: str, *, rules: str = "") -> None:
        """`far`: the database of a second catalog, which a test may cut off. `rules`: more of the configuration."""
        self.folder = folder
        self.runner = runner
        self.url = self.first = ""
        (folder / "calve.toml").write_text(SETTINGS.format(folder=folder, far=far) + rules)
        self.calve = Calve(load_config(folder / "calve.toml", environ={}))
        self._desk = Desk(self.calve)
        self._sessions: dict[Role, tuple[str, str]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self.calve)
        self.table("events")
        self._open.enter_context(self.worker())
        self.url = self._open.enter_context(self.served())
        ids = self.export("events", "1", "2")
        self.finish(ids)
        self.first = ids[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    # -- what runs ----------------------------------------------------------------------------------

    @contextmanager
    def served(self, **options: Any) -> Iterator[str]:
        with served_here(self.folder, fronts=[dashboard], **options) as url:
            yield url

    @contextmanager
    def worker(self) -> Iterator[None]:
        app = App(load_config(self.folder / "calve.toml", environ={}), runner=self.runner)
        loop = app.worker()
        thread = threading.Thread(target=loop.run, name="calve-worker", daemon=True)
        thread.start()
        try:
            with following_rules(app):
                yield
        finally:
            loop.request_stop()
            loop.request_stop()
            thread.join(60)
            app.close()
            assert not thread.is_alive(), "the worker did not stop"

    # -- what there is ------------------------------------------------------------------------------

    def execute(self, *statements: str) -> None:
        with EmbeddedSource("main", self.folder / "clickhouse", create=True).visit() as session:
            for statement in statements:
                session.execute(statement)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with EmbeddedSource("main", self.folder / "clickhouse").visit() as session:
            return session.rows(sql)

    def table(self, name: str, rows: int = ROWS) -> str:
        """Three partitions: 0, 1 and 2."""
        self.execute(
            "CREATE DATABASE IF NOT EXISTS db",
            f"CREATE TABLE db.{name} (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id",
            f"INSERT INTO db.{name} SELECT number, number % 3 FROM numbers({rows})",
        )
        return f"main:db.{name}"

    def export(self, name: str, *partitions: str, catalog: str = "lake") -> list[str]:
        asked = {"table": f"db.{name}", "to": f"{catalog}.ns.{name}", "partitions": list(partitions)}
        return [one["id"] for one in self.perform("export", **asked)["processes"]]

    def finish(self, ids: list[str]) -> None:
        for _ in self.calve.follow(ids):
            pass

    def perform(self, verb: str, **given: Any) -> Any:
        return self._desk.perform(_ADMIN, verb, given)

    def address(self, name: str) -> str:
        """Of the table's page."""
        return f"tables/of?source=main:db.{name}&to=lake.ns.{name}"

    def at(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{self.address(name)}"

    def session(self, role: Role) -> tuple[str, str]:
        """The cookie of one who has signed in."""
        if role not in self._sessions:
            self._sessions[role] = self.new_session(role)
        return self._sessions[role]

    def new_session(self, role: Role, name: str = "") -> tuple[str, str]:
        token = str(self.calve.token_new(role.value, name=name)["token"])
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        with httpx.Client(base_url=self.url, headers=headers, trust_env=False) as client:
            answer = client.post("/sign-in", data={"secret": token, "role": role.value})
            assert answer.status_code == 303, answer.text
            (cookie,) = client.cookies.items()
        return cookie

    def addresses(self) -> list[str]:
        """Of each page, with data."""
        return [
            "",
            "tables",
            self.address("events"),
            "processes",
            f"processes/{self.first}",
            f"confirm/cancel?ids={self.first}",
            "backups",
            "backups/restore",
            "policies",
            "confirm/hold_add",
            "system",
            "search?q=db.ev",
            "sign-in",
            "nowhere",
        ]
