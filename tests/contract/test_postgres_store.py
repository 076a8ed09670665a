import pytest
from sql_contract import SqlStoreContract

from calve.store import open_store
from calve.store.tables import metadata, schema_version
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
            empty = ", ".join(table.name for table in metadata.sorted_tables if table is not schema_version)
            engine = store.database.engine
            with engine.begin() as connection:
                connection.exec_driver_sql(f"TRUNCATE {empty} RESTART IDENTITY CASCADE")
        return database
