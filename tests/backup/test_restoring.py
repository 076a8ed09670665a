"""Restoring: another name, tables that exist, structure alone, views and dictionaries, going on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ticked import Ticked

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.control.client import retry
from calve.model.errors import ErrorInfo, NotFoundError, PermanentError, UsageError
from calve.model.states import ProcessState
from calve.restore import attach as attaching
from calve.restore.plan import RestorePlan
from calve.restore.submit import RestoreOptions
from calve.testing.faults import Crash
from support.kept_source import KeptSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
            "INSERT INTO db.t SELECT number, toString(number) FROM numbers(100)",
            "CREATE FUNCTION plus_one AS (x) -> x + 1",
            "CREATE TABLE db.names (id UInt64, name String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.names SELECT number, concat('n', toString(number)) FROM numbers(5)",
            "CREATE DICTIONARY db.d (id UInt64, name String) PRIMARY KEY id"
            " SOURCE(CLICKHOUSE(DATABASE 'db' TABLE 'names')) LAYOUT(FLAT()) LIFETIME(0)",
            "CREATE TABLE db.needs_d (id UInt64, name String DEFAULT dictGet('db.d', 'name', id))"
            " ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.needs_d (id) VALUES (3)",
            "CREATE VIEW db.a_view AS SELECT plus_one(id) AS more FROM db.t",
            "CREATE VIEW db.a_deeper_view AS SELECT more FROM db.a_view",
            "CREATE MATERIALIZED VIEW db.inner_mv ENGINE = MergeTree ORDER BY id AS SELECT id FROM db.t",
            "INSERT INTO db.t VALUES (1000, 'seen by the view')",
            "CREATE TABLE db.log (x UInt8) ENGINE = Log",
        )
        yield source


@pytest.fixture(scope="module")
def backup(source: KeptSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    ticked = Ticked(folder, source)
    row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    return folder


@pytest.fixture
def ticked(backup: Path, source: KeptSource) -> Ticked:
    return Ticked(backup, source)


def done(ticked: Ticked, **asked: Any) -> None:
    row = ticked.settle(ticked.restore("b", **asked))
    assert row.state is ProcessState.COMPLETED, row.error


def failed(ticked: Ticked, **asked: Any) -> ErrorInfo:
    row = ticked.settle(ticked.restore("b", **asked))
    assert row.state is ProcessState.FAILED and row.error is not None
    return row.error


def count(source: KeptSource, table: str) -> int:
    return int(source.select(f"SELECT count() AS n FROM {table}")[0]["n"])


def is_still(source: KeptSource, table: str) -> bool:
    [row] = source.select(
        f"SELECT engine_full FROM system.tables WHERE concat(database, '.', name) = '{table}'"
    )
    return "max_bytes_to_merge_at_max_space_in_pool" in row["engine_full"]


def test_everything_is_made_in_another_database_and_refers_to_it(ticked: Ticked, source: KeptSource) -> None:
    done(ticked, into="db2")
    for table in ("t", "names", "needs_d", "a_view", "a_deeper_view", "inner_mv", "d"):
        assert source.select(f"SELECT * FROM db2.{table} ORDER BY ALL") == source.select(
            f"SELECT * FROM db.{table} ORDER BY ALL"
        ), table
    source.execute("INSERT INTO db2.names VALUES (9, 'only here')", "SYSTEM RELOAD DICTIONARY db2.d")
    assert source.select("SELECT dictGet('db2.d', 'name', toUInt64(9)) AS name") == [{"name": "only here"}]
    source.execute("INSERT INTO db2.needs_d (id) VALUES (9)", "INSERT INTO db2.t VALUES (7, 'x')")
    assert count(source, "db2.inner_mv") == count(source, "db.inner_mv") + 1
    assert source.select("SELECT name FROM db2.needs_d WHERE id = 9") == [{"name": "only here"}]
    assert count(source, "db2.log") == 0


def test_rows_of_engines_without_parts_are_said_to_be_left_out(ticked: Ticked) -> None:
    from calve.archive import backups

    manifest = backups.find(ticked.location, "b")
    assert [name for name, why in manifest.skipped if "structure alone" in why] == ["db.log"]


def test_one_table_under_another_name(ticked: Ticked, source: KeptSource) -> None:
    done(ticked, tables=("db.t",), into="db3.other")
    assert source.select("SELECT * FROM db3.other ORDER BY ALL") == source.select(
        "SELECT * FROM db.t ORDER BY ALL"
    )


def test_structure_alone_and_then_the_rows(ticked: Ticked, source: KeptSource) -> None:
    done(ticked, tables=("db.t",), into="db4", schema_only=True)
    assert count(source, "db4.t") == 0
    done(ticked, tables=("db.t",), into="db4", data_only=True, existing="append")
    assert count(source, "db4.t") == count(source, "db.t")


def test_a_table_that_exists_is_refused_and_left_as_it_is(ticked: Ticked, source: KeptSource) -> None:
    before = count(source, "db.t")
    error = failed(ticked)
    assert error.code == "table_exists" and "--existing" in error.hint
    assert count(source, "db.t") == before


def test_append_adds_and_replace_replaces_the_partitions_of_the_backup(
    ticked: Ticked, source: KeptSource
) -> None:
    source.execute(
        "CREATE DATABASE db5",
        "CREATE TABLE db5.t AS db.t",
        "INSERT INTO db5.t VALUES (0, 'mine'), (1, 'mine too')",
    )
    done(ticked, tables=("db.t",), into="db5", existing="append")
    assert count(source, "db5.t") == count(source, "db.t") + 2
    done(
        Ticked(ticked.ports.folder, source),
        tables=("db.t",),
        into="db5",
        existing="replace",
        partitions=("0",),
    )
    assert source.select("SELECT * FROM db5.t WHERE id % 2 = 0 ORDER BY ALL") == source.select(
        "SELECT * FROM db.t WHERE id % 2 = 0 ORDER BY ALL"
    )
    assert source.select("SELECT s FROM db5.t WHERE s LIKE 'mine%'") == [{"s": "mine too"}]


def test_a_table_of_another_structure_is_refused(ticked: Ticked, source: KeptSource) -> None:
    source.execute(
        "CREATE DATABASE db6", "CREATE TABLE db6.t (id UInt64, other String) ENGINE = MergeTree ORDER BY id"
    )
    error = failed(ticked, tables=("db.t",), into="db6", existing="append")
    assert error.code == "structure_differs" and "columns" in error.message


def test_settings_of_a_restored_table_are_those_of_the_backup(ticked: Ticked, source: KeptSource) -> None:
    done(ticked, tables=("db.t",), into="db7")
    [create] = source.select("SELECT create_table_query AS sql FROM system.tables WHERE database = 'db7'")
    assert "max_bytes_to_merge" not in create["sql"] and "SETTINGS index_granularity = 8192" in create["sql"]


@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_between_an_attach_and_its_record_attaches_nothing_twice(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The real statement is carried out, and then the program dies."""
    database = f"crashed_{at}"
    process_id = ticked.restore("b", tables=("db.t",), into=database)
    session = source.session
    execute, seen = session.execute, []

    def dies(sql: str, *given: Any, **named: Any) -> None:
        execute(sql, *given, **named)
        if "ATTACH PART" in sql:
            seen.append(sql)
            if len(seen) == at:
                raise Crash(sql)

    with monkeypatch.context() as patch, contextlib.suppress(Crash):
        patch.setattr(session, "execute", dies)
        ticked.settle(process_id)
    assert len(seen) == at
    ticked.clock.advance(310)
    assert ticked.settle(process_id).state is ProcessState.COMPLETED
    assert count(source, f"{database}.t") == count(source, "db.t")


