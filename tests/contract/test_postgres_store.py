import pytest
from sql_contract import SqlStoreContract
from sqlalchemy import update

from calve.store import open_store
from calve.store.tables import metadata, schema_version, store_state
from support.postgres import Postgres


@pytest.fixture(scope="module")
def database(postgres_server: Postgres) -> str:
    return postgres_server.new_database()


@pytest.mark.services
class TestPostgresStore(SqlStoreContract):
    @pytest.fixture
    def url(self, database: str) -> str:
        """One database, emptied before each test: making one takes longer than most tests."""
        with open_store(database) as store:
            kept = (schema_version, store_state)
            empty = ", ".join(table.name for table in metadata.sorted_tables if table not in kept)
            engine = store.database.engine
            with engine.begin() as connection:
                connection.exec_driver_sql(f"TRUNCATE {empty} RESTART IDENTITY CASCADE")
                connection.execute(update(store_state).values(last_position=0, forgotten_position=0))
        return database
