"""The same against a real S3 server, and against a ClickHouse server whose disk is visible."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_scene import ArchiveScene
from ticked import Ticked

from calve.archive import backups
from calve.archive.location import Location
from calve.archive.vault import properties
from calve.backup import deletion
from calve.backup.verification import verify
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from support.clickhouse_front import NO_USERS, ClickHouseFront, FrontOptions, clickhouse_front
from support.kept_source import KeptSource
from support.s3 import S3Server, s3_server

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("backups")
        yield server


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseFront]:
    stand_ins = {**NO_USERS, "serverUUID()": "toUUID('11111111-2222-3333-4444-555555555555')"}
    with clickhouse_front(tmp_path_factory.mktemp("front"), FrontOptions(stand_ins=stand_ins)) as front:
        yield front


@pytest.mark.parametrize("compression", [None, "none", "zstd"])
def test_a_round_trip_through_s3_with_a_secret_that_is_stored_nowhere(
    s3: S3Server, tmp_path: Path, compression: str | None
) -> None:
    key = secrets.token_hex(32)
    sealing = {} if compression is None else properties(keys=key, compression=compression, level=1)
    with KeptSource(tmp_path / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number, randomString(100) FROM numbers(200000)",  # uploads in parts
        )
        ticked = Ticked(tmp_path, source)
        ticked.ports.url, ticked.ports.storage = (
            f"s3://backups/round-{compression}",
            s3.properties() | sealing,
        )
        process_id = ticked.create("b")
        assert ticked.settle(process_id).state is ProcessState.COMPLETED, ticked.row(process_id).error
        assert verify(ticked.location, backups.find(ticked.location, "b"), read_share=1.0).whole
        restored = ticked.restore("b", into="db2")
        assert ticked.settle(restored).state is ProcessState.COMPLETED, ticked.row(restored).error
        hashes = [
            source.select(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {table}")
            for table in ("db.t", "db2.t")
        ]
        assert hashes[0] == hashes[1]
        for row in (ticked.row(process_id), ticked.row(restored)):
            for secret in (s3.keys.secret_access_key, key):
                assert secret not in f"{row}{ticked.store.plan(row.id)}"


def test_sharing_deleting_and_racing_on_s3(s3: S3Server, tmp_path: Path) -> None:
    scene = ArchiveScene(tmp_path)
    scene.storage = Storage(s3.properties())
    scene.location = Location("s3://backups/shelf", scene.storage)
    part, other = scene.part("one"), scene.part("two", "all_2_2_0")
    scene.backup("monday", part)
    second = scene.backup("tuesday", part, other)
    assert second.moved_bytes < second.bytes
    mine, theirs = (scene.plan("same", [part], process_id=name) for name in ("mine", "theirs"))
    scene.publish(theirs, scene.run(theirs))
    with pytest.raises(Exception, match="made by process theirs"):
        scene.publish(mine, scene.run(mine))
    for name in ("monday", "same"):
        deletion.delete(scene.location, name)
    assert verify(scene.location, second, read_share=1.0).whole
    deletion.delete(scene.location, "tuesday")
    assert not any(uri.startswith("parts/") for uri in scene.objects)


def test_a_server_whose_disk_is_seen_is_backed_up_and_restored_to(
    front: ClickHouseFront, tmp_path: Path
) -> None:
    source = ServerSource("main", ServerOptions(url=front.url, disks={"default": str(front.data)}))
    with source.visit() as session:
        for statement in (
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
            "INSERT INTO db.t SELECT number, toString(number) FROM numbers(1000)",
            "CREATE VIEW db.v AS SELECT id FROM db.t",
        ):
            session.execute(statement)
        before = session.rows("SELECT * FROM db.t ORDER BY id")
    ticked = Ticked(tmp_path, source)
    created = ticked.settle(ticked.create("b"))
    assert created.state is ProcessState.COMPLETED, created.error
    shadow = front.data / "shadow"
    assert not [entry for entry in shadow.iterdir() if entry.is_dir()]
    with source.visit() as session:
        session.execute("DROP DATABASE db SYNC")
    restored = ticked.settle(ticked.restore("b"))
    assert restored.state is ProcessState.COMPLETED, restored.error
    with source.visit() as session:
        assert session.rows("SELECT * FROM db.t ORDER BY id") == before
        assert session.rows("SELECT count() AS n FROM db.v") == [{"n": 1000}]


def test_a_server_whose_disk_is_not_seen_is_refused(front: ClickHouseFront, tmp_path: Path) -> None:
    source = ServerSource("main", ServerOptions(url=front.url))
    with source.visit() as session:
        session.execute("CREATE DATABASE IF NOT EXISTS unseen")
        session.execute("CREATE TABLE unseen.t (id UInt64) ENGINE = MergeTree ORDER BY id")
        session.execute("INSERT INTO unseen.t VALUES (1)")
    ticked = Ticked(tmp_path, source)
    row = ticked.settle(ticked.create("b", "unseen.t"))
    assert row.error is not None and row.error.code == "disk_not_seen"
    assert backups.listed(ticked.location) == []
