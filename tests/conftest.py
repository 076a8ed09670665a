import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import Postgres, postgres

# Children find `support` as we do: Spark's Python workers, `python -m support.…`, the tasks of a runner.
_PATHS = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in _PATHS if path)

# The shipped contract suites assert too; without this their failures say nothing.
pytest.register_assert_rewrite("calve.testing.contracts")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One real PostgreSQL for each test program; tests take databases of their own from it."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """An empty database."""
    return postgres_server.new_database()
