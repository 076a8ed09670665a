"""A restore under another name uses nothing of the original (T5), and changes no text that only looks
like a table's name (T6)."""

from pathlib import Path

import pytest

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.errors import RefusedError
from calve.restore.references import follow
from support.calve_command import Run

RENAMED = {("db", name): ("db2", name) for name in ("t", "u", "d", "j", "mv", "target")}


@pytest.mark.parametrize(
    ("text", "followed"),
    [
        ("ENGINE = Buffer('db', 't', 16, 10)", "ENGINE = Buffer('db2', 't', 16, 10)"),
        ("ENGINE = Buffer(db, t, 16, 10)", "ENGINE = Buffer(`db2`, `t`, 16, 10)"),
        ("ENGINE = Merge('db', '^t')", "ENGINE = Merge('db2', '^t')"),
        ("ENGINE = Distributed('c', 'db', 't', rand())", "ENGINE = Distributed('c', 'db2', 't', rand())"),
        ("ENGINE = Dictionary('db.d')", "ENGINE = Dictionary('db2.d')"),
        ("AS SELECT * FROM merge('db', '^t')", "AS SELECT * FROM merge('db2', '^t')"),
        ("AS SELECT * FROM remote('h', db.t)", "AS SELECT * FROM remote('h', `db2`.`t`)"),
        ("AS SELECT * FROM remote('h', 'db', 't')", "AS SELECT * FROM remote('h', 'db2', 't')"),
        ("AS SELECT * FROM cluster('c', db.t)", "AS SELECT * FROM cluster('c', `db2`.`t`)"),
        ("AS SELECT * FROM dictionary('db.d')", "AS SELECT * FROM dictionary('db2.d')"),
        ("AS SELECT * FROM db.t AS a, db.u", "AS SELECT * FROM `db2`.`t` AS a, `db2`.`u`"),
        ("AS SELECT * FROM db.t FINAL LEFT JOIN db.u ON 1", "AS SELECT * FROM `db2`.`t` FINAL LEFT JOIN `db2`.`u` ON 1"),
        ("AS SELECT db.t.a FROM db.t", "AS SELECT `db2`.`t`.a FROM `db2`.`t`"),
        ("AS SELECT 1 WHERE a IN (db.t)", "AS SELECT 1 WHERE a IN (`db2`.`t`)"),
        ("REFRESH EVERY 1 DAY DEPENDS ON db.mv TO db.target", "REFRESH EVERY 1 DAY DEPENDS ON `db2`.`mv` TO `db2`.`target`"),
        ("(`a` String DEFAULT dictGet('db.d', 'x', 1))", "(`a` String DEFAULT dictGet('db2.d', 'x', 1))"),
        ("AS SELECT joinGet('db.j', 'x', 1)", "AS SELECT joinGet('db2.j', 'x', 1)"),
        ("SOURCE(CLICKHOUSE(DB 'db' TABLE 't'))", "SOURCE(CLICKHOUSE(DB 'db2' TABLE 't'))"),
        (r"SOURCE(CLICKHOUSE(QUERY 'SELECT a FROM db.t WHERE s = \'db.t\''))",
         r"SOURCE(CLICKHOUSE(QUERY 'SELECT a FROM `db2`.`t` WHERE s = \'db.t\''))"),
    ],
)  # fmt: skip
def test_T5_a_reference_follows_wherever_it_stands(text: str, followed: str) -> None:
    assert follow(text, "db2.x", RENAMED) == followed


@pytest.mark.parametrize(
    "text",
    [
        "(`s` String DEFAULT 'db.t' COMMENT 'db.t', CONSTRAINT k CHECK s != 'db.t') ENGINE = MergeTree ORDER BY s COMMENT 'db.t'",
        "(`db` Tuple(t Int32), `x` Int32 DEFAULT db.t, CONSTRAINT k CHECK db.t > 0) ENGINE = MergeTree ORDER BY x",
        "AS SELECT 'db', 't', 'db.t', concat('db.t', x), db.t FROM other.x AS db",
        "AS SELECT x FROM other.x ARRAY JOIN db.t AS y",
        "AS SELECT x FROM other.x WHERE x IN (db.t, 5)",
        "AS SELECT x FROM merge('other', '^t') WHERE s = 'FROM db.t'",
        "ENGINE = MySQL('h', 'other', 't', 'u', 'p')",
        "TTL d TO VOLUME 'db.t'",
    ],
)
def test_T6_what_only_looks_like_a_name_stays(text: str) -> None:
    assert follow(text, "db2.x", RENAMED) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ENGINE = Buffer('db', 'other', 16)", "db2.x refers to db.other"),
        ("AS SELECT * FROM db.other", "db2.x refers to db.other"),
        ("TO db.other AS SELECT 1", "refers to db.other"),
        ("ENGINE = Merge(REGEXP('^d'), '^t')", "every database like"),
        ("ENGINE = ReplicatedMergeTree('/tables/db/t', '{replica}') ORDER BY a", "the original's replicas"),
    ],
)
def test_T5_what_cannot_be_followed_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why) as caught:
        follow(text, "db2.x", RENAMED)
    assert caught.value.code == "restore_reference"


def test_T5_a_merge_over_tables_with_new_names_is_refused() -> None:
    with pytest.raises(RefusedError, match="under other names"):
        follow("ENGINE = Merge('db', '^t')", "db2.x", {("db", "t"): ("db2", "t"), ("db", "u"): ("db3", "u")})


def test_T5_an_insert_into_a_restored_buffer_does_not_reach_the_original(run: Run, tmp_path: Path) -> None:
    def at_source(*statements: str, select: str = "SELECT 1 AS n") -> int:
        with EmbeddedSource("main", tmp_path / "clickhouse").visit() as session:
            for statement in statements:
                session.execute(statement)
            return int(session.rows(select)[0]["n"])

    at_source(
        "CREATE TABLE db.b AS db.t ENGINE = Buffer('db', 't', 1, 0, 0, 1, 1, 1, 1)",
        "CREATE TABLE db.m AS db.t ENGINE = Merge('db', '^t$')",
        "CREATE VIEW db.v AS SELECT id, 'db.t' AS text FROM merge('db', '^t$')",
        "CREATE TABLE db.named (id UInt64, s String DEFAULT 'db.t') ENGINE = MergeTree ORDER BY id",
        "INSERT INTO db.named (id) VALUES (1)",
    )
    assert run("backup", "create", "monday", "--tables", "db.*").code == 0
    assert run("backup", "restore", "monday", "--as", "db2").code == 0
    at_source("INSERT INTO db2.b VALUES (100000, 'new')", "OPTIMIZE TABLE db2.b")
    assert at_source(select="SELECT count() AS n FROM db.t") == 1000
    for table in ("db2.t", "db2.m", "db2.v"):
        assert at_source(select=f"SELECT count() AS n FROM {table}") == 1001, table
    assert at_source(select="SELECT count() AS n FROM db2.v WHERE text = 'db.t'") == 1001
    assert (
        at_source(
            "INSERT INTO db2.named (id) VALUES (2)", select="SELECT countIf(s = 'db.t') AS n FROM db2.named"
        )
        == 2
    )
