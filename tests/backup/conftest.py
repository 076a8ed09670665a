import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backup_place import TABLES, BackupPlace, DirectRunner

from calve.app.wiring import App
from calve.clickhouse.embedded.source import EmbeddedSource
from support.calve_command import Run, in_this_process

# The shapes of parts that every other way of reading is tried with.
sys.path.append(str(Path(__file__).parent.parent / "parts"))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[BackupPlace]:
    place = BackupPlace(tmp_path)
    yield place
    place.close()


@pytest.fixture
def place(empty: BackupPlace) -> BackupPlace:
    """Two tables: `events` with two partitions and files of their own, `users` with two small parts."""
    empty.execute(*TABLES)
    return empty


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`calve`, as a person types it; only the JVM is left out."""
    monkeypatch.setattr(App, "runner", property(lambda app: DirectRunner()))
    (tmp_path / "calve.toml").write_text(
        '[source.main]\nurl = "chdb://clickhouse"\n[limits]\ntick_seconds = 0.05\n'
    )
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        for statement in (
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number, randomPrintableASCII(100) FROM numbers(1000)",
        ):
            session.execute(statement)
    return in_this_process(tmp_path, capsys, monkeypatch)
