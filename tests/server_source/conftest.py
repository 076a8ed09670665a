from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import Place, front_place, old_place

from support.clickhouse_front import ClickHouseFront, FrontOptions


@pytest.fixture(scope="session")
def executor() -> Iterator[ExecutorChild]:
    child = ExecutorChild()
    yield child
    child.close()


@pytest.fixture(scope="session")
def today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server of today's engine."""
    with front_place(tmp_path_factory.mktemp("today")) as place:
        yield place


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Debian's server of 2018."""
    with old_place(tmp_path_factory.mktemp("old")) as place:
        yield place


@pytest.fixture(params=["today", "old"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Callable[..., ClickHouseFront]]:
    """A front of the test's own."""
    started: list[ClickHouseFront] = []

    def start(options: FrontOptions | None = None) -> ClickHouseFront:
        new = ClickHouseFront(tmp_path / f"front-{len(started)}", options or FrontOptions())
        started.append(new)
        new.start()
        return new

    yield start
    for one in started:
        one.kill()