def test_the_same_command_goes_on_with_what_failed_and_doubles_nothing(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = ticked.restore("b", tables=("db.t",), into="db8")
    assert ticked.restore("b", tables=("db.t",), into="db8") == process_id
    staged = attaching.put_into_detached
    seen: list[object] = []

    def fails_at_the_second(*given: Any) -> None:
        seen.append(given)
        if len(seen) > 1:
            from calve.model.errors import PermanentError

            raise PermanentError("on purpose", code="injected")
        staged(*given)

    with monkeypatch.context() as patch:
        patch.setattr(attaching, "put_into_detached", fails_at_the_second)
        assert ticked.settle(process_id).state is ProcessState.FAILED
    assert 0 < count(source, "db8.t") < count(source, "db.t")
    again = ticked.restore("b", tables=("db.t",), into="db8")
    assert again != process_id
    assert ticked.settle(again).state is ProcessState.COMPLETED
    assert count(source, "db8.t") == count(source, "db.t")


def test_a_staged_part_that_somebody_removed_is_an_error_not_a_loss(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    attach_all = attaching.attach

    def removed_first(session: Any, plan: Any, staged: dict[int, Path]) -> int:
        shutil.rmtree(staged[0])
        return attach_all(session, plan, staged)

    monkeypatch.setattr(attaching, "attach", removed_first)
    assert failed(ticked, tables=("db.t",), into="db9").code == "staged_part_lost"


def test_a_cancel_ends_it_and_leaves_no_staged_file(ticked: Ticked, source: KeptSource) -> None:
    process_id = ticked.restore("b", tables=("db.t",), into="db10")
    worker = ticked.worker()
    worker.tick()
    ticked.store.request_cancel(process_id)
    assert ticked.settle(process_id, worker).state is ProcessState.CANCELLED
    ticked.clock.advance(25 * 3600)
    assert is_still(source, "db10.t")
    for _ in range(5):
        worker.tick()
    assert not (source.folder / "calve_restore" / process_id).exists()
    assert not is_still(source, "db10.t"), "what was restored stays, and merges again"


def test_a_table_that_was_finished_before_a_restore_failed_merges_after_its_retry(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulator: the retry held it still again, and had nothing more to do for it."""
    let_move, moved = attaching.let_move, list[str]()

    def fails_at_the_second(session: Any, target: Any) -> None:
        moved.append(target.name)
        if len(moved) > 1:
            raise PermanentError("ClickHouse has no room", code="source_error")
        let_move(session, target)

    with monkeypatch.context() as patch:
        patch.setattr(attaching, "let_move", fails_at_the_second)
        first = ticked.restore("b", tables=("db.t", "db.names"), into="db12")
        assert ticked.settle(first).state is ProcessState.FAILED
    assert sorted(is_still(source, f"db12.{name}") for name in ("t", "names")) == [False, True]
    second = retry(ticked.store, first).process.id
    assert ticked.settle(second).state is ProcessState.COMPLETED
    assert not any(is_still(source, f"db12.{name}") for name in ("t", "names"))
    assert (count(source, "db12.t"), count(source, "db12.names")) == (101, 5)


def test_D1_a_restore_that_its_store_takes_for_unfinished_attaches_nothing_to_a_table_that_merges(
    ticked: Ticked, source: KeptSource
) -> None:
    """The store was put back from a copy, after the restore had cleared away what says that it is finished."""
    process_id = ticked.restore("b", tables=("db.t",), into="db13")
    assert ticked.settle(process_id).state is ProcessState.COMPLETED
    plan = RestorePlan.from_json(ticked.store.plan(process_id) or "")
    with pytest.raises(PermanentError, match="was restored before"):
        attaching.attach(source.session, plan, {})
    assert count(source, "db13.t") == count(source, "db.t")


def test_a_retry_doubles_nothing_in_a_table_that_was_let_go_and_has_merged_since(
    ticked: Ticked, source: KeptSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = source.session
    execute, seen = session.execute, []

    def fails_after_two(sql: str, *given: Any, **named: Any) -> None:
        if "ATTACH PART" in sql:
            seen.append(sql)
            if len(seen) > 2:
                raise PermanentError("ClickHouse has no room", code="source_error")
        execute(sql, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(session, "execute", fails_after_two)
        first = ticked.restore("b", tables=("db.t",), into="db14")
        assert ticked.settle(first).state is ProcessState.FAILED
    ticked.clock.advance(ticked.ports.limits.keep_failed_hours * 3600 + 1)
    ticked.settle(first)
    assert not is_still(source, "db14.t")
    source.execute("SYSTEM START MERGES db14.t", "OPTIMIZE TABLE db14.t FINAL")
    rows = count(source, "db14.t")
    again = ticked.settle(retry(ticked.store, first).process.id)
    assert again.error is not None and again.error.code == "restore_unclear"
    assert (count(source, "db14.t"), is_still(source, "db14.t")) == (rows, False)


def test_a_backup_that_is_deleted_meanwhile_is_said(source: KeptSource, tmp_path: Path) -> None:
    from calve.backup import deletion

    ticked = Ticked(tmp_path, source)
    ticked.settle(ticked.create("b", "db.t"))
    process_id = ticked.restore("b", into="db11")
    deletion.delete(ticked.location, "b")
    row = ticked.settle(process_id)
    assert row.error is not None and row.error.code == "backup_deleted"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tables": ("db.nothing",)}, "db.nothing"),
        ({"into": "db2.t"}, "names one table"),
        ({"schema_only": True, "data_only": True}, "exclude each other"),
        ({"data_only": True}, "tables that exist"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_queued(
    ticked: Ticked, asked: dict[str, Any], words: str
) -> None:
    with pytest.raises((UsageError, NotFoundError), match=words):
        ticked.restore("b", **asked)
    assert ticked.store.live() == []


def test_no_such_backup_is_not_found(ticked: Ticked) -> None:
    with pytest.raises(NotFoundError, match="no backup 'nightly'"):
        ticked.restore("nightly")
    assert RestoreOptions().existing == "refuse"


@pytest.mark.parametrize("exists", [False, True])
def test_an_embedded_folder_that_is_missing_or_empty_is_made(
    backup: Path, tmp_path: Path, exists: bool
) -> None:
    """As on a new machine: nothing is left of the old one but its backups."""
    folder = tmp_path / "new" / "clickhouse"
    if exists:
        folder.mkdir(parents=True)
    target = EmbeddedSource("main", folder)
    ticked = Ticked(backup, target)
    assert ticked.settle(ticked.restore("b", tables=("db.t",))).error is None
    with target.visit() as session:
        assert session.rows("SELECT count() AS n FROM db.t") == [{"n": 101}]


def test_a_folder_of_something_else_is_not_restored_into(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    ticked = Ticked(backup, EmbeddedSource("main", tmp_path))
    error = ticked.settle(ticked.restore("b", tables=("db.t",))).error
    assert error is not None and error.code == "source_not_clickhouse"
    assert [one.name for one in tmp_path.iterdir()] == ["photo.jpg"]
