from collections.abc import Iterator

import pytest

from calve.clickhouse.embedded.cage import Cage
from sql.front import Front, opened
from sql.schemas import EXPORTS, TABLE
from support.local_runner import LocalRunner


@pytest.fixture(scope="session")
def one_cage() -> Iterator[list[Cage]]:
    """The child that statements share, in a list: a test that ends it puts another into its place."""
    held = [Cage(tables=[TABLE, EXPORTS], memory_mb=1024)]
    yield held
    held[0].kill()


@pytest.fixture
def cage(one_cage: list[Cage]) -> Cage:
    if not one_cage[0].alive:
        one_cage[0] = Cage(tables=[TABLE, EXPORTS], memory_mb=1024)
    return one_cage[0]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Front]:
    with opened(tmp_path_factory.mktemp("sql"), runner) as front:
        yield front
