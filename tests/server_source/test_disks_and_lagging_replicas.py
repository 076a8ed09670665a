"""What point 2 of a server as the source promises of disks, of users, and of replicas that lag."""

from collections.abc import Callable
from pathlib import Path

import pytest
from servers import WITH_UUID, Place, pin_name

from calve.clickhouse.pins.pin import Pinned
from calve.clickhouse.server.pin import ready
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.server.tables import describe
from calve.model.errors import RefusedError, TemporaryError
from support.another_user import another_user
from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser

pytestmark = pytest.mark.services
Front = Callable[..., ClickHouseFront]
BEHIND = {
    "parts to fetch": {"inserts_in_queue": "3", "log_max_index": "7", "log_pointer": "8"},
    "a log not looked at": {"inserts_in_queue": "0", "log_max_index": "9", "log_pointer": "8"},
}


def pin(source: ServerSource, table: str, name: str = "") -> Pinned:
    place = Place(url="", data=Path(), modern=True)
    return place.pin(table, name or pin_name(), source, partitions=("all",))


def two_disks(front: Front) -> tuple[ClickHouseFront, Path]:
    """A table on the server's first disk and one on its second."""
    started = front(
        FrontOptions(stand_ins=WITH_UUID, server_settings={"custom_local_disks_base_directory": "/"})
    )
    second = started.folder / "second"
    with ServerSource("main", ServerOptions(url=started.url)).visit() as session:
        session.execute("CREATE DATABASE db")
        for table, tail in (
            ("one", ""),
            ("two", f" SETTINGS disk = disk(name = 'second', type = 'local', path = '{second}/')"),
        ):
            session.execute(f"CREATE TABLE db.{table} (a UInt8) ENGINE = MergeTree ORDER BY a{tail}")
            session.execute(f"INSERT INTO db.{table} VALUES (1), (2)")
    return started, second


def test_parts_on_several_disks_are_frozen_where_each_disk_is_mapped(front: Front) -> None:
    started, second = two_disks(front)
    disks = {"default": str(started.data), "second": str(second)}
    source = ServerSource("main", ServerOptions(url=started.url, disks=disks))
    for table, root in (("db.one", started.data), ("db.two", second)):
        name = pin_name()
        pinned = pin(source, table, name)
        assert pinned.relation.mode == "frozen", pinned.notes
        assert all(Path(part.path).is_relative_to(root) and Path(part.path).is_dir() for part in pinned.parts)
        source.release(name, pinned.to_json())
        assert not any(Path(part.path).exists() for part in pinned.parts)


def test_a_disk_that_is_defined_in_the_table_must_be_mapped_and_it_is_said(front: Front) -> None:
    started, _ = two_disks(front)
    source = ServerSource("main", ServerOptions(url=started.url, disks={"default": str(started.data)}))
    with pytest.raises(RefusedError) as refused:
        pin(source, "db.two")
    assert refused.value.code == "disk_inline"
    assert "map that disk" in refused.value.hint


def test_a_worker_that_may_not_touch_the_server_s_files_reads_live(front: Front) -> None:
    started, _ = two_disks(front)
    source = ServerSource("main", ServerOptions(url=started.url, disks={"default": str(started.data)}))
    mode, name = started.data.stat().st_mode, pin_name()
    started.data.chmod(0o555)
    try:
        with another_user():
            pinned = pin(source, "db.one", name)
            with source.visit() as session:
                assert session.pin_names() == (name,)
            source.release(name, pinned.to_json())
            with source.visit() as session:
                assert session.pin_names() == ()
    finally:
        started.data.chmod(mode)
    assert pinned.relation.mode == "live"
    assert "may not be read and written by this user" in pinned.notes[0]


@pytest.mark.parametrize("state", BEHIND.values(), ids=BEHIND)
def test_a_replica_that_lags_is_refused_where_it_may_not_be_told_to_catch_up(
    front: Front, state: dict[str, str]
) -> None:
    row = ", ".join(f"{value} AS {key}" for key, value in state.items())
    stand_ins = {
        **WITH_UUID,
        "system.replicas": "(SELECT 'db' AS database, 't' AS table, 'default' AS zookeeper_name,"
        f" '/t' AS zookeeper_path, 0 AS is_readonly, 0 AS is_session_expired, {row})",
        "engine_full,": "concat('Replicated', engine_full) AS engine_full,",
    }
    users = {"default": FrontUser(), "reader": FrontUser(readonly=True)}
    started = front(FrontOptions(stand_ins=stand_ins, users=users))
    with ServerSource("main", ServerOptions(url=started.url)).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
    reader = ServerSource("main", ServerOptions(url=started.url, user="reader"))
    with reader.visit() as session, pytest.raises(TemporaryError) as refused:
        ready(session, describe(session, "db", "t"))
    assert refused.value.code == "replica_lags"
    assert "grant SYSTEM SYNC REPLICA" in refused.value.hint
