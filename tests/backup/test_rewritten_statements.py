"""The engine's own tree refuses a rewritten statement that changes more than names of tables (T5, T6)."""

import pytest

from calve.model.errors import RefusedError
from calve.restore.rewrite import Rewritten, refuse_other_changes
from calve.restore.schema import retargeted

RENAMED = {("db", name): ("db2", name) for name in ("x", "t", "u", "d", "j", "v", "target")}


def judge(before: str, after: str = "") -> None:
    after = after or retargeted(
        before, ("db2", "x"), uuid="6f0a1c0e-1c0e-4a52-9a0e-8f0b6a1f7c11", renamed=RENAMED
    )
    refuse_other_changes([Rewritten(owner="db2.x", before=before, after=after)], RENAMED)


@pytest.mark.parametrize(
    "create",
    [
        "CREATE TABLE db.x (`id` UInt64) ENGINE = Buffer('db', 't', 1, 1, 1, 1, 1, 1, 1)",
        "CREATE TABLE db.x (`id` UInt64) ENGINE = Buffer(db, t, 1, 1, 1, 1, 1, 1, 1)",
        "CREATE TABLE db.x (`id` UInt64) ENGINE = Merge('db', '^t')",
        "CREATE TABLE db.x (`id` UInt64) ENGINE = Distributed('c', 'db', 't', rand())",
        "CREATE TABLE db.x (`a` String DEFAULT dictGet('db.d', 'x', 1)) ENGINE = MergeTree ORDER BY a COMMENT 'db.t'",
        "CREATE MATERIALIZED VIEW db.x TO db.target (`id` UInt64) AS SELECT db.t.id, 'db.t' AS lit FROM db.t AS a "
        "LEFT JOIN db.u AS b ON a.id = b.id WHERE id IN (db.t) AND joinGet('db.j', 'x', 1) = 'db.t'",
        "CREATE VIEW db.x AS SELECT * FROM merge('db', '^t') UNION ALL SELECT * FROM remote('h', db.t)",
        "CREATE MATERIALIZED VIEW db.x REFRESH EVERY 1 DAY DEPENDS ON db.v TO db.t (`id` UInt64) AS SELECT 1 AS id",
        "CREATE DICTIONARY db.x (`id` UInt64, `n` String DEFAULT 'db.t') PRIMARY KEY id SOURCE(CLICKHOUSE(DB 'db' "
        "TABLE 't')) LAYOUT(FLAT()) LIFETIME(MIN 0 MAX 0)",
    ],
)
def test_T5_what_names_tables_alone_passes(create: str) -> None:
    judge(create)


def test_T6_a_column_that_words_take_for_a_table_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"Identifier db\.t would become") as refused:
        judge("CREATE VIEW db.x AS SELECT extract(year FROM db.t) AS y FROM db.u AS db")
    assert refused.value.code == "restore_reference" and "--as" in refused.value.hint


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CREATE VIEW db.x AS SELECT 'db.t' FROM db.t", "CREATE VIEW db2.x AS SELECT 'db2.t' FROM db2.t"),
        (
            "CREATE TABLE db.x (`a` String DEFAULT 'db.t') ENGINE = MergeTree ORDER BY a",
            "CREATE TABLE db2.x (`a` String DEFAULT 'db2.t') ENGINE = MergeTree ORDER BY a",
        ),
        (
            "CREATE TABLE db.x (`a` String, CONSTRAINT k CHECK a != 'db') ENGINE = MergeTree ORDER BY a",
            "CREATE TABLE db2.x (`a` String, CONSTRAINT k CHECK a != 'db2') ENGINE = MergeTree ORDER BY a",
        ),
        (
            "CREATE TABLE db.x (`a` String) ENGINE = MergeTree ORDER BY a COMMENT 'db.t'",
            "CREATE TABLE db2.x (`a` String) ENGINE = MergeTree ORDER BY a COMMENT 'db2.t'",
        ),
        ("CREATE VIEW db.x AS SELECT 1 FROM db.t", "CREATE VIEW db2.x AS SELECT 1 FROM db2.u"),
        ("CREATE VIEW db.x AS SELECT 1 FROM db.t", "CREATE VIEW db2.x AS SELECT 1 FROM db2.t WHERE 1"),
        ("CREATE VIEW db.x AS SELECT concat('db', a) FROM db.t", "CREATE VIEW db2.x AS SELECT concat('db2', a) FROM db2.t"),
    ],
)  # fmt: skip
def test_T6_any_other_change_is_refused(before: str, after: str) -> None:
    with pytest.raises(RefusedError, match="cannot be rewritten for another name"):
        judge(before, after)


def test_T5_a_table_that_was_not_followed_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"db\.t would still be the original"):
        judge("CREATE VIEW db.x AS SELECT 1 FROM db.t", "CREATE VIEW db2.x AS SELECT 1 FROM db.t")


def test_what_the_engine_does_not_parse_is_refused() -> None:
    with pytest.raises(RefusedError, match="does not parse"):
        judge("CREATE VIEW db.x AS SELECT 1 FROM db.t FROM THE FUTURE", "CREATE VIEW db2.x AS SELECT 1")
