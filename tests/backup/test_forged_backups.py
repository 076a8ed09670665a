"""A manifest that somebody changed, its checksum right: nothing of it is run, made or left behind."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ticked import Ticked

from calve.archive import backups
from calve.archive.location import Key
from calve.archive.manifest import Manifest
from calve.model.states import ProcessState
from support.calve_command import Run
from support.kept_source import KeptSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id",
            "INSERT INTO db.t SELECT number FROM numbers(10)",
            "CREATE FUNCTION forged_plus_one AS (x) -> x + 1",
        )
        yield source


@pytest.fixture
def ticked(source: KeptSource, tmp_path: Path) -> Ticked:
    ticked = Ticked(tmp_path, source)
    assert ticked.settle(ticked.create("b")).state is ProcessState.COMPLETED
    return ticked


def forge(ticked: Ticked, manifest: Manifest) -> None:
    key = Key(name=manifest.name, number=manifest.number)
    Path(ticked.location.manifest(key).removeprefix("file://")).write_text(manifest.to_json())


def refused(ticked: Ticked, source: KeptSource) -> None:
    row = ticked.settle(ticked.restore("b", into="forged"))
    assert row.error is not None and row.error.code == "backup_statement", row.error
    assert source.select("SELECT name FROM system.databases WHERE name IN ('forged', 'evil')") == []


def test_a_table_s_statement_that_says_more_than_its_table_is_not_run(
    ticked: Ticked, source: KeptSource
) -> None:
    manifest = backups.find(ticked.location, "b")
    table = replace(manifest.tables[0], create=f"{manifest.tables[0].create}; CREATE DATABASE evil")
    forge(ticked, replace(manifest, tables=(table,)))
    refused(ticked, source)


def test_a_function_s_statement_that_makes_something_else_is_not_run(
    ticked: Ticked, source: KeptSource
) -> None:
    manifest = backups.find(ticked.location, "b")
    forge(ticked, replace(manifest, functions={"forged_two": "CREATE DATABASE evil"}))
    refused(ticked, source)


def test_T15_a_storage_policy_that_the_target_lacks_is_named_at_the_first_try(
    ticked: Ticked, source: KeptSource
) -> None:
    manifest = backups.find(ticked.location, "b")
    table = manifest.tables[0]
    tiered = table.create.replace("SETTINGS ", "SETTINGS storage_policy = 'tiered', ")
    forge(ticked, replace(manifest, tables=(replace(table, create=tiered),)))
    error = ticked.settle(ticked.restore("b", into="forged")).error
    source.execute("DROP DATABASE IF EXISTS forged SYNC")
    assert error is not None and error.code == "clickhouse_478" and "tiered" in error.message, error
    assert "5 times" not in error.message and "--data-only" in error.hint


def test_with_a_key_only_what_it_signed_is_restored_or_exported_from(run: Run, tmp_path: Path) -> None:
    assert run("backup", "create", "before", "--tables", "db.*").code == 0
    config = tmp_path / "calve.toml"
    (tmp_path / "backup.key").write_text("k3y\n")
    config.write_text(config.read_text() + '[backup]\nsigning_key_file = "backup.key"\n')
    assert run("backup", "create", "after", "--tables", "db.*").code == 0
    assert [one["name"] for one in run("backup", "list", "--json").json] == ["before", "after"]
    run("backup", "restore", "before", "--as", "db2").is_error(4, "not signed", "--unsigned")
    run("export", "db.t", "--to", f"{tmp_path}/out/", "--all", "--from-backup", "before").is_error(
        4, "not signed", "--unsigned"
    )
    run("backup", "verify", "before").is_error(4, "not signed")
    assert run("backup", "restore", "before", "--as", "db2", "--unsigned").code == 0
    assert run("backup", "restore", "after", "--as", "db3").code == 0
    assert run("backup", "show", "before").code == 0
    assert "k3y" not in run("config").out
    (tmp_path / "backup.key").write_text("0ther")
    run("backup", "restore", "after", "--as", "db4").is_error(4, "signed with another key")
