"""What cannot be read forbids: a damaged hold is a hold, and without the table of holds nothing is announced."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import CalveError, RefusedError
from calve.store import SqlStore, open_store
from calve.testing.contracts.contract import publishing
from calve.testing.contracts.tier import ASKED, allow, announce, hold, open_intents


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calve.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqlStore]:
    with open_store(f"sqlite:///{file}") as store:
        yield store


def change(file: Path, statement: str) -> None:
    database = sqlite3.connect(file)
    with database:
        database.execute(statement)
    database.close()


def test_a_hold_whose_time_cannot_be_read_still_holds(store: SqlStore, file: Path) -> None:
    allow(store)
    row = publishing(store)
    store.add_hold(hold(), ASKED)
    change(file, "UPDATE holds SET until_at = 'next summer', made_at = 'once'")
    with pytest.raises(RefusedError) as refused:
        announce(store, row)
    assert refused.value.code == "held"


@pytest.mark.parametrize("table", ["guards", "holds", "policies", "approvals", "halts"])
def test_without_a_table_of_conditions_nothing_is_announced(store: SqlStore, file: Path, table: str) -> None:
    allow(store)
    row = publishing(store)
    change(file, f"ALTER TABLE {table} RENAME TO gone")
    with pytest.raises(CalveError):
        announce(store, row, version=0)
    assert open_intents(store, row) == []
    assert not store.process(row.id).publish_sent
