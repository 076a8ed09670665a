"""`--rbac` at a real engine, asked over HTTP: what it shows of its users is what a backup holds.

The embedded engine keeps no users made by SQL, so those of a users file stand in for them: the front says
that its directory of users is not `users.xml`. What `SHOW ACCESS` and the system tables answer is its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ticked import Ticked

from calve.archive.access import check_access
from calve.backup.access import read_access
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.errors import RefusedError
from support.clickhouse_front import FrontOptions, clickhouse_front
from support.clickhouse_server import ClickHouseServer
from support.clickhouse_server import ServerOptions as OldOptions

pytestmark = pytest.mark.services

HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ME = (
    "<default><password></password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>"
    "<access_management>1</access_management><named_collection_control>1</named_collection_control>"
    "<show_named_collections_secrets>1</show_named_collections_secrets></default>"
)
USERS = f"""<clickhouse><profiles><default/><web><max_threads>3</max_threads></web></profiles>
<quotas><default/><hourly><interval><duration>3600</duration><queries>10</queries></interval></hourly></quotas>
<roles><analyst><grants><query>GRANT SELECT(id) ON db.t WITH GRANT OPTION</query></grants></analyst></roles>
<users>{ME}<bob><password_sha256_hex>{HASH}</password_sha256_hex><networks><ip>10.0.0.0/8</ip></networks>
<profile>web</profile><quota>hourly</quota><grants><query>GRANT analyst</query></grants>
<databases><db><t><filter>s = currentUser()</filter></t></db></databases></bob></users></clickhouse>"""
NOT_CONFIGURED = {"('users_xml', 'users.xml', 'ldap')": "('none')"}


def server(folder: Path, users: str, stand_ins: dict[str, str]) -> Iterator[ServerSource]:
    (folder / "users.xml").write_text(users)
    config = folder / "config.xml"
    config.write_text(
        f"<clickhouse><users_config>{folder}/users.xml</users_config>"
        "<display_secrets_in_show_and_select>1</display_secrets_in_show_and_select></clickhouse>"
    )
    options = FrontOptions(stand_ins=stand_ins, server_settings={"config-file": str(config)})
    with clickhouse_front(folder / "front", options) as front:
        disks = {"default": str(front.data)}
        yield ServerSource("main", ServerOptions(url=front.url, id=folder.name, disks=disks))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSource]:
    for source in server(tmp_path_factory.mktemp("one"), USERS, NOT_CONFIGURED):
        with source.visit() as session:
            session.execute("CREATE DATABASE db")
            session.execute("CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id")
            session.execute("INSERT INTO db.t VALUES (1, 'bob'), (2, 'eve')")
            session.execute("CREATE NAMED COLLECTION remote_db AS url = 'http://x', password = 'secret'")
        yield source


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSource]:
    """It has a user alone, and nowhere to keep others."""
    plain = f"<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users>{ME}</users></clickhouse>"
    yield from server(tmp_path_factory.mktemp("two"), plain, {})


def test_every_statement_that_the_engine_shows_is_one_that_a_restore_runs(one: ServerSource) -> None:
    with one.visit() as session:
        found = read_access(session, encrypted=True)
    for entry in found.entries:
        check_access(entry)
    titles = {entry.title for entry in found.entries}
    assert titles >= {
        "user bob", "role analyst", "settings profile web", "quota hourly", "row policy bob ON db.t",
        "grant analyst", "grant bob", "named collection remote_db",
    }  # fmt: skip
    creates = " ".join(entry.create for entry in found.entries)
    assert f"sha256_hash BY '{HASH.upper()}'" in creates and "password = 'secret'" in creates
    assert found.remarks == ()


def test_users_of_the_configuration_are_not_in_a_backup_and_are_named(two: ServerSource) -> None:
    with two.visit() as session:
        found = read_access(session, encrypted=True)
    assert found.entries == () and dict(found.remarks)["users of users.xml or LDAP"] == "default"


def test_row_policies_go_with_their_table_or_the_restore_is_refused(
    one: ServerSource, two: ServerSource, tmp_path: Path
) -> None:
    ticked = Ticked(tmp_path, one)
    made = ticked.settle(ticked.create("b", "db.t", ignore_row_policies=True))
    assert made.error is None
    ticked.ports.source_ = two
    refused = ticked.settle(ticked.restore("b")).error
    assert refused is not None and refused.code == "row_policies" and "bob" in refused.message
    with two.visit() as session:
        assert session.rows("SELECT name FROM system.tables WHERE database = 'db'") == []
    assert ticked.settle(ticked.restore("b", without_row_policies=True)).error is None


def test_a_server_without_users_made_by_sql_is_refused_in_words(tmp_path: Path) -> None:
    old = ClickHouseServer(tmp_path, OldOptions())
    old.start()
    try:
        source = ServerSource("old", ServerOptions(url=old.url, id="old"))
        with source.visit() as session, pytest.raises(RefusedError, match=r"from 20\.5 on") as refused:
            read_access(session, encrypted=False)
    finally:
        old.kill()
    assert refused.value.hint == "omit --rbac"
