from pathlib import Path

import pytest
from sql_contract import SqlStoreContract


class TestSqliteStore(SqlStoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'calve.db'}"
