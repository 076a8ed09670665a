"""Which tests run beside which, and what the tests of one program share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.local_runner import LocalRunner
from support.postgres import Postgres, postgres
from support.spark_sql import SparkSql
from support.sparks import Sparks

# The shipped contract suites assert too; without this their failures say nothing.
pytest.register_assert_rewrite("calve.testing.contracts")

# Children find `support` as we do: Spark's Python workers, `python -m support.…`, the tasks of a runner.
_PATHS = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in _PATHS if path)

# What takes longest begins first, so that the programs of a run end together (`pytest --durations=0`).
SLOWEST_FIRST = (
    "exactly_once/test_every_outcome_of_a_commit.py",
    "round_trip/",
    "whole_exports/test_life_of_the_table.py",
    "whole_exports/test_many_workers.py",
    "workers/",
    "outages/",
    "optimize/test_killed.py",
    "whole_exports/",
    "backup/",
    "docs/",
    "export/",
    "cli/test_exporting.py",
    "access/",
    "server_exports/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file, or of a class, stay in one program, since they share what is slow to start. All that use the shared
    Spark stay together, those of one master side by side."""
    for item in items:
        group = "spark" if _uses_shared_spark(item) else item.nodeid.rpartition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> tuple[int, int]:
    if _uses_shared_spark(item):
        of_its_own = "full_disk" in item.nodeid or "over_https" in item.nodeid
        return -1, 2 if of_its_own else int("cluster" in item.nodeid or "test_on_spark" in item.nodeid)
    for rank, path in enumerate(SLOWEST_FIRST):
        if f"tests/{path}" in item.nodeid:
            return rank, 0
    return len(SLOWEST_FIRST), 0


def _uses_shared_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None and "sparks" in item.fixturenames  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def sparks() -> Iterator[Sparks]:
    """The Spark of this test program. Tests that ask for it are marked `spark`."""
    sparks = Sparks()
    yield sparks
    sparks.close()


@pytest.fixture(autouse=True)
def _room_for_a_spark_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test that starts Spark by itself, in this program, finds none running."""
    if request.node.get_closest_marker("spark") and "sparks" not in request.node.fixturenames:
        request.getfixturevalue("sparks").close()


@pytest.fixture(scope="session")
def runner() -> Iterator[LocalRunner]:
    """One child with one engine, in place of Spark: starting one takes seconds."""
    runner = LocalRunner(slots=1)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def spark_sql() -> Iterator[SparkSql]:
    """Spark as an independent reader and writer, in a child; each test takes a catalog from it."""
    with SparkSql() as spark:
        yield spark


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One real PostgreSQL for each test program; tests take databases of their own from it."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """An empty database."""
    return postgres_server.new_database()
