"""A backup in each cloud beside S3, restored from there, and deleted."""

from pathlib import Path

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.backup import deletion
from calve.backup.verification import verify
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.clouds import CLOUDS, cloud
from support.kept_source import KeptSource

pytestmark = pytest.mark.services


@pytest.mark.parametrize("name", CLOUDS)
def test_a_round_trip(name: str, tmp_path: Path) -> None:
    (tmp_path / "cloud").mkdir()
    with cloud(name, tmp_path / "cloud") as there, KeptSource(tmp_path / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number, randomString(100) FROM numbers(100000)",  # uploads in parts
        )
        ticked = Ticked(tmp_path, source)
        ticked.ports.url, ticked.ports.storage = f"{there.root}/backups", dict(there.properties)
        created = ticked.create("b")
        assert ticked.settle(created).state is ProcessState.COMPLETED, ticked.row(created).error
        assert verify(ticked.location, backups.find(ticked.location, "b"), read_share=1.0).whole
        restored = ticked.restore("b", into="db2")
        assert ticked.settle(restored).state is ProcessState.COMPLETED, ticked.row(restored).error
        before, after = (
            source.select(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {table}")
            for table in ("db.t", "db2.t")
        )
        assert before == after
        for process in (created, restored):
            assert there.secret not in f"{ticked.row(process)}{ticked.store.plan(process)}"
        deletion.delete(ticked.location, "b")
        left = Storage(there.properties).list(f"{there.root}/backups")
        assert not any("/parts/" in uri for uri in left), left
