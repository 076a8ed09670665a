"""Describing tables: what is found, refused, suggested; and what identifies a source."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource
from calve.clickhouse.parts.partitions import partitions
from calve.clickhouse.tables import Column, describe
from calve.model.errors import NotFoundError, RefusedError


def test_a_table_is_described_wholly(session: EmbeddedSession) -> None:
    session.execute(
        "CREATE TABLE db.events (at DateTime('UTC'), id UInt64, v String DEFAULT toString(id), "
        "m UInt8 MATERIALIZED 1, a String ALIAS upper(v)) ENGINE = ReplacingMergeTree(id) "
        "PARTITION BY toYYYYMM(at) PRIMARY KEY id ORDER BY (id, at) TTL at + INTERVAL 10 YEAR "
        "SETTINGS index_granularity = 100"
    )
    table = describe(session, "db", "events")
    assert (table.engine, table.clause.family_arguments) == ("ReplacingMergeTree", ("id",))
    assert table.columns == (
        Column(name="at", type="DateTime('UTC')"),
        Column(name="id", type="UInt64"),
        Column(name="v", type="String", default_kind="DEFAULT", default_expression="toString(id)"),
        Column(name="m", type="UInt8", default_kind="MATERIALIZED", default_expression="1"),
        Column(name="a", type="String", default_kind="ALIAS", default_expression="upper(v)"),
    )
    assert (table.partition_key, table.sorting_key, table.primary_key) == ("toYYYYMM(at)", "id, at", "id")
    assert table.settings["index_granularity"] == "100"
    assert table.mutations == () and table.patch_parts == () and table.row_policies == ()
    assert str(table) == "main:db.events"


def test_functions_that_users_defined_are_known(session: EmbeddedSession) -> None:
    session.execute("CREATE TABLE db.functions (id UInt64) ENGINE = MergeTree ORDER BY id")
    before = session.describe("db", "functions").user_functions
    session.execute("CREATE FUNCTION calve_plus_one AS (x) -> x + 1")
    after = session.describe("db", "functions").user_functions
    session.execute("DROP FUNCTION calve_plus_one")
    assert after - before == {"calve_plus_one"}


def test_a_partition_is_described_with_its_age_and_time(session: EmbeddedSession) -> None:
    session.execute(
        "CREATE TABLE db.timed (at DateTime('Asia/Tokyo'), id UInt64) ENGINE = MergeTree "
        "PARTITION BY toYYYYMM(at) ORDER BY id"
    )
    session.execute(
        "INSERT INTO db.timed SELECT toDateTime('2024-01-15 00:00:00', 'UTC') + number, number FROM numbers(60)"
    )
    (one,) = partitions(session, describe(session, "db", "timed"))
    assert (one.id, one.value, one.rows, one.parts, one.disks) == ("202401", "202401", 60, 1, ("default",))
    assert one.min_time == datetime(2024, 1, 15, tzinfo=UTC)
    assert one.max_time == datetime(2024, 1, 15, 0, 0, 59, tzinfo=UTC)
    assert one.modified_at <= datetime.now(UTC)


@pytest.mark.parametrize("wanted", [("db", "event"), ("db", "EVENTS_"), ("dbx", "eventlog")])
def test_a_missing_table_is_not_found_and_near_names_are_suggested(
    session: EmbeddedSession, wanted: tuple[str, str]
) -> None:
    session.execute("CREATE TABLE IF NOT EXISTS db.eventlog (id UInt8) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(NotFoundError, match=rf"table main:{wanted[0]}\.{wanted[1]} does not exist") as caught:
        describe(session, *wanted)
    assert "db.event" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_name_that_tries_to_be_more_than_a_name_is_just_not_found(session: EmbeddedSession) -> None:
    with pytest.raises(NotFoundError):
        describe(session, "db", "x' OR 1 = 1 --")
    with pytest.raises(NotFoundError):
        describe(session, "d`b", "x\\")


@pytest.mark.parametrize(
    ("create", "hint"),
    [
        ("VIEW {t} AS SELECT 1 AS a", "the table it reads"),
        ("TABLE {t} (a UInt8) ENGINE = Memory", "MergeTree family"),
        ("TABLE {t} (a UInt8) ENGINE = Log", "MergeTree family"),
        ("TABLE {t} (a UInt8) ENGINE = Merge('db', 'event.*')", "each of the tables"),
    ],
)
def test_what_has_no_parts_is_refused_by_its_engines_name(
    session: EmbeddedSession, create: str, hint: str
) -> None:
    session.execute("DROP TABLE IF EXISTS db.refused SYNC")
    session.execute("CREATE " + create.replace("{t}", "db.refused"))
    with pytest.raises(RefusedError, match=r"db\.refused has the engine") as caught:
        describe(session, "db", "refused")
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "name", ["with.dot", "with `backquote`", "mit Ümlaut", "quo'te", "back\\slash", "日本"]
)
def test_tables_of_any_name_are_described(session: EmbeddedSession, name: str) -> None:
    from calve.clickhouse.sql.tokens import name as quoted

    session.execute(f"CREATE TABLE db.{quoted(name)} (id UInt8) ENGINE = MergeTree ORDER BY id")
    assert describe(session, "db", name).name == name


def _identity(folder: Path, **options: str) -> str:
    with EmbeddedSource("main", folder, configured_id=options.get("id")).visit() as session:
        return describe(session, "db", "t").identity


def test_a_folder_that_was_moved_or_copied_is_the_same_source_unless_given_an_id(
    source: EmbeddedSource, tmp_path: Path
) -> None:
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (id UInt8) ENGINE = MergeTree ORDER BY id")
        identity = describe(session, "db", "t").identity
        session.execute("CREATE TABLE default.t (id UInt8) ENGINE = MergeTree ORDER BY id")
        assert describe(session, "default", "t").identity not in ("embedded:", identity)
    shutil.copytree(source.folder, tmp_path / "copy", symlinks=True)
    assert _identity(tmp_path / "copy") == identity
    assert _identity(tmp_path / "copy", id="second") not in (identity, _identity(source.folder, id="first"))
    with source.visit() as session:
        session.execute("DROP TABLE db.t SYNC")
        session.execute("CREATE TABLE db.t (id UInt8) ENGINE = MergeTree ORDER BY id")
        assert describe(session, "db", "t").identity != identity
