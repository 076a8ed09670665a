from collections.abc import Iterator

import pytest

from calve.testing.postgres import Postgres, postgres

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
