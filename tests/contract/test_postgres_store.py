from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from calve.store import SqlStore, open_store
from calve.store.tables import metadata, schema_version
from calve.testing.clock import FakeClock
from calve.testing.contracts.races import RACERS
from calve.testing.postgres import Postgres
from calve.testing.store_contract import StoreContract


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.mark.services
class TestPostgresStore(StoreContract):
    @pytest.fixture
    def url(self, database: str) -> str:
        """One database, emptied before each test: making one takes longer than most tests."""
        with open_store(database) as store:
            empty = ", ".join(table.name for table in metadata.sorted_tables if table is not schema_version)
            engine = store.database.engine
            with engine.begin() as connection:
                connection.exec_driver_sql(f"TRUNCATE {empty} RESTART IDENTITY CASCADE")
        return database

    @pytest.fixture
    def store(self, url: str, clock: FakeClock) -> Iterator[SqlStore]:
        with open_store(url, clock_offset_seconds=clock.offset_seconds) as store:
            yield store

    @pytest.fixture
    def rivals(self, store: SqlStore, url: str, clock: FakeClock) -> Iterator[Sequence[SqlStore]]:
        """Each with connections and locks of its own, as other programs have."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(open_store(url, clock_offset_seconds=clock.offset_seconds))
                for _ in range(RACERS)
            ]
