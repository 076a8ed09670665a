from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import PASSWORD, TIMEZONE, WITH_UUID, Served

from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser, clickhouse_front
from support.clickhouse_server import ServerOptions, User, clickhouse_server
from support.local_runner import LocalRunner
from support.server_place import ServerPlace

FRONT = FrontOptions(
    users={
        "default": FrontUser(password=PASSWORD),
        "reader": FrontUser(password=PASSWORD, readonly=1),
        "selecter": FrontUser(password=PASSWORD, select_only=True),
    },
    timezone=TIMEZONE,
    stand_ins=WITH_UUID,
)


@pytest.fixture(scope="session")
def runner() -> Iterator[LocalRunner]:
    runner = LocalRunner()
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of today's engine."""
    with clickhouse_front(tmp_path_factory.mktemp("today"), FRONT) as front:
        yield _served(front)


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Debian's server of 2018."""
    users = {"default": User(password=PASSWORD), "reader": User(password=PASSWORD, readonly=True)}
    options = ServerOptions(users=users, timezone=TIMEZONE)
    with clickhouse_server(tmp_path_factory.mktemp("old"), options) as server:
        yield Served(url=server.url, data=server.data, modern=False, kill=server.kill, start=server.start)


@pytest.fixture(params=["today", "old"])
def served(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place(served: Served, tmp_path: Path, runner: LocalRunner) -> ServerPlace:
    return served.place(tmp_path, runner)


@pytest.fixture
def own_front(tmp_path: Path) -> Iterator[Callable[[], Served]]:
    """A server of the test's own, to be killed."""
    started: list[ClickHouseFront] = []

    def start() -> Served:
        new = ClickHouseFront(tmp_path / f"front-{len(started)}", FRONT)
        started.append(new)
        new.start()
        return _served(new)

    yield start
    for one in started:
        one.kill()


def _served(front: ClickHouseFront) -> Served:
    return Served(url=front.url, data=front.data, modern=True, kill=front.kill, start=front.start)
