"""`calve doctor` sends commits that must be refused: a catalog that lets one through is named, and keeps nothing of it."""

from pathlib import Path

import pytest
from pyiceberg.table import CommitTableResponse, Table

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.publish.commit import CommitAnswer, send, tag_commit
from calve.iceberg.publish.probe import PROPERTY, false_assertions, let_through
from calve.model.limits import Limits
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Requirements, Told, Updates
from support.lake import IDENTIFIER, make_table, sqlite_properties
from support.outcomes import append_as_somebody_else

ALL = ["the table's uuid", "the snapshot of main", "that a reference is absent"]
SILENT = Fault(told=Told.TIMEOUT, landing=Landing.LANDED, reading=Reading.AT_ONCE, looks=0)


class Careless(FaultySqlCatalog):
    """Applies what it is sent, whatever is asserted."""

    def really_commit(
        self, table: Table, requirements: Requirements, updates: Updates
    ) -> CommitTableResponse:
        return super().really_commit(table, (), updates)


@pytest.fixture
def careless(tmp_path: Path) -> Careless:
    catalog = Careless("lake", Limits(), dict(open_catalog("lake", sqlite_properties(tmp_path)).properties))
    make_table(catalog)
    append_as_somebody_else(catalog, range(3))
    return catalog


def found(catalog: FaultySqlCatalog) -> list[tuple[str, CommitAnswer]]:
    return [(words, reply.answer) for words, reply in let_through(catalog, catalog.load_table(IDENTIFIER))]


def test_a_catalog_that_checks_lets_nothing_through(catalog: FaultySqlCatalog) -> None:
    assert list(false_assertions(catalog.load_table(IDENTIFIER))) == ALL[:1]
    append_as_somebody_else(catalog, range(3))
    assert list(false_assertions(catalog.load_table(IDENTIFIER))) == ALL
    assert found(catalog) == []
    assert PROPERTY not in catalog.load_table(IDENTIFIER).properties


def test_one_that_checks_nothing_is_told_of_each_and_keeps_no_property(careless: Careless) -> None:
    assert found(careless) == [(words, CommitAnswer.LANDED) for words in ALL]
    assert PROPERTY not in careless.load_table(IDENTIFIER).properties


def test_without_an_answer_the_table_tells_or_nobody_can(
    catalog: FaultySqlCatalog, careless: Careless
) -> None:
    careless.arm(SILENT)
    assert found(careless)[0] == (ALL[0], CommitAnswer.LANDED)
    append_as_somebody_else(catalog, range(3))
    catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.NOT, reading=Reading.AT_ONCE, looks=0))
    assert found(catalog) == [(ALL[0], CommitAnswer.UNKNOWN)]


def test_what_must_be_false_is_false_in_a_table_with_tags(catalog: FaultySqlCatalog) -> None:
    append_as_somebody_else(catalog, range(3))
    table = catalog.load_table(IDENTIFIER)
    send(catalog, table, tag_commit(table.metadata, "t", table.metadata.current_snapshot_id), "tagging")
    asked = false_assertions(catalog.load_table(IDENTIFIER))
    assert getattr(asked["that a reference is absent"], "ref") == "t"  # noqa: B009
    assert getattr(asked["the snapshot of main"], "snapshot_id") != table.metadata.current_snapshot_id  # noqa: B009
    assert getattr(asked["the table's uuid"], "uuid") != table.metadata.table_uuid  # noqa: B009
    assert found(catalog) == []
