from collections.abc import Iterator
from typing import Any

import pytest
from scene import OpenAs, Scene

from calve.model.access import Role
from support.browser import Chromium, Person
from support.local_runner import LocalRunner
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
def scene(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Scene]:
    """A server, a worker and tables with exports. Shared: a test makes what it counts."""
    with Scene(tmp_path_factory.mktemp("seen"), WatchedRunner(runner)) as made:
        yield made


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
