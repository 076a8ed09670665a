from collections.abc import Iterator
from typing import Any

import pytest
from scene import OpenAs, Scene
from sqlalchemy.engine import make_url

from calve.model.access import Role
from calve.web.front import dashboard
from support.browser import Chromium, Person
from support.local_runner import LocalRunner
from support.network_proxy import NetworkProxy
from support.postgres import Postgres
from support.served import served_here
from support.watched_runner import WatchedRunner


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    made = Chromium()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _browser_in_use(chromium: Chromium) -> Iterator[None]:
    with chromium.in_use():
        yield


@pytest.fixture(scope="session")
def far(postgres_server: Postgres) -> Iterator[NetworkProxy]:
    """What stands before the database of the catalog `far`."""
    with NetworkProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def scene(
    tmp_path_factory: pytest.TempPathFactory,
    runner: LocalRunner,
    far: NetworkProxy,
    postgres_server: Postgres,
) -> Iterator[Scene]:
    """A server, a worker and tables with exports. Shared: a test makes what it counts."""
    url = make_url(postgres_server.new_database()).set(port=far.port, drivername="postgresql+psycopg")
    made = Scene(tmp_path_factory.mktemp("seen"), WatchedRunner(runner), url.render_as_string(False))
    with made:
        yield made


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with nothing in it."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "calve.toml").write_text("[limits]\nrequests_per_second = 5000\n")
    with served_here(folder, fronts=[dashboard]) as url:
        yield url


@pytest.fixture
def open_as(chromium: Chromium, scene: Scene) -> Iterator[OpenAs]:
    """Somebody with a window of his own: with a role, or, without one, who only reads. What his pages said against
    themselves fails the test at its end."""
    people: list[Person] = []

    def opened(role: Role | None = None, url: str = "", **options: Any) -> Person:
        person = Person(chromium, url or scene.url, **options)
        people.append(person)
        if role is not None:
            person.give_cookie(scene.session(role))
        return person

    yield opened
    for person in people:
        person.close()
