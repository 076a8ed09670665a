"""What a table is, who it is, and what is refused: on servers of every age."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import PASSWORD, TIMEZONE, UUID, WITH_UUID, Place, pin_name

from calve.clickhouse.server import clone, pin
from calve.clickhouse.server.live import why_no_clone
from calve.clickhouse.server.parts import listed_parts, partitions
from calve.clickhouse.server.pin import UNKNOWN_POLICIES
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.server.tables import describe
from calve.model.errors import NotFoundError, PermanentError, RefusedError, TemporaryError
from support.clickhouse_front import NO_USERS, ClickHouseFront, FrontOptions, FrontUser

pytestmark = pytest.mark.services
Front = Callable[..., ClickHouseFront]
REPLICA = {
    "is_readonly": "0",
    "is_session_expired": "0",
    "inserts_in_queue": "0",
    "log_max_index": "7",
    "log_pointer": "8",
}


def identity(source: ServerSource, table: str) -> str:
    database, short = table.split(".")
    with source.visit() as session:
        return describe(session, database, short).identity


def test_a_table_is_described(place: Place) -> None:
    table = place.numbers()
    with place.source().visit() as session:
        found = describe(session, *table.split("."))
    assert [(column.name, column.type) for column in found.columns] == [
        ("a", "UInt64"),
        ("s", "String"),
        ("day", "Date"),
    ]
    assert (found.partition_key, found.sorting_key, found.engine) == ("toYYYYMM(day)", "a", "MergeTree")
    assert found.timezone == TIMEZONE
    assert found.row_policies == ()


def test_partitions_are_listed(place: Place) -> None:
    table = place.numbers(parts=2, rows=10)
    with place.source().visit() as session:
        [found] = partitions(session, describe(session, *table.split(".")))
    assert (found.id, found.rows, found.parts, found.disks) == ("202401", 20, 2, ("default",))


def test_D7_a_table_is_its_server_and_its_uuid(today: Place) -> None:
    assert identity(today.source(), today.numbers()).startswith(f"server:{UUID}/")


def test_D7_a_server_without_uuids_needs_an_id_and_says_so(old: Place) -> None:
    table = old.numbers()
    with pytest.raises(RefusedError, match=r"18\.16") as refused:
        identity(old.source(id=""), table)
    assert refused.value.code == "no_identity"
    assert 'id = "…" under [source.main]' in refused.value.hint
    assert identity(old.source(id="here"), table) == f"id:here/`{table.replace('.', '`.`')}`"


def test_D7_shards_that_share_a_table_s_uuid_are_two_inputs(front: Front) -> None:
    """ON CLUSTER gives all shards one uuid."""
    uuid = "99999999-9999-9999-9999-999999999999"
    found = []
    for server in ("1", "2"):
        started = front(
            FrontOptions(
                stand_ins={**NO_USERS, "serverUUID()": f"toUUID('{server * 8}-1111-1111-1111-{'1' * 12}')"}
            )
        )
        source = ServerSource("main", ServerOptions(url=started.url))
        with source.visit() as session:
            session.execute("CREATE DATABASE db")
            session.execute(f"CREATE TABLE db.t UUID '{uuid}' (a UInt8) ENGINE = MergeTree ORDER BY a")
        found.append(identity(source, "db.t"))
    assert found[0] != found[1]
    assert found[0].endswith(uuid) and found[1].endswith(uuid)


def replicated(front: Front, path: str, **state: str) -> ServerSource:
    """A front whose one table says of itself that it is replicated; the engine has no Keeper."""
    values = {**REPLICA, **state}
    row = ", ".join(f"{value} AS {key}" for key, value in values.items())
    stand_ins = {
        **WITH_UUID,
        "system.replicas": f"(SELECT 'db' AS database, 't' AS table, 'default' AS zookeeper_name, "
        f"'{path}' AS zookeeper_path, {row})",
        "engine_full,": "concat('Replicated', engine_full) AS engine_full,",
        "SYSTEM SYNC REPLICA `db`.`t` LIGHTWEIGHT": "INSERT INTO db.synced VALUES (1)",
    }
    source = ServerSource("main", ServerOptions(url=front(FrontOptions(stand_ins=stand_ins)).url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.synced (a UInt8) ENGINE = Memory")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    return source


def test_D7_replicas_made_by_hand_are_one_input(front: Front) -> None:
    """Their uuids differ, their Keeper path does not."""
    one, two = replicated(front, "/clickhouse/t"), replicated(front, "/clickhouse/t")
    assert identity(one, "db.t") == identity(two, "db.t") == "keeper:default:/clickhouse/t"


def test_a_replica_is_synced_before_it_is_pinned_and_cloned_into_a_plain_table(front: Front) -> None:
    source = replicated(front, "/t")
    place = Place(url="", data=Path(), modern=True)
    name = pin_name()
    pinned = place.pin("db.t", name, source, partitions=("all",))
    with source.visit() as session:
        assert session.rows("SELECT count() AS n FROM db.synced") == [{"n": 1}]
        [row] = session.rows(f"SELECT engine FROM system.tables WHERE name = '{name}'")
    assert (row["engine"], pinned.partitions[0].rows) == ("MergeTree", 1)


def test_a_replica_without_keeper_is_refused(front: Front) -> None:
    source = replicated(front, "/t", is_readonly="1")
    with source.visit() as session, pytest.raises(TemporaryError) as refused:
        pin.ready(session, describe(session, "db", "t"))
    assert refused.value.code == "replica_readonly"


def test_a_distributed_table_is_refused_with_its_shards(old: Place) -> None:
    table = old.numbers()
    old.run(
        f"CREATE TABLE {table}_all (a UInt64, s String, day Date) "
        f"ENGINE = Distributed(two_shards, {table.replace('.', ', ')})"
    )
    with old.source().visit() as session, pytest.raises(RefusedError) as refused:
        describe(session, *f"{table}_all".split("."))
    assert f"{table} at 127.0.0.1, {table} at 127.0.0.2" in refused.value.message
    assert "a [source.…] of its own" in refused.value.hint


@pytest.mark.parametrize("engine", ["Memory", "Log"])
def test_a_table_without_parts_is_refused(place: Place, engine: str) -> None:
    table = place.table("a UInt8", engine)
    with place.source().visit() as session, pytest.raises(RefusedError, match=engine):
        describe(session, *table.split("."))


def test_a_missing_table_is_not_found_and_a_near_one_suggested(place: Place) -> None:
    table = place.numbers()
    with place.source().visit() as session, pytest.raises(NotFoundError) as missing:
        describe(session, table.split(".")[0], "tt")
    assert table in missing.value.hint


def test_a_read_only_user_gets_no_pin_and_reads_parts_by_name(place: Place, executor: ExecutorChild) -> None:
    table = place.numbers()
    source = place.source(user="reader")
    name = pin_name()
    pinned = place.pin(table, name, source)
    assert "its user may only read" in pinned.notes[0]
    assert executor.read(source, pinned, "count() AS n, sum(a) AS s")["rows"] == [{"n": 3000, "s": 4498500}]
    source.release(name, pinned.to_json())
    with place.source().visit() as session:
        assert not clone.exists(session, name)


def test_a_user_without_grants_gets_no_pin_and_it_is_said(today: Place, executor: ExecutorChild) -> None:
    source = today.source(user="selecter")
    pinned = today.pin(today.numbers(), source=source)
    assert "may make no clone" in pinned.notes[0]
    assert executor.read(source, pinned, "count() AS n")["rows"] == [{"n": 3000}]


def test_a_part_that_vanished_under_a_read_only_user_fails_clearly(
    place: Place, executor: ExecutorChild
) -> None:
    table = place.numbers()
    source = place.source(user="reader")
    pinned = place.pin(table, source=source)
    place.run(f"ALTER TABLE {table} DROP PARTITION 202401")
    error = executor.read(source, pinned)["error"]
    assert (error["code"], error["retryable"]) == ("part_gone", False)
    assert "merged, mutated or dropped" in error["message"]


def test_rows_of_a_read_only_user_are_claimed_to_be_in_no_order(today: Place) -> None:
    table = today.numbers()
    assert today.pin(table).sorting_key == "a"
    assert today.pin(table, source=today.source(user="reader")).sorting_key == ""


def test_D14_policies_that_cannot_be_seen_are_refused_like_policies(front: Front) -> None:
    stand_ins = {"serverUUID()": f"toUUID('{UUID}')"}  # the engine itself refuses the look
    source = ServerSource("main", ServerOptions(url=front(FrontOptions(stand_ins=stand_ins)).url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    place = Place(url="", data=Path(), modern=True)
    with pytest.raises(RefusedError, match=UNKNOWN_POLICIES) as refused:
        place.pin("db.t", source=source, partitions=("all",))
    assert refused.value.code == "row_policies"
    assert place.pin("db.t", source=source, partitions=("all",), ignore_row_policies=True).parts


def test_D14_who_may_make_no_clone_reads_through_policies_it_cannot_see(front: Front) -> None:
    users = {"default": FrontUser(), "selecter": FrontUser(select_only=True)}
    stand_ins = {"serverUUID()": f"toUUID('{UUID}')"}
    url = front(FrontOptions(users=users, stand_ins=stand_ins)).url
    with ServerSource("main", ServerOptions(url=url)).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    source = ServerSource("main", ServerOptions(url=url, user="selecter"))
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", source=source, partitions=("all",))
    assert "may make no clone" in pinned.notes[0]
    assert [part.rows for part in pinned.parts] == [1]


def test_where_executors_see_the_disk_parts_are_frozen(today: Place) -> None:
    table, name = today.numbers(), pin_name()
    source = today.source(disks={"default": str(today.data)})
    pinned = today.pin(table, name, source)
    assert pinned.relation.mode == "frozen"
    assert all(Path(part.path).is_dir() for part in pinned.parts)
    assert [part.rows for part in pinned.parts] == [1000] * 3
    source.release(name, pinned.to_json())
    assert not any(Path(part.path).exists() for part in pinned.parts)


def test_a_disk_seen_under_another_path_is_frozen_there(today: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mounted"
    elsewhere.symlink_to(today.data)
    pinned = today.pin(today.numbers(), source=today.source(disks={"default": str(elsewhere)}))
    assert pinned.relation.mode == "frozen"
    assert all(
        Path(part.path).is_relative_to(elsewhere) and Path(part.path).is_dir() for part in pinned.parts
    )


@pytest.mark.parametrize(
    "disks, why",
    [
        ({}, "no disk of the server is mapped"),
        ({"other": "/tmp"}, "disk default is not mapped"),
        ({"default": "/no/such/folder"}, "is not a folder on this machine"),
    ],
)
def test_otherwise_they_are_read_live_and_the_reason_is_noted(
    today: Place, disks: dict[str, str], why: str
) -> None:
    pinned = today.pin(today.numbers(), source=today.source(disks=disks))
    assert pinned.relation.mode == "live"
    assert why in pinned.notes[0]


def test_parts_newer_than_the_engine_are_read_live(front: Front) -> None:
    stand_ins = {**WITH_UUID, "SELECT version()": "SELECT '99.1.1.1'"}
    started = front(FrontOptions(stand_ins=stand_ins))
    source = ServerSource("main", ServerOptions(url=started.url, disks={"default": str(started.data)}))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", source=source, partitions=("all",))
    assert pinned.relation.mode == "live"
    assert "newer than the engine" in pinned.notes[0]


@pytest.mark.parametrize("stand_in", [{"lower(type)": "'s3'"}, {"toUInt8(is_encrypted)": "1"}])
def test_disks_without_plain_files_are_read_live(front: Front, stand_in: dict[str, str]) -> None:
    started = front(FrontOptions(stand_ins={**WITH_UUID, **stand_in}))
    source = ServerSource("main", ServerOptions(url=started.url, disks={"default": str(started.data)}))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", source=source, partitions=("all",))
    assert pinned.relation.mode == "live"
    assert "object storage, or encrypted" in pinned.notes[0]


_REPLICATED = {
    "engine_full,": "concat('Replicated', engine_full) AS engine_full,",
}
_IN_S3 = {"lower(type)": "'s3'"}
_OF_THE_SERVER = {"AND value = '1'": ""}
_CLOSED = {"WHERE is_read_only": "WHERE NOT is_read_only"}


@pytest.mark.parametrize(
    ("stand_ins", "setting", "why"),
    [
        (_REPLICATED | _IN_S3, "", ""),
        (_REPLICATED | _IN_S3, "1", "share the objects of disk default"),
        (_REPLICATED | _IN_S3 | _OF_THE_SERVER, "", "share the objects of disk default"),
        (_REPLICATED | _IN_S3 | _OF_THE_SERVER, "0", ""),
        (_REPLICATED | _OF_THE_SERVER, "", ""),
        (_IN_S3 | _OF_THE_SERVER, "1", ""),
        (_CLOSED, "", "disk default is read-only"),
    ],
)
def test_no_clone_is_made_where_dropping_it_could_harm_or_it_cannot_be(
    front: Front, stand_ins: dict[str, str], setting: str, why: str
) -> None:
    """Only Keeper knows which replica needs an object, and it does not know a clone."""
    started = front(FrontOptions(stand_ins=WITH_UUID | stand_ins))
    tail = f" SETTINGS allow_remote_fs_zero_copy_replication = {setting}" if setting else ""
    source = ServerSource("main", ServerOptions(url=started.url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(f"CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a{tail}")
        session.execute("INSERT INTO db.t VALUES (1)")
        found = describe(session, "db", "t")
        told = why_no_clone(session, found, listed_parts(session, "db", "t", ("all",)))
        assert bool(told) == bool(why) and why in told
        name = pin_name()
        if why:  # a backup of what is there cannot be right either
            with pytest.raises(RefusedError, match=re.escape(why)) as refused:
                session.link(found, ("all",), name)
            assert refused.value.code == "disk_not_linked" and "calve export" in refused.value.hint
        if not found.clause.replicated:  # which has a replica to wait for
            pinned = Place(url="", data=Path(), modern=True).pin("db.t", name, source, partitions=("all",))
            assert pinned.relation.detail["pinned"] is (not why)
            assert clone.exists(session, name) is (not why)


def test_after_the_pin_nobody_fails_over(front: Front) -> None:
    started = front(FrontOptions(stand_ins=WITH_UUID))
    source = ServerSource("main", ServerOptions(url=started.url))
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (a UInt8) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t VALUES (1)")
    name = pin_name()
    pinned = Place(url="", data=Path(), modern=True).pin("db.t", name, source, partitions=("all",))
    assert pinned.relation.detail["replica"] == started.url
    with pytest.raises(RefusedError) as refused:
        ServerSource("main", ServerOptions(url="http://127.0.0.1:1")).release(name, pinned.to_json())
    assert refused.value.code == "replica_gone"


def test_a_user_with_a_wrong_password_is_no_read_only_user(today: Place) -> None:
    with pytest.raises(PermanentError) as refused:
        today.pin(today.numbers(), source=today.source(password=PASSWORD + "x"))
    assert refused.value.code == "authentication"
