"""Backups that link files in place of copying them: by choice, and only what never changes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.backup import deletion
from calve.backup.verification import verify
from calve.model.errors import RefusedError, UsageError
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.kept_source import KeptSource

ROWS = "SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id "
            "SETTINGS min_bytes_for_wide_part = 0",
            "INSERT INTO db.t SELECT number, randomPrintableASCII(100) FROM numbers(5000)",
        )
        yield source


@pytest.fixture
def ticked(source: KeptSource, tmp_path: Path) -> Ticked:
    ticked = Ticked(tmp_path / "backups", source)
    ticked.ports.hard_links = True
    return ticked


def objects(ticked: Ticked) -> list[Path]:
    return [path for path in ticked.ports.folder.glob("parts/*/*/*/*") if path.is_file()]


def test_files_are_linked_and_the_backup_is_whole(ticked: Ticked, source: KeptSource) -> None:
    row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    [part] = source.select("SELECT path FROM system.parts WHERE active AND database = 'db' AND table = 't'")
    theirs = {path.stat().st_ino for path in Path(part["path"]).iterdir()}
    assert objects(ticked) and {path.stat().st_ino for path in objects(ticked)} <= theirs
    assert verify(ticked.location, backups.find(ticked.location, "b"), read_share=1.0).whole


def test_it_outlives_its_table_and_restores_to_files_of_their_own(ticked: Ticked, source: KeptSource) -> None:
    source.execute("CREATE TABLE db.gone AS db.t", "INSERT INTO db.gone SELECT * FROM db.t")
    before = source.select(ROWS.format("db.gone"))
    assert ticked.settle(ticked.create("b", "db.gone")).state is ProcessState.COMPLETED
    source.execute("DROP TABLE db.gone SYNC")
    row = ticked.settle(ticked.restore("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    assert source.select(ROWS.format("db.gone")) == before
    assert {path.stat().st_nlink for path in objects(ticked)} == {1}
    source.execute("DROP TABLE db.gone SYNC")


def test_deleting_it_leaves_the_table_as_it_was(ticked: Ticked, source: KeptSource) -> None:
    before = source.select(ROWS.format("db.t"))
    assert ticked.settle(ticked.create("b")).state is ProcessState.COMPLETED
    deletion.delete(ticked.location, "b")
    assert objects(ticked) == [] and source.select(ROWS.format("db.t")) == before


def test_what_ClickHouse_may_write_anew_is_copied(ticked: Ticked, source: KeptSource) -> None:
    columns = ", ".join(f"a_column_with_a_long_name_{number} UInt8" for number in range(150))
    source.execute(
        f"CREATE TABLE db.wide ({columns}) ENGINE = MergeTree ORDER BY tuple()",
        "INSERT INTO db.wide (a_column_with_a_long_name_0) SELECT number FROM numbers(10000)",
    )
    [part] = source.select("SELECT path FROM system.parts WHERE active AND table = 'wide'")
    described = Path(part["path"]) / "columns.txt"
    assert described.stat().st_size > 4096  # too large for the index: an object of its own
    assert ticked.settle(ticked.create("b", "db.wide")).state is ProcessState.COMPLETED
    assert described.stat().st_ino not in {path.stat().st_ino for path in objects(ticked)}
    source.execute("DROP TABLE db.wide SYNC")


def test_without_the_choice_nothing_is_shared(ticked: Ticked) -> None:
    ticked.ports.hard_links = False
    assert ticked.settle(ticked.create("b")).state is ProcessState.COMPLETED
    assert {path.stat().st_nlink for path in objects(ticked)} == {1}


def test_where_links_cannot_be_made_it_is_refused_and_nothing_copied_instead(
    ticked: Ticked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_file_system(*given: object, **named: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    link = os.link
    with monkeypatch.context() as patched:
        patched.setattr(
            os, "link", lambda source, target, **named: (other_file_system if "shadow" in str(source) else link)(source, target, **named)
        )  # fmt: skip
        row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.FAILED and row.error is not None
    assert row.error.code == "no_hard_links" and "hard_links = false" in row.error.hint and row.error.refused
    assert backups.listed(ticked.location) == []


def test_object_storage_has_none(ticked: Ticked, tmp_path: Path) -> None:
    ticked.ports.url = "s3://bucket/backups"
    with pytest.raises(UsageError, match="is not a folder"):
        ticked.create("b")
    storage = Storage({"s3.endpoint": "http://127.0.0.1:1", "s3.region": "us-east-1"})
    with pytest.raises(RefusedError, match="no hard links"):
        storage.link(tmp_path / "file", "s3://bucket/object")
