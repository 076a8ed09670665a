"""Releasing a pin of an embedded source needs no engine, where nobody has the folder open."""

import json
from pathlib import Path

import pytest

from calve.clickhouse.embedded import host
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.clickhouse.errors import SourceBusyError

PIN = "calve-abc-1"


@pytest.fixture
def source(tmp_path: Path) -> EmbeddedSource:
    source = EmbeddedSource("main", tmp_path / "clickhouse", create=True, busy_seconds=0)
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a Int8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
        session.execute(f"ALTER TABLE db.t FREEZE WITH NAME '{PIN}'")
    return source


def frozen(source: EmbeddedSource) -> list[Path]:
    return [path for path in (source.folder / "shadow").rglob("*") if path.is_file() and "abc" in str(path)]


def detail(source: EmbeddedSource) -> str:
    return json.dumps({"roots": [f"{source.folder}/"], "database": "db", "name": "t"})


def test_a_pin_is_released_by_removing_its_links_and_the_folder_opens_afterwards(
    source: EmbeddedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert frozen(source)
    with monkeypatch.context() as patch:
        patch.setattr(host, "HostProcess", None)  # no child can be started
        source.release(PIN, detail(source))
        source.release(PIN, detail(source))  # twice is harmless
    assert not frozen(source)
    with source.visit() as session:
        assert session.rows("SELECT a FROM db.t") == [{"a": 1}]


def test_a_pin_of_a_folder_that_another_process_has_open_stays(source: EmbeddedSource) -> None:
    other = host.HostProcess()
    try:
        assert other.open(source.folder, "", 60).ok
        with pytest.raises(SourceBusyError):
            source.release(PIN, detail(source))
        assert frozen(source)
    finally:
        other.close()


def test_a_pin_on_another_disk_is_released_by_the_engine(source: EmbeddedSource, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    left = elsewhere / "shadow" / PIN.replace("-", "%2D") / "file"
    left.parent.mkdir(parents=True)
    left.touch()
    source.release(PIN, json.dumps({"roots": [str(source.folder), str(elsewhere)]}))
    assert not left.exists()
    assert not frozen(source)
