"""The schema built whole is the schema migrated; old databases open; openers may race."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect

from calve.model.errors import UsageError
from calve.model.process import ProcessId
from calve.model.states import Leftovers, PinState, ProcessState, TaskState
from calve.store import open_store
from calve.store.database import make_engine
from calve.store.store import newest, statements, steps
from calve.store.tables import metadata
from calve.testing.contracts.contract import submit

FIXTURES = Path(__file__).parent.parent / "fixtures" / "stores"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes URLs of empty databases."""
    if request.param == "sqlite":
        numbers = iter(range(100))
        return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"
    return request.getfixturevalue("postgres_server").new_database


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    opened: list[Engine] = []
    yield opened
    for engine in opened:
        engine.dispose()


def shown(value: Any) -> Any:
    """Conditions of partial indexes are objects; their text is what counts."""
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    return str(value)


def index_definitions(engine: Engine) -> list[str]:
    """In the database's own words: reflection leaves out the order of a column."""
    asked = {
        "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    }
    with engine.connect() as connection:
        return sorted(row[0] for row in connection.exec_driver_sql(asked[engine.dialect.name]))


def reflected(engine: Engine) -> dict[str, Any]:
    look = inspect(engine)
    return {
        table: {
            "columns": [
                {name: str(value) for name, value in column.items()} for column in look.get_columns(table)
            ],
            "checks": sorted(look.get_check_constraints(table), key=str),
            "indexes": sorted(str(shown(index)) for index in look.get_indexes(table)),
            "unique": sorted(look.get_unique_constraints(table), key=str),
            "keys": (look.get_pk_constraint(table), sorted(look.get_foreign_keys(table), key=str)),
        }
        for table in look.get_table_names()
    }


def test_built_whole_equals_migrated(new_url: Any, engines: list[Engine]) -> None:
    engines += [make_engine(new_url(), connect_seconds=5, call_seconds=15) for _ in range(2)]
    built, migrated = engines
    metadata.create_all(built)
    open_store(migrated.url.render_as_string(hide_password=False)).close()
    assert reflected(migrated) == reflected(built)
    assert index_definitions(migrated) == index_definitions(built)
    assert set(reflected(migrated)) == set(metadata.tables)


def test_opening_again_changes_nothing(new_url: Any, engines: list[Engine]) -> None:
    url = new_url()
    with open_store(url) as store:
        row = submit(store)
    with open_store(url) as store:
        assert store.process(row.id) == row


def test_openers_at_once_do_not_collide(new_url: Any) -> None:
    url, together, failures = new_url(), threading.Barrier(4), []

    def run() -> None:
        together.wait(60)
        try:
            with open_store(url) as store:
                submit(store)
        except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_first_openers_of_a_file_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite refuses the change to its write-ahead log at once while another connection makes it."""
    path = tmp_path / "calve.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE there (a)")
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.execute, ["COMMIT"])
    engine = make_engine(f"sqlite:///{path}", connect_seconds=5, call_seconds=60)
    release.start()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()
    release.join()
    other.close()


def test_a_schema_from_the_future_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "calve.db"
    open_store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE schema_version SET version = 999")
    database.close()
    with pytest.raises(UsageError, match="999") as refused:
        open_store(f"sqlite:///{path}")
    assert refused.value.code == "store_too_new"
    assert "upgrade" in refused.value.hint


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calve.model.errors import PermanentError, StoreError
    from calve.store import store

    broken = [(1, steps("sqlite")[0][1] + "CREATE TABLE broken (;\n")]
    url = f"sqlite:///{tmp_path / 'calve.db'}"
    with monkeypatch.context() as patch:
        patch.setattr(store, "steps", lambda _dialect: broken)
        with pytest.raises((PermanentError, StoreError)):
            open_store(url)
    engine = make_engine(url, connect_seconds=5, call_seconds=5)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    open_store(url).close()


@pytest.mark.services
def test_a_step_may_take_longer_than_a_call(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from calve.store import store

    (number, sql), *others = steps("postgresql")
    slow = [(number, f"SELECT pg_sleep(2.4);\n{sql}"), *others]
    monkeypatch.setattr(store, "steps", lambda _dialect: slow)
    with open_store(postgres_url, call_seconds=2.0) as opened:
        submit(opened)


def test_both_databases_have_the_same_steps() -> None:
    numbers = [number for number, _ in steps("sqlite")]
    assert numbers == [number for number, _ in steps("postgresql")] == list(range(1, newest() + 1))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_steps_only_add_so_that_older_programs_go_on(dialect: str) -> None:
    """What an older program reads and writes stays: no column of its tables goes, moves or becomes required."""
    for number, sql in steps(dialect)[1:]:
        added: set[tuple[str, str]] = set()
        made: set[str] = set()
        for statement in statements(sql):
            text = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
            if found := re.match(r"CREATE TABLE (\w+) \(", text):
                made.add(found[1])
            elif found := re.fullmatch(r"ALTER TABLE (\w+) ADD COLUMN (\w+) \w+( DEFAULT \w+)?", text):
                added.add((found[1], found[2]))
            elif (found := re.fullmatch(r"ALTER TABLE (\w+) ALTER COLUMN (\w+) DROP DEFAULT", text)) or (
                found := re.fullmatch(r"UPDATE (\w+) SET (\w+) = \w+", text)
            ):
                assert (found[1], found[2]) in added, (number, text)
            elif found := re.match(r"INSERT INTO (\w+) ", text):
                assert found[1] in made, (number, text)
            elif found := re.match(r"CREATE UNIQUE INDEX \w+ ON (\w+) \((\w+)[,)]", text):
                assert found[1] in made or (found[1], found[2]) in added, (number, text)
            else:
                assert re.match(r"CREATE INDEX \w+ ON \w+ ", text), (number, text)


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("*.sql")), ids=lambda path: path.stem)
def test_a_database_made_by_an_older_version_opens_and_goes_on(fixture: Path, tmp_path: Path) -> None:
    path = tmp_path / "calve.db"
    with sqlite3.connect(path) as database:
        for statement in statements(fixture.read_text()):
            database.execute(statement)
    database.close()
    with open_store(f"sqlite:///{path}") as store:
        done = store.process(ProcessId("aaaaaaaaaaaa2"))
        assert (done.state, done.rows, done.tasks.done) == (ProcessState.COMPLETED, 3_000_000_000, 2)
        failed = store.process(ProcessId("aaaaaaaaaaaa3"))
        assert (failed.state, failed.leftovers) == (ProcessState.FAILED, Leftovers.KEPT)
        assert failed.error is not None
        assert [task.state for task in store.tasks(failed.id)] == [TaskState.CANCELLED]
        assert [pin.state for pin in store.pins(failed.id)] == [PinState.RELEASING]
        assert store.plan(failed.id) is not None
        live = store.process(ProcessId("aaaaaaaaaaaa4"))
        assert live.state is ProcessState.PENDING
        holder = store.holder("key-4")
        assert holder is not None
        assert holder.id == live.id
        assert store.events(done.id)[0].name == "submitted"
        assert submit(store, retry_of=failed.id).adopted
        held = [one.id for one in store.holds()]
        assert held == (["hold-2"] if int(fixture.stem[1:]) >= 6 else [])  # schema 6 made the table


def test_there_is_a_database_of_every_version() -> None:
    assert [path.stem for path in sorted(FIXTURES.glob("*.sql"))] == [
        f"v{number}" for number in range(1, newest() + 1)
    ]
