"""Tables whose disks are in object storage: backed up from the bucket, with what a real S3 server has and what the server
says of its disks, and restored to the same disks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.archive.vault import properties
from calve.backup.verification import verify
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.errors import TemporaryError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.objects.storage import Storage
from calve.testing.faults import KIND_CALLS, RUNNER_CALLS, STORE_CALLS, Break, Crash, Faults
from support.clickhouse_front import NO_USERS, ClickHouseFront, FrontOptions, clickhouse_front
from support.s3 import S3Server, s3_server
from support.s3_disks import BUCKET, server_settings

pytestmark = pytest.mark.services
LONG = pytest.mark.long
COLUMNS = (
    "id UInt64, m UInt8, s String, e Array(Nullable(String)), PROJECTION p (SELECT m, count() GROUP BY m)"
)
SETTINGS = "min_bytes_for_wide_part = 0, max_bytes_to_merge_at_max_space_in_pool = 1"
KEY = "11" * 32


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("disks")
        yield server


@pytest.fixture(scope="module")
def front(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseFront]:
    folder = tmp_path_factory.mktemp("front")
    uuid = {"serverUUID()": "toUUID('11111111-2222-3333-4444-555555555555')"}
    options = FrontOptions(stand_ins={**NO_USERS, **uuid}, server_settings=server_settings(folder, s3))
    with clickhouse_front(folder, options) as front:
        yield front


class Scene(Ticked):
    def __init__(self, folder: Path, front: ClickHouseFront, s3: S3Server, **disks: str) -> None:
        self.s3 = s3
        self.known = {"default": str(front.data), "far": BUCKET, "cached": BUCKET} | disks
        self.server = ServerSource("main", ServerOptions(url=front.url, disks=self.known))
        super().__init__(folder, self.server)
        self.ports.buckets = {BUCKET: s3.properties()}

    def execute(self, *statements: str) -> None:
        with self.server.visit() as session:
            for statement in statements:
                session.execute(statement)

    def select(self, sql: str) -> list[dict[str, Any]]:
        with self.server.visit() as session:
            return session.rows(sql)

    def make(self, database: str, policy: str) -> None:
        """Wide parts with files that have no byte (nothing is in any array), a projection, a mask and, where
        the policy has two disks, parts on both."""
        self.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t ({COLUMNS}) ENGINE = MergeTree PARTITION BY m ORDER BY id"
            f" SETTINGS storage_policy = '{policy}', lightweight_mutation_projection_mode = 'rebuild', {SETTINGS}",
            *(
                f"INSERT INTO {database}.t SELECT number + {at}, number % 2, repeat('x', number % 5000), []"
                " FROM numbers(3000)"
                for at in (0, 3000)
            ),
            f"DELETE FROM {database}.t WHERE id = 7",
            *([f"ALTER TABLE {database}.t MOVE PARTITION 1 TO DISK 'far'"] if policy == "tiered" else []),
        )

    def held(self, database: str) -> dict[str, Any]:
        parts = self.select(
            "SELECT groupArraySorted(100)((partition_id, rows, hash_of_all_files)) AS parts FROM system.parts"
            f" WHERE active AND database = '{database}'"
        )
        rows = self.select(f"SELECT count() AS n, sum(cityHash64(*)) AS hash FROM {database}.t")
        return parts[0] | rows[0]

    @property
    def clones(self) -> list[dict[str, Any]]:
        return self.select("SELECT name FROM system.tables WHERE database IN ('calve_pins', 'calve_restore')")

    @property
    def unnamed(self) -> set[str]:
        """Objects that no file of the server names."""
        named = self.select(
            "SELECT remote_path AS path FROM system.remote_data_paths WHERE disk_name = 'far'"
        )
        return set(Storage(self.s3.properties()).list(BUCKET)) - {f"{BUCKET}/{row['path']}" for row in named}


def completed(row: Process) -> Process:
    assert row.state is ProcessState.COMPLETED, row.error
    return row


@pytest.mark.parametrize(
    ("policy", "sealed"),
    [("far", True), *(pytest.param(one, False, marks=LONG) for one in ("far", "cached", "tiered"))],
)
def test_a_backup_has_their_bytes_and_a_restore_puts_them_on_the_same_disks(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path, policy: str, sealed: bool
) -> None:
    scene, database = Scene(tmp_path, front, s3), f"{policy}{sealed}".lower()
    scene.ports.storage = dict(properties(keys=KEY, compression="zstd", level=1)) if sealed else {}
    scene.make(database, policy)
    before = scene.held(database)
    created = completed(scene.settle(scene.create("b", f"{database}.*")))
    assert scene.clones == [] and scene.unnamed == set()
    assert verify(scene.location, backups.find(scene.location, "b"), read_share=1.0).whole
    assert not scene.location.storage.list(scene.location.all_under_way)
    assert s3.keys.secret_access_key not in f"{created}{scene.store.plan(created.id)}"
    completed(scene.settle(scene.create("again", f"{database}.*")))
    assert backups.find(scene.location, "again").moved_bytes == 0
    scene.execute(f"DROP DATABASE {database} SYNC")
    completed(scene.settle(scene.restore("b")))
    assert scene.held(database) == before
    assert scene.select(f"CHECK TABLE {database}.t SETTINGS check_query_single_value_result = 1") == [
        {"result": 1}
    ]
    assert scene.clones == [] and scene.unnamed == set()
    [made] = scene.select(f"SELECT engine_full AS full FROM system.tables WHERE database = '{database}'")
    assert (
        "max_bytes_to_merge_at_max_space_in_pool = 1" in made["full"]
        and "merges_with_ttl" not in made["full"]
    )


def test_without_their_bucket_they_are_refused_by_name(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, front, s3)
    scene.make("unknown", "cached")
    scene.execute(  # which is pinned first
        f"CREATE TABLE unknown.first ({COLUMNS}) ENGINE = MergeTree ORDER BY id SETTINGS storage_policy = 'far'",
        "INSERT INTO unknown.first SELECT number, 0, '', [] FROM numbers(10)",
    )
    del scene.known["cached"]
    row = scene.settle(scene.create("b", "unknown.*"))
    assert row.error and row.error.code == "disk_not_seen" and "cached" in row.error.message
    assert "disks = {cached = 's3://bucket'}" in row.error.hint and "calve export" in row.error.hint
    assert backups.listed(scene.location) == [] and scene.clones == [] and scene.unnamed == set()
    assert not scene.location.storage.list(scene.location.all_under_way)


def test_another_bucket_is_found_out_before_anything_is_stored(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path
) -> None:
    s3.create_bucket("other")
    scene = Scene(tmp_path, front, s3, far="s3://other")
    scene.ports.buckets["s3://other"] = s3.properties()
    scene.make("elsewhere", "far")
    row = scene.settle(scene.create("b", "elsewhere.*"))
    assert row.error and row.error.code == "object_missing" and "s3://other/" in row.error.message
    assert backups.listed(scene.location) == [] and scene.clones == [] and scene.unnamed == set()
    assert not scene.location.storage.list(scene.location.all_under_way)


@LONG
def test_existing_tables_on_such_disks_are_not_restored_to(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, front, s3)
    scene.make("there", "far")
    before = scene.held("there")
    completed(scene.settle(scene.create("b", "there.*")))
    for existing in ("append", "replace"):
        row = scene.settle(scene.restore("b", existing=existing, again=existing == "append"))
        assert row.error and row.error.code == "target_in_object_storage"
    assert scene.held("there") == before


@pytest.mark.parametrize("applied", [True, pytest.param(False, marks=LONG)])
def test_a_copy_whose_answer_is_lost_is_made_once(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    scene, database = Scene(tmp_path, front, s3), f"lost{applied}".lower()
    scene.make(database, "far")
    before = scene.held(database)
    completed(scene.settle(scene.create("b", f"{database}.*")))
    scene.execute(f"DROP DATABASE {database} SYNC")
    real, lost = ServerSession.execute, [1, 0, 1]  # of the copies that are asked for

    def execute(session: ServerSession, sql: str, *rest: Any, **named: Any) -> None:
        broken = "ATTACH PARTITION ID" in sql and bool(lost) and lost.pop(0) > 0
        if applied or not broken:
            real(session, sql, *rest, **named)
        if broken:
            raise TemporaryError("the answer was lost", code="injected")

    monkeypatch.setattr(ServerSession, "execute", execute)
    completed(scene.settle(scene.restore("b")))
    assert scene.held(database) == before
    assert lost == [] or applied
    assert scene.clones == [] and scene.unnamed == set()


@LONG
def test_a_copy_that_a_worker_makes_when_it_wakes_up_is_found_out(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, front, s3)
    scene.make("woken", "far")
    completed(scene.settle(scene.create("b", "woken.*")))
    scene.execute("DROP DATABASE woken SYNC")
    real = ServerSession.execute

    def execute(session: ServerSession, sql: str, *rest: Any, **named: Any) -> None:
        if "ATTACH PARTITION ID '1'" in sql:
            real(session, sql, *rest, **named)
        real(session, sql, *rest, **named)

    monkeypatch.setattr(ServerSession, "execute", execute)
    row = scene.settle(scene.restore("b"))
    assert row.error and row.error.code == "restore_unclear" and "4 parts in partition 1" in row.error.message
    assert scene.clones == []


@LONG
def test_a_policy_of_two_disks_needs_both(s3: S3Server, front: ClickHouseFront, tmp_path: Path) -> None:
    scene = Scene(tmp_path, front, s3)
    scene.make("halves", "tiered")
    del scene.known["default"]
    row = scene.settle(scene.create("b", "halves.*"))
    assert row.error and row.error.code == "disk_not_seen" and "on disk default" in row.error.message
    assert backups.listed(scene.location) == [] and scene.clones == []


@LONG
@pytest.mark.parametrize("call", ["take", "plan", "run", "publish"])
def test_a_worker_that_dies_leaves_no_clone_and_no_object(
    s3: S3Server, front: ClickHouseFront, tmp_path: Path, call: str
) -> None:
    scene = Scene(tmp_path, front, s3)
    scene.make(f"dies_{call}", "far")
    made = scene.create("b", f"dies_{call}.*")
    faults = Faults(skipping=(STORE_CALLS | KIND_CALLS | RUNNER_CALLS) - {call}, at=1, how=Break.AFTER)
    with pytest.raises(Crash):
        scene.settle(made, scene.worker(faults))
    scene.clock.advance(310.0)  # leases, and the hiding of a pin that was being released
    completed(scene.settle(made))
    assert verify(scene.location, backups.find(scene.location, "b"), read_share=1.0).whole
    assert scene.clones == [] and scene.unnamed == set()
    assert not scene.location.storage.list(scene.location.all_under_way)
