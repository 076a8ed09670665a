"""A table whose CREATE defines a local disk is restored where the engine allows that folder."""

from pathlib import Path

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.archive.left_out import left_out
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.states import ProcessState


@pytest.fixture
def source(tmp_path: Path) -> EmbeddedSource:
    (tmp_path / "disks").mkdir()
    config = tmp_path / "config.xml"
    base = f"<custom_local_disks_base_directory>{tmp_path}/disks/</custom_local_disks_base_directory>"
    config.write_text(f"<clickhouse>{base}</clickhouse>")
    source = EmbeddedSource("main", tmp_path / "clickhouse", create=True, engine_config=str(config))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id"
            f" SETTINGS disk = disk(type = local, path = '{tmp_path}/disks/x/')"
        )
        session.execute("INSERT INTO db.t SELECT number FROM numbers(5000)")
    return source


def count(source: EmbeddedSource, table: str) -> int:
    with source.visit() as session:
        return int(session.rows(f"SELECT count() AS n FROM {table}")[0]["n"])


def test_it_is_restored_on_its_disk_and_said(source: EmbeddedSource, tmp_path: Path) -> None:
    ticked = Ticked(tmp_path / "backups", source)
    row = ticked.settle(ticked.create("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    said = {one.what: one.why for one in left_out(backups.find(ticked.location, "b"))}
    assert f"{tmp_path}/disks/x/" in said["disk of db.t"]
    row = ticked.settle(ticked.restore("b", into="r"))
    assert row.state is ProcessState.COMPLETED, row.error
    assert count(source, "r.t") == 5000
    with source.visit() as session:
        [found] = session.rows("SELECT data_paths FROM system.tables WHERE database = 'r'")
        session.execute("DROP TABLE db.t SYNC")
    assert all(path.startswith(f"{tmp_path}/disks/x/") for path in found["data_paths"])
    row = ticked.settle(ticked.restore("b"))
    assert row.state is ProcessState.COMPLETED, row.error
    assert count(source, "db.t") == count(source, "r.t") == 5000


def test_an_engine_that_does_not_allow_the_folder_refuses_it(source: EmbeddedSource, tmp_path: Path) -> None:
    ticked = Ticked(tmp_path / "backups", source)
    ticked.settle(ticked.create("b"))
    elsewhere = EmbeddedSource("main", tmp_path / "elsewhere", create=True)
    ticked.ports.source_ = elsewhere
    row = ticked.settle(ticked.restore("b"))
    assert row.error is not None and "custom_local_disks_base_directory" in row.error.message
