"""What keeps a partition in its table: each obstacle by its code, looked for in the real engine."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from calve.clickhouse.source import Session
from calve.clickhouse.sql import create_table
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import obstacles
from calve.clickhouse.tier.losses import known_loss
from calve.clickhouse.tier.quarantine import MovingQuarantine, QuarantineAttempt
from calve.model.errors import RefusedError
from support.kept_source import KeptSource

BY_MONTH = "MergeTree PARTITION BY toYYYYMM(day) ORDER BY id"
TABLES = {
    "nothing": (BY_MONTH, set()),
    "no partitions": ("MergeTree ORDER BY id", {"unpartitioned"}),
    "rows are combined": ("ReplacingMergeTree PARTITION BY toYYYYMM(day) ORDER BY id", {"engine"}),
    "rows are summed": ("SummingMergeTree PARTITION BY toYYYYMM(day) ORDER BY id", {"engine"}),
    "TTL long ago": (f"{BY_MONTH} TTL day + INTERVAL 1 DAY", {"ttl_first"}),
    "TTL far off": (f"{BY_MONTH} TTL day + INTERVAL 20 YEAR", set()),
    "TTL that combines rows": (
        "MergeTree PARTITION BY toYYYYMM(day) ORDER BY (id, day) TTL day + INTERVAL 20 YEAR GROUP BY id SET note = max(note)",
        {"ttl_first"},
    ),
    "TTL that compresses": (f"{BY_MONTH} TTL day + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(3))", set()),
    "one of each": (
        f"{BY_MONTH} TTL day + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(3)), day + INTERVAL 1 DAY DELETE WHERE id > 5",
        {"ttl_first"},
    ),
    "updates by patches": (
        f"{BY_MONTH} SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
        {"lightweight_updates"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("obstacles") / "clickhouse") as source:
        source.execute("CREATE DATABASE db")
        yield source


def _table(source: KeptSource, engine: str, columns: str = "note String") -> TableInfo:
    source.execute(
        "DROP TABLE IF EXISTS db.t SYNC",
        f"CREATE TABLE db.t (id UInt64, day Date, {columns}) ENGINE = {engine}",
        "SYSTEM STOP MERGES db.t",
        "INSERT INTO db.t (id, day) SELECT number, '2024-01-05' FROM numbers(3)",
    )
    with source.visit() as session:
        return session.describe("db", "t")


def _codes(source: KeptSource, table: TableInfo) -> set[str]:
    partition = "202401" if table.partition_key else "all"
    with source.visit() as session:
        return {one.code for one in obstacles.find(session, table, partition)}


@pytest.mark.parametrize("name", TABLES)
def test_obstacles_of_tables(source: KeptSource, name: str) -> None:
    engine, codes = TABLES[name]
    assert _codes(source, _table(source, engine)) == codes


def test_a_column_that_is_emptied_by_time_is_one(source: KeptSource) -> None:
    assert _codes(source, _table(source, BY_MONTH, "note String TTL day + INTERVAL 20 YEAR")) == {"ttl_first"}


def test_a_TTL_that_parts_know_nothing_of_is_one(source: KeptSource) -> None:
    _table(source, BY_MONTH)
    source.execute(
        "ALTER TABLE db.t MODIFY TTL day + INTERVAL 20 YEAR SETTINGS materialize_ttl_after_modify = 0"
    )
    with source.visit() as session:
        table = session.describe("db", "t")
    assert _codes(source, table) == {"ttl_first"}


def test_a_change_that_has_not_reached_every_part_is_one(source: KeptSource) -> None:
    table = _table(source, BY_MONTH)
    source.execute("ALTER TABLE db.t DELETE WHERE id = 1 SETTINGS mutations_sync = 0")
    assert _codes(source, table) == {"mutation"}


def test_what_only_servers_have(source: KeptSource) -> None:
    table = _table(source, BY_MONTH)
    engine = "ReplicatedMergeTree('/t', 'r') PARTITION BY toYYYYMM(day) ORDER BY id SETTINGS "
    zero = create_table.parse(f"{engine} allow_remote_fs_zero_copy_replication = 1")
    replicated = replace(table, engine="ReplicatedMergeTree", clause=zero)
    assert _codes(source, replicated) == {"zero_copy"}
    assert _codes(source, replace(replicated, version="25.4.1.1")) == {"zero_copy", "server_version"}
    assert _codes(source, replace(table, row_policies=("p",))) == {"row_policies"}
    assert _codes(source, replace(table, policies_hidden=True)) == {"row_policies"}
    assert _codes(source, replace(table, engine="SharedMergeTree")) == {"engine"}
    assert _codes(source, replace(table, uuid="")) == {"no_uuid"}


def test_all_are_told_at_once_under_the_code_of_the_first(source: KeptSource) -> None:
    table = _table(source, "ReplacingMergeTree ORDER BY id")
    with source.visit() as session:
        found = obstacles.find(session, table, "all")
    with pytest.raises(RefusedError) as refused:
        obstacles.refuse(found, table, "all")
    assert refused.value.code == "unpartitioned"
    assert "engine:" in refused.value.message
    obstacles.refuse((), table, "all")


@pytest.mark.parametrize(
    ("version", "plain", "replicated"),
    [
        ("23.5.1.1", True, True),
        ("23.6.1.1", False, True),
        ("25.3.13.18", False, True),
        ("25.3.13.19", False, False),
        ("25.3.14.1", False, False),
        ("25.4.99.99", False, True),
        ("25.8.15.35", False, False),
        ("25.9.1.1", False, True),
        ("25.12.4.32", False, True),
        ("25.12.4.33", False, False),
        ("25.12", False, True),  # which release of it is not known
        ("26.1.1.1", False, False),
        ("26.9.2.1", False, False),
        ("x", True, True),
    ],
)
def test_versions_that_lose_parts_are_known_by_number(version: str, plain: bool, replicated: bool) -> None:
    assert bool(known_loss(version, replicated=False)) is plain
    assert bool(known_loss(version, replicated=True)) is replicated


class _Replicas:
    """A session whose server has the table's replica; statements are kept and not sent. Replicas do not run here."""

    embedded = False

    def __init__(self, session: Session) -> None:
        self._session = session
        self.sent: list[tuple[str, Mapping[str, str]]] = []

    def rows(self, sql: str, *given: Any, **more: Any) -> list[dict[str, Any]]:
        if "system.replicas" in sql:
            return [{"path": "/clickhouse/tables/1/t", "replica": "it's r1"}]
        return self._session.rows(sql, *given, **more)

    def execute(self, sql: str, settings: Mapping[str, str] | None = None, **more: Any) -> None:
        self.sent.append((sql, settings or {}))


def test_a_replicated_table_gets_a_quarantine_on_a_path_of_its_own(source: KeptSource) -> None:
    table = _table(source, BY_MONTH)
    clause = create_table.parse("ReplicatedMergeTree('/t', 'r') PARTITION BY toYYYYMM(day) ORDER BY id")
    attempt = QuarantineAttempt(
        table=replace(table, engine="ReplicatedMergeTree", clause=clause),
        partition="202401",
        number=7,
        process="p",
        top=1,
        hashes=frozenset(),
    )
    with source.visit() as session:
        replicas = _Replicas(session)
        quarantine = MovingQuarantine(cast("Session", replicas))
        quarantine.prepare(attempt)
        quarantine.take_out(attempt, "q")
    [create] = [sql for sql, _ in replicas.sent if sql.startswith("CREATE TABLE")]
    assert "ENGINE = ReplicatedMergeTree('/calve/released/" in create
    assert "/7', 'it\\'s r1') PARTITION BY toYYYYMM(day) ORDER BY id SETTINGS" in create
    sql, settings = replicas.sent[-1]
    assert (f"{table.uuid}_7_open" in sql, settings) == (True, {"alter_sync": "2"})
