"""`restore --existing append` of rows that the table has already is refused, whichever way they got there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ticked import Ticked

from calve.model.errors import ErrorInfo
from calve.model.states import ProcessState
from support.kept_source import KeptSource


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptSource]:
    with KeptSource(tmp_path_factory.mktemp("source") / "clickhouse") as source:
        source.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.t (id UInt64, s String) ENGINE = MergeTree PARTITION BY id % 2 ORDER BY id",
            "INSERT INTO db.t SELECT number, toString(number) FROM numbers(100)",
            "INSERT INTO db.t SELECT number, toString(number) FROM numbers(100, 100)",
        )
        yield source


@pytest.fixture
def ticked(source: KeptSource, tmp_path: Path) -> Iterator[Ticked]:
    made = Ticked(tmp_path / "backups", source)
    made.settle(made.create("b"))
    source.execute("CREATE DATABASE r", "CREATE TABLE r.t AS db.t")
    yield made
    source.execute("DROP DATABASE r SYNC")


def append(ticked: Ticked, into: str = "r", **asked: object) -> ErrorInfo | None:
    """By a store of its own, as another machine would."""
    other = Ticked(ticked.ports.folder, ticked.ports.source_)
    row = other.settle(other.restore("b", into=into, existing="append", **asked))
    assert (row.state is ProcessState.COMPLETED) is (row.error is None)
    return row.error


def rows(source: KeptSource) -> int:
    return int(source.select("SELECT count() AS n FROM r.t")[0]["n"])


def test_a_second_append_is_refused_by_any_store_and_done_with_again(
    ticked: Ticked, source: KeptSource
) -> None:
    assert append(ticked) is None and rows(source) == 200
    error = append(ticked)
    assert error is not None and error.code == "restored_before" and "--again" in error.hint
    assert rows(source) == 200
    assert source.select("SELECT name FROM system.tables WHERE database = 'calve_restore'") == []
    assert append(ticked, again=True) is None and rows(source) == 400


def test_it_is_known_after_merges_too(ticked: Ticked, source: KeptSource) -> None:
    assert append(ticked) is None
    source.execute("SYSTEM START MERGES r.t", "OPTIMIZE TABLE r.t FINAL")
    assert len(source.select("SELECT name FROM system.parts WHERE active AND database = 'r'")) == 2
    error = append(ticked)
    assert error is not None and error.code == "restored_before"


def test_after_a_truncate_the_rows_may_come_again(ticked: Ticked, source: KeptSource) -> None:
    assert append(ticked) is None
    source.execute("TRUNCATE TABLE r.t SYNC")
    assert append(ticked) is None and rows(source) == 200


def test_other_partitions_may_follow(ticked: Ticked, source: KeptSource) -> None:
    assert append(ticked, partitions=("0",)) is None
    assert append(ticked, partitions=("1",)) is None and rows(source) == 200
    error = append(ticked)
    assert error is not None and "partition 0, 1" in error.message


def test_parts_of_the_same_content_are_known_without_any_note(ticked: Ticked, source: KeptSource) -> None:
    source.execute("ALTER TABLE r.t ATTACH PARTITION 0 FROM db.t")
    error = append(ticked)
    assert error is not None and "partition 0)" in error.message


def test_the_table_that_was_backed_up_still_has_its_rows_after_merges(
    ticked: Ticked, source: KeptSource
) -> None:
    source.execute("SYSTEM START MERGES db.t", "OPTIMIZE TABLE db.t FINAL")
    error = append(ticked, into="")
    assert error is not None and error.code == "restored_before"


def test_a_table_that_a_restore_made_is_known_too(ticked: Ticked, source: KeptSource) -> None:
    source.execute("DROP TABLE r.t SYNC")
    done = ticked.settle(ticked.restore("b", into="r"))
    assert done.state is ProcessState.COMPLETED, done.error
    source.execute("OPTIMIZE TABLE r.t FINAL")
    error = append(ticked)
    assert error is not None and error.code == "restored_before"
