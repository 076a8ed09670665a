"""A content id stays through a plain merge and changes with every change of rows."""

import itertools

import pytest

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource
from calve.clickhouse.parts.partitions import partitions
from calve.clickhouse.tables import describe
from calve.destination.content import unchanged

pytestmark = pytest.mark.programs

_names = (f"t{number}" for number in itertools.count())


@pytest.fixture
def table(session: EmbeddedSession) -> str:
    """Two partitions whose blocks are numbered across both: 1, 3, 5 and 2, 4, 6."""
    name = next(_names)
    session.execute(
        f"CREATE TABLE db.{name} (id UInt64, v String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id"
    )
    for start in (0, 100, 200):
        session.execute(f"INSERT INTO db.{name} SELECT number, 'x' FROM numbers({start}, 100)")
    return name


def _contents(session: EmbeddedSession, table: str) -> dict[str, str]:
    return {one.id: one.content for one in partitions(session, describe(session, "db", table))}


def _unchanged(before: dict[str, str], after: dict[str, str]) -> bool:
    return before.keys() == after.keys() and all(unchanged(before[one], after[one]) for one in before)


def _merge(session: EmbeddedSession, table: str) -> None:
    session.execute("SYSTEM START MERGES")
    session.execute(f"OPTIMIZE TABLE db.{table} FINAL")
    session.execute("SYSTEM STOP MERGES")


def _alter(session: EmbeddedSession, sql: str) -> None:
    session.execute("SYSTEM START MERGES")
    session.execute(sql)
    session.execute("SYSTEM STOP MERGES")


def test_a_plain_merge_changes_nothing(session: EmbeddedSession, table: str) -> None:
    before = _contents(session, table)
    _merge(session, table)
    parts = session.rows(f"SELECT name FROM system.parts WHERE active AND table = '{table}'")
    assert len(parts) == 2
    assert _unchanged(before, _contents(session, table))


def test_a_merge_after_a_mutation_and_after_an_insert_behind_it_changes_nothing(
    session: EmbeddedSession, table: str
) -> None:
    _alter(session, f"ALTER TABLE db.{table} UPDATE v = 'y' WHERE id = 2 SETTINGS mutations_sync = 2")
    session.execute(f"INSERT INTO db.{table} SELECT number, 'x' FROM numbers(300, 10)")
    before = _contents(session, table)
    _merge(session, table)
    assert _unchanged(before, _contents(session, table))


def test_a_merge_that_takes_deleted_rows_away_changes_nothing(session: EmbeddedSession, table: str) -> None:
    _alter(session, f"DELETE FROM db.{table} WHERE id < 50")
    before = _contents(session, table)
    _merge(session, table)
    rows = session.rows(f"SELECT sum(rows) AS n FROM system.parts WHERE active AND table = '{table}'")
    assert rows == [{"n": 250}]
    assert _unchanged(before, _contents(session, table))


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {t} VALUES (1000, 'new')",
        "ALTER TABLE {t} UPDATE v = 'y' WHERE id = 2 SETTINGS mutations_sync = 2",
        "ALTER TABLE {t} DELETE WHERE id = 2 SETTINGS mutations_sync = 2",
        "DELETE FROM {t} WHERE id = 2",
        "ALTER TABLE {t} DROP PART '0_1_1_0'",
        "ALTER TABLE {t} DROP PART '0_3_3_0'",
        "ALTER TABLE {t} DROP PART '0_5_5_0'",
        "ALTER TABLE {t} DETACH PART '0_3_3_0'",
        "ALTER TABLE {t} DROP PARTITION 0",
    ],
)
def test_every_change_of_rows_changes_the_content(session: EmbeddedSession, table: str, change: str) -> None:
    before = _contents(session, table)["0"]
    names = session.rows(
        f"SELECT name FROM system.parts WHERE active AND table = '{table}' AND partition_id = '0' ORDER BY name"
    )
    # Which block numbers a partition gets is the engine's choice: take the parts as they are.
    for given, row in zip(("0_1_1_0", "0_3_3_0", "0_5_5_0"), names, strict=True):
        change = change.replace(f"'{given}'", f"'{row['name']}'")
    _alter(session, change.replace("{t}", f"db.{table}"))
    assert not unchanged(before, _contents(session, table).get("0", ""))


def test_a_change_of_one_partition_leaves_the_other_unchanged(session: EmbeddedSession, table: str) -> None:
    before = _contents(session, table)
    session.execute(f"INSERT INTO db.{table} VALUES (1000, 'new')")
    after = _contents(session, table)
    assert after["1"] == before["1"] and not unchanged(before["0"], after["0"])


def test_parts_that_are_attached_again_are_the_same(session: EmbeddedSession, table: str) -> None:
    before = _contents(session, table)["0"]
    session.execute(f"ALTER TABLE db.{table} DETACH PARTITION 0")
    session.execute(f"ALTER TABLE db.{table} ATTACH PARTITION 0")
    assert unchanged(before, _contents(session, table)["0"])


def _load(visit: EmbeddedSession, *texts: str) -> None:
    for text in texts:
        visit.execute(f"INSERT INTO db.t VALUES ('{text}')")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("wrong",), ("mended",)),
        (("a", "b", "wrong"), ("a", "b", "mended")),
        (("a", "merge", "b", "merge"), ("a", "b", "merge")),
        (("a", "b", "merge"), ("a", "c", "merge")),
        (tuple("abcdefghijklmnopqrst"), tuple("abcdefghijklmnopqrsx")),
    ],
    ids=["one-part", "one-of-three", "merged-less-deep", "merged-alike", "more-parts-than-marks"],
)
def test_P17_a_partition_dropped_and_loaded_again_after_a_restart_is_a_change(
    source: EmbeddedSource, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """In a table that is not replicated its block numbers begin again: only the parts can tell."""

    def fill(visit: EmbeddedSession, steps: tuple[str, ...]) -> dict[str, str]:
        for step in steps:
            _merge(visit, "t") if step == "merge" else _load(visit, step)
        return _contents(visit, "t")

    with source.visit() as visit:
        visit.execute("CREATE DATABASE db")
        visit.execute("CREATE TABLE db.t (v String) ENGINE = MergeTree ORDER BY v")
        before = fill(visit, first)
        visit.execute("ALTER TABLE db.t DROP PARTITION tuple()")
    with source.visit() as visit:
        after = fill(visit, second)
    assert after["all"].partition("+")[0] == before["all"].partition("+")[0], "the numbers do repeat"
    assert not unchanged(before["all"], after["all"])


def test_a_restart_alone_changes_nothing(source: EmbeddedSource) -> None:
    with source.visit() as visit:
        visit.execute("CREATE DATABASE db")
        visit.execute("CREATE TABLE db.t (v String) ENGINE = MergeTree ORDER BY v")
        _load(visit, *"abcdefghijklmnopqrst")
        before = _contents(visit, "t")
    with source.visit() as visit:
        assert _contents(visit, "t") == before
        _merge(visit, "t")
        assert _unchanged(before, _contents(visit, "t"))
