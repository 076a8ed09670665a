"""A policy says which tables go where; two tables never share a destination."""

from dataclasses import replace
from datetime import timedelta

import pytest

from calve.clickhouse.sql.tokens import parse
from calve.model.errors import UsageError
from calve.policy.calendar import Window
from calve.policy.policy import LateRows, Policy

POLICY = Policy(
    name="all", source="main", tables="db.*", to="lake.{database}.{table}",
    export_after=timedelta(days=3), quiet=timedelta(hours=6),
)  # fmt: skip


def test_a_pattern_names_tables_and_each_has_its_destination() -> None:
    POLICY.check()
    assert POLICY.names("db", "events")
    assert not POLICY.names("other", "events")
    assert POLICY.destination("db", "events") == "lake.db.events"


@pytest.mark.parametrize(
    ("tables", "to"),
    [
        ("db.*", "lake.ns.events"),
        ("db.*", "lake.{database}.x"),
        ("*.events", "lake.ns.{table}"),
        ("d?.e", "lake.n.e"),
    ],
)
def test_several_tables_in_one_destination_are_refused(tables: str, to: str) -> None:
    with pytest.raises(UsageError, match="several tables"):
        replace(POLICY, tables=tables, to=to).check()


@pytest.mark.parametrize(
    ("tables", "to", "view", "said"),
    [
        ("db.*", "lake.{database}.{table}", "db.all", "several tables"),
        ("db.events", "lake.ns.events", "db.events", "not a valid view name"),
        ("db.*", "lake.ns.{table}", "{database}.{table}", "not a valid view name"),
        ("db.events", "lake.ns.events", "events_all", "not a valid view name"),
        ("db.events", "s3://bucket/events/", "db.events_all", "not a folder"),
    ],
)
def test_a_view_that_would_be_of_several_tables_or_of_a_folder_is_refused(
    tables: str, to: str, view: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        replace(POLICY, tables=tables, to=to, view=view).check()


def test_each_table_has_a_view_of_its_own_and_a_policy_with_one_is_another_policy() -> None:
    shown = replace(POLICY, view="{database}.{table}_all")
    shown.check()
    assert (shown.view_of("db", "events"), POLICY.view_of("db", "events")) == ("db.events_all", "")
    assert shown.hash != POLICY.hash


@pytest.mark.parametrize("table", ["a/b", "../x", "a.b"])
def test_who_names_a_table_decides_no_place_outside_of_its_destination(table: str) -> None:
    with pytest.raises(UsageError, match="cannot be part of"):
        POLICY.destination("db", table)
    assert replace(POLICY, tables="db.*", to="lake.ns.x").destination("db", table) == "lake.ns.x"


def test_a_view_of_any_table_has_a_name_that_reads() -> None:
    shown = replace(POLICY, view="{database}.{table}_all")
    found = shown.view_of("db", "weiß \"ü's`")
    assert (parse(found).database, parse(found).table) == ("db", "weiß \"ü's`_all")
    with pytest.raises(UsageError, match="not a valid view name"):
        replace(POLICY, tables="db.events", view="system.events_all").check()


def test_nothing_is_appended_to_an_export_in_a_folder() -> None:
    appends = replace(POLICY, on_late_rows=LateRows.APPEND)
    appends.check()
    with pytest.raises(UsageError, match="folder"):
        replace(appends, to="s3://bucket/{database}/{table}/").check()


@pytest.mark.parametrize("tables", ["events", ".events", "db.", ""])
def test_a_table_without_its_database_is_refused(tables: str) -> None:
    with pytest.raises(UsageError, match="invalid source"):
        replace(POLICY, tables=tables).check()


def test_the_hash_covers_what_is_decided_about_rows_and_no_limit() -> None:
    for same in (
        replace(POLICY, window=Window.parse("01:00-02:00"), zone="Europe/Berlin"),
        replace(POLICY, partitions_per_run=1, bytes_per_day=5, look_every=timedelta(hours=1)),
    ):
        assert same.hash == POLICY.hash
    others = (
        replace(POLICY, tables="db.e*"), replace(POLICY, to="lake.x.{table}"), replace(POLICY, source="other"),
        replace(POLICY, export_after=timedelta(days=4)), replace(POLICY, quiet=timedelta(hours=7)),
        replace(POLICY, on_late_rows=LateRows.REPLACE), replace(POLICY, name="b"),
    )  # fmt: skip
    assert len({one.hash for one in (POLICY, *others)}) == 1 + len(others)
