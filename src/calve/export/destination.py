"""The Iceberg table an export goes to: checked before anything is queued, made or evolved when planned.

Both take the same steps, so that what a submission accepts is what planning does.
"""

from dataclasses import dataclass, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from calve.destination.port import Destination, FoundTable
from calve.export.choices import Choices
from calve.export.mapping import (
    Mapping,
    Match,
    SourceColumn,
    map_columns,
    match_schema,
    raise_refusals,
)
from calve.export.partitioning import (
    DerivedSpec,
    derive_sort_order,
    derive_spec,
    is_sorted_by,
    parse_partition_by,
    plan_spec,
)
from calve.export.refusals import Gathered
from calve.export.request import ExportRequest
from calve.model.errors import NotFoundError, RefusedError
from calve.model.plan import DestinationPlan


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What of the source's table decides how its destination looks."""

    columns: tuple[SourceColumn, ...]
    partition_key: str
    sorting_key: str

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The table that would be made for a source."""

    mapping: Mapping
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    notes: tuple[str, ...]


def lay_out(shape: Shape, request: ExportRequest, choices: Choices) -> Layout:
    """Derive schema, spec and sort order; refuses, with every reason, what has no mapping."""
    chosen = replace(
        choices,
        casts={**choices.casts, **request.casts},
        exclude=choices.exclude | frozenset(request.exclude),
    )
    mapping = map_columns(shape.columns, chosen)
    raise_refusals(request.source_table, mapping.refusals)
    names = {column.source: column.name for column in mapping.columns}
    schema = mapping.schema
    if request.partition_by:
        derived = DerivedSpec(spec=parse_partition_by(request.partition_by, schema))
    else:
        derived = derive_spec(shape.partition_key, names, schema)
    return Layout(
        mapping=mapping,
        schema=schema,
        spec=derived.spec,
        sort_order=derive_sort_order(shape.sorting_key, shape.types, names, schema),
        notes=mapping.notes + derived.notes,
    )


def find_table(destination: Destination, request: ExportRequest) -> FoundTable | None:
    """The destination as it is; None where it is missing and may be created."""
    found = destination.find()
    if found is None and not request.create:
        raise NotFoundError(
            f"{request.destination} does not exist",
            code="no_such_table",
            hint="omit --no-create to create it",
        )
    return found


def check(table: FoundTable, layout: Layout, request: ExportRequest) -> Match:
    """How the layout fits a table that exists; refuses, with every reason, what does not."""
    refusals = Gathered(request.source_table)
    with refusals.among():
        _refuse_other_partitioning(table, request)
    match = match_schema(layout.mapping, table.schema, evolve=request.evolve)
    with refusals.among():
        raise_refusals(request.source_table, match.refusals)
    refusals.raise_all()
    return match


def _refuse_other_partitioning(table: FoundTable, request: ExportRequest) -> None:
    if request.partition_by and parse_partition_by(request.partition_by, table.schema) != table.spec:
        raise RefusedError(
            f"table {request.destination} exists and is not partitioned by {request.partition_by!r}",
            code="other_partitioning",
            hint="omit --partition-by: the files follow the table's own spec",
        )


def ready(destination: Destination, layout: Layout, request: ExportRequest) -> tuple[FoundTable, Match]:
    """The destination, created or evolved where that was asked for, and the columns that go into it."""
    table = find_table(destination, request)
    if table is None:
        table = destination.create(layout.schema, layout.spec, layout.sort_order)
    match = check(table, layout, request)
    if match.lacking:
        table = destination.add_columns(table, [(column.name, column.type) for column in match.lacking])
        match = check(table, layout, request)
    return table, match


def describe(destination: Destination, table: FoundTable, match: Match, shape: Shape) -> DestinationPlan:
    """The destination as the plan keeps it, with the SQL of its partition values."""
    names = {column.source: column.name for column in match.columns}
    return replace(
        destination.describe(table),
        spec=plan_spec(table.spec, table.schema, match.columns),
        sorted=destination.tells_sort_order
        and is_sorted_by(shape.sorting_key, shape.types, names, table.schema, table.sort_order),
    )
