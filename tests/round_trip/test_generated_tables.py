"""Tables nobody thought of: exported, and read back by value by three independent readers."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from generated_tables import GeneratedTable, tables
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as some
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from pyiceberg.schema import Schema
from three_readers import Predicate, Readers, edge_predicates, plain

from calve.model.states import ProcessState

pytestmark = [pytest.mark.longer, pytest.mark.spark, pytest.mark.timeout(1800)]

# More of them: make test-long
FEW = 8
EXAMPLES = int(os.environ.get("CALVE_ROUND_TRIPS", FEW))
_names = (f"generated_{number}" for number in itertools.count())


@pytest.fixture(autouse=True, scope="module")
def the_same_tables_whatever_else_is_loaded() -> Iterator[None]:
    """Hypothesis also draws on the literals of all local modules that are loaded: with the other tests'
    files beside it, a run without chance had other tables than the same run alone."""
    if EXAMPLES != FEW:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", Constants)
        providers.CONSTANTS_CACHE.cache.clear()
        yield
    providers.CONSTANTS_CACHE.cache.clear()


@settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == FEW,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(table=tables(), chosen=some.integers(0, 1000))
def test_a_generated_table_reads_back_by_value_with_predicates_and_after_deletes(
    readers: Readers, table: GeneratedTable, chosen: int
) -> None:
    name = next(_names)
    for statement in table.statements(f"db.{name}"):
        note(statement)
    note(f"--partition-by {table.partition_by!r}")
    readers.place.execute(*table.statements(f"db.{name}"))
    [process] = readers.place.export(f"db.{name}", to=f"lake.ns.{name}", partition_by=table.partition_by)
    assert process.state is ProcessState.COMPLETED, process.error
    schema = readers.place.table(f"lake.ns.{name}").schema()
    expected = {
        row[0].seen: [
            plain(field.field_type, value.seen) for field, value in zip(schema.fields, row, strict=True)
        ]
        for row in table.rows
    }
    for reader, found in readers.rows(name).items():
        assert found == expected, reader
    predicates = _predicates(table, schema)
    matching = [_matching(table, predicate) for predicate in predicates]
    for reader, ids in readers.matches(name, predicates).items():
        for predicate, found_ids, wanted in zip(predicates, ids, matching, strict=True):
            assert found_ids == wanted, (reader, predicate)
    place = chosen % len(predicates)
    kind = schema.find_field(predicates[place].column).field_type
    readers.spark.execute(f"DELETE FROM lake.ns.{name} WHERE {predicates[place].sql(kind, spark=True)}")
    left = {number: row for number, row in expected.items() if number not in matching[place]}
    for reader, found in readers.rows(name).items():
        assert found == left, (reader, "after deleting", predicates[place])


def _predicates(table: GeneratedTable, schema: Schema) -> list[Predicate]:
    found: list[Predicate] = []
    for place, field in enumerate(schema.fields):
        if field.field_type.is_primitive:
            found += edge_predicates(field.name, field.field_type, [row[place].seen for row in table.rows])
    return found


def _matching(table: GeneratedTable, predicate: Predicate) -> list[int]:
    place = next(place for place, column in enumerate(table.columns) if column.name == predicate.column)
    found: list[Any] = [row[0].seen for row in table.rows if predicate.holds(row[place].seen)]
    return sorted(found)
