"""`--rbac`: users, roles and the like go into a backup and come back; row policies go with their tables."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_source import WithAccess
from ticked import Ticked

from calve.archive import access, backups
from calve.archive.access import AccessEntry, check_access, entry_of
from calve.archive.left_out import left_out
from calve.archive.manifest import Manifest
from calve.archive.vault import properties
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.errors import ErrorInfo, PermanentError, RefusedError, UsageError
from calve.model.states import ProcessState
from calve.restore.access import make_access
from support.kept_source import KeptSource

HASH = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"
ACCESS = (
    "CREATE ROLE analyst SETTINGS PROFILE `web`",
    "CREATE SETTINGS PROFILE `web` SETTINGS max_threads = 3 TO analyst",
    f"CREATE USER bob IDENTIFIED WITH sha256_hash BY '{HASH}' HOST IP '10.0.0.0/8' SETTINGS PROFILE `web`",
    "CREATE QUOTA hourly FOR INTERVAL 1 hour MAX queries = 10 TO analyst",
    "GRANT SELECT(id) ON db.t TO analyst WITH GRANT OPTION",
    "GRANT analyst TO bob",
)
POLICY = "CREATE ROW POLICY own ON db.t FOR SELECT USING s = currentUser() TO analyst"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t VALUES (1, 'bob'), (2, 'eve')",
        )
        yield source


class Scene:
    """A backup of one server, restored to others, which are one engine with users of their own."""

    def __init__(self, engine: KeptSource, folder: Path) -> None:
        self.engine = engine
        self.ticked = Ticked(folder, self.source(*ACCESS, POLICY))

    def source(self, *statements: str, shows_secrets: bool = True) -> WithAccess:
        made = WithAccess(self.engine, shows_secrets=shows_secrets)
        for statement in statements:
            entry = entry_of(statement)
            assert entry is not None
            made.entries.append(entry)
        return made

    def back_up(self, **asked: Any) -> Manifest:
        asked = {"ignore_row_policies": True, **asked}
        row = self.ticked.settle(self.ticked.create("b", "db.t", **asked))
        assert row.state is ProcessState.COMPLETED, row.error
        return backups.find(self.ticked.location, "b")

    def restore(self, target: WithAccess, **asked: Any) -> ErrorInfo | None:
        self.ticked.ports.source_ = target  # type: ignore[assignment]
        process = self.ticked.restore("b", **asked)
        return self.ticked.settle(process).error

    def rows(self, table: str) -> int:
        return int(self.engine.select(f"SELECT count() AS n FROM {table}")[0]["n"])

    def drop(self) -> None:
        self.engine.execute("DROP DATABASE IF EXISTS r SYNC")


@pytest.fixture
def scene(engine: KeptSource, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(engine, tmp_path)
    yield made
    made.drop()


def makes(source: WithAccess) -> dict[str, str]:
    return {one.title + (one.create if one.kind == "grant" else ""): one.create for one in source.entries}


def test_everything_that_was_made_by_sql_comes_back_as_it_was(scene: Scene) -> None:
    made = scene.back_up(rbac=True)
    assert "default" not in {one.name for one in made.access}
    target = scene.source()
    scene.engine.execute("RENAME TABLE db.t TO db.away")
    try:
        assert scene.restore(target, rbac=True) is None
        assert scene.rows("db.t") == 2
    finally:
        scene.engine.execute("DROP TABLE db.t SYNC", "RENAME TABLE db.away TO db.t")
    assert makes(target) == makes(scene.source(*ACCESS, POLICY))


def test_a_role_and_its_profile_may_need_each_other(scene: Scene) -> None:
    scene.back_up(rbac=True)
    target = scene.source()
    assert (
        scene.restore(target, rbac=True, schema_only=True, existing="append", without_row_policies=True)
        is None
    )
    created = [text for text in target.statements if "PROFILE" in text and "USER" not in text]
    assert created == [
        "CREATE ROLE analyst SETTINGS PROFILE `web`",
        "CREATE SETTINGS PROFILE `web` SETTINGS max_threads = 3",
        "ALTER SETTINGS PROFILE `web` TO analyst",
    ]


def test_a_restore_that_dies_half_way_goes_on_and_refuses_nothing_of_its_own(scene: Scene) -> None:
    made = scene.back_up(rbac=True)
    request = _request(scene, rbac=True)
    target = scene.source()
    for allowed in range(8):
        target.dies_after = allowed
        try:
            with target.visit() as session:
                make_access(session, made, request, frozenset())
        except KeyboardInterrupt:
            continue
    assert makes(target) == makes(scene.source(*ACCESS, POLICY))


def _request(scene: Scene, **asked: Any) -> Any:
    from calve.restore.submit import RestoreOptions, request_of

    return request_of(scene.ticked.ports, "b", "main", RestoreOptions(**asked))


@pytest.mark.parametrize(
    ("existing", "expected"), [("refuse", "access_exists"), ("append", "kept"), ("replace", "replaced")]
)
def test_another_user_of_the_same_name(scene: Scene, existing: str, expected: str) -> None:
    made = scene.back_up(rbac=True)
    theirs = "CREATE USER bob IDENTIFIED WITH sha256_hash BY 'AA' HOST LOCAL"
    target = scene.source(theirs)
    request = _request(scene, rbac=True, existing=existing, without_row_policies=True)
    with target.visit() as session:
        if expected == "access_exists":
            with pytest.raises(RefusedError, match="user bob exists already") as refused:
                make_access(session, made, request, frozenset())
            assert refused.value.code == expected and target.statements == []
            return
        make_access(session, made, request, frozenset())
    [bob] = [one.create for one in target.entries if one.title == "user bob"]
    assert bob == (theirs if expected == "kept" else ACCESS[2])
    assert ("GRANT analyst TO bob" in target.statements) is (expected == "replaced")


def test_a_password_that_the_server_hides_is_replaced_by_one_that_nobody_knows(scene: Scene) -> None:
    scene.ticked.ports.source_ = scene.source(*ACCESS, shows_secrets=False)  # type: ignore[assignment]
    made = scene.back_up(rbac=True)
    [bob] = [one.create for one in made.access if one.title == "user bob"]
    assert "IDENTIFIED WITH sha256_hash BY '" in bob and HASH not in bob
    assert "HOST IP '10.0.0.0/8' SETTINGS PROFILE `web`" in bob
    assert any("password of user bob" in one.what and "ALTER USER bob" in one.why for one in left_out(made))


def test_a_password_in_clear_is_not_kept_in_a_backup_that_is_not_encrypted(scene: Scene) -> None:
    clear = "CREATE USER carl IDENTIFIED WITH plaintext_password BY 'clear1'"
    scene.ticked.ports.source_ = scene.source(clear)  # type: ignore[assignment]
    made = scene.back_up(rbac=True)
    assert "clear1" not in made.to_json()
    assert any("password of user carl" in one.what and "not encrypted" in one.why for one in left_out(made))


def test_a_named_collection_is_left_out_and_named(scene: Scene) -> None:
    scene.engine.execute("CREATE NAMED COLLECTION IF NOT EXISTS s3_keys AS url = 'x', secret = 'hunter2'")
    made = scene.back_up(rbac=True)
    assert "hunter2" not in made.to_json()
    assert any(
        "named collection s3_keys" in one.what and "encryption_key" in one.why for one in left_out(made)
    )


def test_an_encrypted_backup_holds_named_collections_with_their_values(tmp_path: Path) -> None:
    """The engine itself keeps and shows them, so all of this is real."""
    allowed = "".join(
        f"<{word}>1</{word}>"
        for word in ("access_management", "named_collection_control", "show_named_collections",
                     "show_named_collections_secrets")
    )  # fmt: skip
    users, config = tmp_path / "users.xml", tmp_path / "config.xml"
    users.write_text(
        "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default><password/>"
        f"<networks><ip>::/0</ip></networks>{allowed}</default></users></clickhouse>"
    )
    config.write_text(
        "<clickhouse><display_secrets_in_show_and_select>1</display_secrets_in_show_and_select>"
        f"<users_config>{users}</users_config></clickhouse>"
    )
    source = EmbeddedSource("main", tmp_path / "clickhouse", create=True, engine_config=str(config))
    with source.visit() as session:
        for statement in (
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id",
            "CREATE NAMED COLLECTION keys AS url = 'x' OVERRIDABLE, secret = 'hunter2' NOT OVERRIDABLE",
        ):
            session.execute(statement)
    ticked = Ticked(tmp_path / "backups", source)
    ticked.ports.storage = properties(keys=secrets.token_hex(32))
    row = ticked.settle(ticked.create("b", rbac=True))
    assert row.state is ProcessState.COMPLETED, row.error
    assert "hunter2" not in f"{row}{ticked.store.plan(row.id)}"
    assert not any(
        b"hunter2" in path.read_bytes() for path in (tmp_path / "backups").rglob("*") if path.is_file()
    )
    with source.visit() as session:
        session.execute("DROP NAMED COLLECTION keys")
    restored = ticked.restore("b", rbac=True, schema_only=True, existing="append")
    assert ticked.settle(restored).error is None
    assert "hunter2" not in f"{ticked.row(restored)}{ticked.store.plan(restored)}"
    shown = {"format_display_secrets_in_show_and_select": "1"}
    with source.visit() as session:
        [kept] = session.rows("SELECT create_query FROM system.named_collections", shown)
    assert kept["create_query"].endswith("AS secret = 'hunter2' NOT OVERRIDABLE, url = 'x' OVERRIDABLE")


def test_a_backup_without_users_has_none_to_restore(scene: Scene) -> None:
    scene.back_up()
    error = scene.restore(scene.source(), rbac=True, schema_only=True, existing="append")
    assert error is not None and error.code == "no_access"


def test_users_keep_their_names() -> None:
    from calve.restore.submit import RestoreOptions

    with pytest.raises(UsageError, match="--as"):
        RestoreOptions(rbac=True, into="r")


# ---- row policies


def test_a_table_is_restored_with_its_row_policies_before_it_has_rows(scene: Scene) -> None:
    scene.back_up()
    target = scene.source("CREATE ROLE analyst")
    assert scene.restore(target, into="r") is None
    assert scene.rows("r.t") == 2
    assert target.statements == [
        "CREATE ROW POLICY own ON `r`.`t` FOR SELECT USING s = currentUser() TO analyst"
    ]


def test_without_those_whom_a_policy_names_the_table_is_refused_or_insisted_on(scene: Scene) -> None:
    scene.back_up()
    error = scene.restore(scene.source(), into="r")
    assert error is not None and error.code == "row_policies" and "--without-row-policies" in error.hint
    assert scene.engine.select("SELECT name FROM system.tables WHERE database = 'r'") == []
    assert scene.restore(scene.source(), into="r", without_row_policies=True) is None
    assert scene.rows("r.t") == 2


def test_an_embedded_source_takes_no_row_policies(scene: Scene, engine: KeptSource) -> None:
    scene.back_up()
    error = scene.restore(engine, into="r")  # type: ignore[arg-type]
    assert error is not None and error.code == "row_policies"


def test_rows_are_not_appended_to_a_table_without_the_policies(scene: Scene) -> None:
    scene.back_up()
    scene.engine.execute("CREATE DATABASE r", "CREATE TABLE r.t AS db.t")
    target = scene.source("CREATE ROLE analyst")
    error = scene.restore(target, into="r", existing="append")
    assert error is not None and error.code == "row_policies" and target.statements == []
    assert scene.rows("r.t") == 0
    with_policy = scene.source("CREATE ROLE analyst", POLICY.replace("db.t", "r.t"))
    assert scene.restore(with_policy, into="r", existing="append") is None
    assert scene.rows("r.t") == 2


# ---- statements from outside


@pytest.mark.parametrize(
    "create",
    [
        "CREATE USER bob; DROP DATABASE db",
        "CREATE USER bob, eve",
        "CREATE USER eve",
        "CREATE USER bob ON CLUSTER everywhere",
        "CREATE USER IF NOT EXISTS bob",
        "CREATE USER OR REPLACE bob",
        "DROP USER bob",
        "CREATE USER bob -- now",
        "CREATE ROLE bob",
    ],
)
def test_a_statement_that_does_more_than_make_its_user_is_refused(create: str) -> None:
    with pytest.raises(PermanentError) as refused:
        check_access(AccessEntry(kind=access.USER, name="bob", create=create))
    assert refused.value.code == "backup_statement"


@pytest.mark.parametrize(
    "create",
    [
        "GRANT SELECT ON *.* TO bob, eve",
        "GRANT SELECT ON *.* TO eve",
        "GRANT ON CLUSTER c SELECT ON *.* TO bob",
        "GRANT SELECT ON *.* TO bob WITH REPLACE OPTION",
        "REVOKE SELECT ON *.* FROM bob",
        "SELECT 1",
    ],
)
def test_a_grant_is_to_the_one_it_is_kept_for(create: str) -> None:
    with pytest.raises(PermanentError) as refused:
        check_access(AccessEntry(kind=access.GRANT, name="bob", create=create))
    assert refused.value.code == "backup_statement"


@pytest.mark.parametrize("create", [*ACCESS, POLICY, "CREATE NAMED COLLECTION nc AS a = 'x' OVERRIDABLE"])
def test_what_clickhouse_shows_is_accepted(create: str) -> None:
    entry = entry_of(create)
    assert entry is not None
    check_access(entry)
