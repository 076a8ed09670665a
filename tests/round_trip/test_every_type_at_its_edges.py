"""Every type, plain and inside of every other, with all of its edges: three readers, value by value."""

from collections.abc import Sequence
from typing import Any

import pytest
from generated_tables import (
    ID,
    LEAVES,
    Column,
    GeneratedTable,
    Kind,
    Value,
    array,
    mapping,
    nullable,
    struct_of,
    text,
)
from pyiceberg.types import StructType
from three_readers import Predicate, Readers, edge_predicates, plain

from calve.model.states import ProcessState

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROWS = max(len(kind.edges) for kind in LEAVES) + 1


def _held(kind: Kind) -> Kind:
    """In everything that can hold it at once: a list of structs of it and of a map to lists of it."""
    return array(struct_of(nullable(kind), mapping(text(), array(nullable(kind))), named=True))


TABLES = {
    "edges": LEAVES,
    "optional": [nullable(kind) for kind in LEAVES],
    "nested": [_held(kind) for kind in LEAVES],
}


def _table(kinds: Sequence[Kind]) -> GeneratedTable:
    columns = (ID, *(Column(f"c{place}", kind) for place, kind in enumerate(kinds, 1)))
    rows = tuple(
        (Value(str(row), row), *(kind.edges[row % len(kind.edges)] for kind in kinds)) for row in range(ROWS)
    )
    return GeneratedTable(columns, rows, f"intDiv(id, {ROWS // 2})", "none")


@pytest.fixture(scope="module")
def exported(readers: Readers) -> dict[str, GeneratedTable]:
    made = {name: _table(kinds) for name, kinds in TABLES.items()}
    place = readers.place
    with place.app() as app:
        for name, table in made.items():
            place.execute(*table.statements(f"db.{name}"))
        ids = [
            one
            for name in made
            for one in place.submit(app, f"db.{name}", f"lake.ns.{name}", partition_by="none")
        ]
        for process in place.finish(app, ids):
            assert process.state is ProcessState.COMPLETED, process.error
    return made


@pytest.mark.parametrize("name", TABLES)
def test_three_readers_see_what_was_put_in(
    readers: Readers, exported: dict[str, GeneratedTable], name: str
) -> None:
    table = exported[name]
    schema = readers.place.table(f"lake.ns.{name}").schema()
    wanted: dict[int, list[Any]] = {
        row[0].seen: [
            plain(field.field_type, value.seen) for field, value in zip(schema.fields, row, strict=True)
        ]
        for row in table.rows
    }
    for reader, found in readers.rows(name).items():
        assert found.keys() == wanted.keys(), reader
        for place, column in enumerate(table.columns):
            for number, row in wanted.items():
                assert found[number][place] == row[place], (reader, column.kind.text, number)


def test_P2_predicates_at_the_edges_of_the_bounds_find_every_row_that_matches(
    readers: Readers, exported: dict[str, GeneratedTable]
) -> None:
    name = "optional"
    table = exported[name]
    schema = readers.place.table(f"lake.ns.{name}").schema()
    assert not any(isinstance(field.field_type, StructType) for field in schema.fields)
    predicates: list[Predicate] = []
    for place, field in enumerate(schema.fields):
        values = [row[place].seen for row in table.rows]
        predicates += _few(edge_predicates(field.name, field.field_type, values))
    for start in range(0, len(predicates), 60):
        some = predicates[start : start + 60]
        wanted = [_matching(table, predicate) for predicate in some]
        for reader, found in readers.matches(name, some).items():
            for predicate, ids, right in zip(some, found, wanted, strict=True):
                assert ids == right, (reader, predicate)


def _few(predicates: list[Predicate]) -> list[Predicate]:
    """Two equalities, and all that is no equality."""
    equal = [one for one in predicates if one.operator == "="]
    return [one for one in predicates if one not in equal[2:]]


def _matching(table: GeneratedTable, predicate: Predicate) -> list[int]:
    place = next(place for place, column in enumerate(table.columns) if column.name == predicate.column)
    return sorted(row[0].seen for row in table.rows if predicate.holds(row[place].seen))
