"""A store that fails says whether the change was made, and never gives a password away."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event

from calve.model.change import Budget, Change, CountAttempt
from calve.model.errors import (
    ConflictError,
    Outcome,
    PermanentError,
    StoreError,
    StoreUnknownError,
    UsageError,
)
from calve.model.process import ProcessQuery
from calve.store import SqlStore, open_store
from calve.store.tables import processes
from calve.testing.contracts.contract import claimed, lease_of, new, submit
from support.network_proxy import Fault, Mode, NetworkProxy
from support.postgres import Postgres

PASSWORD = "hunter2-secret"


def through(proxy: NetworkProxy, url: str) -> str:
    database = url.rsplit("/", 1)[1]
    return f"postgresql://calve:{PASSWORD}@127.0.0.1:{proxy.port}/{database}"


@pytest.fixture
def proxy(postgres_server: Postgres) -> Iterator[NetworkProxy]:
    with NetworkProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.mark.services
class TestPostgres:
    def test_a_commit_whose_answer_was_lost_is_unknown_and_reading_back_finds_it(
        self, postgres_url: str, proxy: NetworkProxy
    ) -> None:
        open_store(postgres_url).close()
        with open_store(through(proxy, postgres_url)) as store:
            row = claimed(store)

            @event.listens_for(store.database.engine, "commit", once=True)
            def lose_the_answer(_connection: object) -> None:
                proxy.set(Fault(reset_answer_after_bytes=proxy.counts.answer_bytes))

            with pytest.raises(StoreUnknownError) as lost:
                store.apply(lease_of(row), Change(CountAttempt(Budget.PLAN)))
            assert lost.value.outcome is Outcome.UNKNOWN
            assert lost.value.retryable
            assert PASSWORD not in str(lost.value)
            proxy.heal()
            assert store.process(row.id).plan_attempts == 1

    def test_a_connection_lost_before_the_commit_costs_nothing(self, postgres_url: str) -> None:
        with open_store(postgres_url) as store:
            row = claimed(store)
            kill_backends(postgres_url)
            assert store.process(row.id).id == row.id
            kill_backends(postgres_url)
            assert store.apply(lease_of(row), Change(CountAttempt(Budget.PLAN))).plan_attempts == 1
            assert store.process(row.id).plan_attempts == 1

    def test_a_dead_server_is_a_retryable_error_without_secrets(
        self, postgres_url: str, proxy: NetworkProxy
    ) -> None:
        url = through(proxy, postgres_url)
        with open_store(url) as store:
            proxy.set(Fault(mode=Mode.REFUSE))
            for call in (store.now, lambda: store.submit([new()])):
                with pytest.raises(StoreError) as failed:
                    call()
                error = failed.value
                assert (error.code, error.retryable, error.outcome) == (
                    "store_unavailable",
                    True,
                    Outcome.NOT_APPLIED,
                )
                assert PASSWORD not in str(error)
                assert "***" in str(error)
                assert error.hint
            with pytest.raises(StoreError) as failed:
                open_store(url)
            assert PASSWORD not in str(failed.value)

    def test_a_row_that_another_program_holds_is_a_bounded_wait(self, postgres_url: str) -> None:
        with open_store(postgres_url, call_seconds=2.0) as store:
            row = claimed(store)
            with psycopg.connect(postgres_url) as rival:
                rival.execute("SELECT * FROM processes FOR UPDATE")
                with pytest.raises(StoreError) as failed:
                    store.apply(lease_of(row), Change(CountAttempt(Budget.PLAN)))
                assert failed.value.outcome is Outcome.NOT_APPLIED
                rival.rollback()
            assert store.apply(lease_of(row), Change(CountAttempt(Budget.PLAN))).plan_attempts == 1


class TestSqlite:
    def test_a_locked_database_is_a_retryable_error_and_nothing_was_changed(self, url: str) -> None:
        with open_store(url, call_seconds=0.1) as store:
            rival = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as failed:
                store.submit([new()])
            assert (failed.value.code, failed.value.outcome) == ("store_busy", Outcome.NOT_APPLIED)
            assert store.processes(ProcessQuery()) == []  # readers never wait for a writer
            rival.execute("ROLLBACK")
            rival.close()
            submit(store)

    def test_a_writer_that_waits_for_another_thread_waits_no_longer_than_a_call(self, url: str) -> None:
        with open_store(url, call_seconds=0.1) as store:
            inside, leave = threading.Event(), threading.Event()

            def dawdle(_connection: object) -> None:
                inside.set()
                leave.wait(60)

            slow = threading.Thread(target=store.database.write, args=(dawdle,))
            slow.start()
            inside.wait(60)
            with pytest.raises(StoreError) as failed:
                store.submit([new()])
            leave.set()
            slow.join()
            assert failed.value.code == "store_busy"

    def test_what_is_not_a_database_is_said_so(self, tmp_path: Path) -> None:
        (tmp_path / "calve.db").write_text("a diary, not a database, and long enough to be read" * 50)
        with pytest.raises(PermanentError) as failed:
            open_store(f"sqlite:///{tmp_path / 'calve.db'}")
        assert failed.value.code == "store_rejected"
        assert "calve.db" in str(failed.value)

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="nowhere") as failed:
            open_store(f"sqlite:///{tmp_path / 'nowhere' / 'calve.db'}")
        assert "mkdir" in failed.value.hint

    def test_the_database_itself_refuses_states_that_no_enum_has(self, store: SqlStore) -> None:
        row = submit(store)
        broken = processes.update().where(processes.c.id == row.id).values(state="SLEEPING")
        with pytest.raises(PermanentError) as failed:
            store.database.write(lambda connection: connection.execute(broken).rowcount)
        assert failed.value.code == "store_rejected"

    def test_the_database_itself_refuses_a_second_row_of_one_id(self, store: SqlStore) -> None:
        row = submit(store)
        copy = "INSERT INTO processes SELECT NULL AS seq, " + ", ".join(
            column.name for column in processes.c if column.name != "seq"
        )
        with pytest.raises(ConflictError):
            store.database.write(
                lambda connection: connection.exec_driver_sql(f"{copy} FROM processes").rowcount
            )
        assert [item.id for item in store.processes(ProcessQuery())] == [row.id]

    def test_commits_survive_a_power_cut(self, store: SqlStore) -> None:
        def pragmas(connection: object) -> tuple[object, ...]:
            ask = connection.exec_driver_sql  # type: ignore[attr-defined]
            return tuple(
                ask(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous", "foreign_keys")
            )

        assert store.database.read(pragmas) == ("wal", 2, 1)


@pytest.mark.parametrize(
    "url",
    [f"mysql://calve:{PASSWORD}@host/db", f"{PASSWORD}", "sqlite://", "sqlite:///:memory:"],
)
def test_a_store_is_kept_in_a_file_or_in_postgresql(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url)
    assert refused.value.code == "store_url"
    assert PASSWORD not in str(refused.value)
    assert refused.value.hint


def kill_backends(url: str) -> None:
    name = url.rsplit("/", 1)[1]
    with psycopg.connect(url.removesuffix(name) + "postgres", autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
        )


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'calve.db'}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    with open_store(url) as store:
        yield store
