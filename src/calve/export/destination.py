"""The Iceberg table an export goes to: checked before anything is queued, made or evolved when planned.

Both take the same steps, so that what a submission accepts is what planning does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder

from calve.export.choices import Choices
from calve.export.mapping import (
    MappedColumn,
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
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.model.errors import NotFoundError, RefusedError
from calve.model.plan import DestinationPlan
from calve.parquet import places
from calve.parquet.folder import folder_of


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


def find_table(catalog: Catalog, request: ExportRequest) -> Table | None:
    """The destination as it is; None where it is missing and may be made."""
    try:
        return tables.load(catalog, request.identifier)
    except NotFoundError as missing:
        if request.create:
            return None
        raise NotFoundError(
            missing.message, code=missing.code, hint="leave --no-create away to have it made"
        ) from None


def check(table: Table, layout: Layout, request: ExportRequest) -> Match:
    """How the layout fits a table that exists; refuses, with every reason, what does not."""
    refusals = Gathered(request.source_table)
    with refusals.among():
        _refuse_other_partitioning(table, request)
    match = match_schema(layout.mapping, table.schema(), evolve=request.evolve)
    with refusals.among():
        raise_refusals(request.source_table, match.refusals)
    refusals.raise_all()
    return match


def _refuse_other_partitioning(table: Table, request: ExportRequest) -> None:
    if request.partition_by and parse_partition_by(request.partition_by, table.schema()) != table.spec():
        raise RefusedError(
            f"table {request.destination} exists and is not partitioned by {request.partition_by!r}",
            code="other_partitioning",
            hint="leave --partition-by away: the files follow the table's own spec",
        )


def ready(catalog: Catalog, layout: Layout, request: ExportRequest) -> tuple[Table, Match]:
    """The destination, made or evolved where that was asked for, and the columns that go into it."""
    table = find_table(catalog, request)
    if table is None:
        table = tables.create(
            catalog, request.identifier, layout.schema, spec=layout.spec, sort_order=layout.sort_order
        )
    match = check(table, layout, request)
    if match.lacking:
        _add_columns(catalog, table, match.lacking)
        table = tables.load(catalog, request.identifier)
        match = check(table, layout, request)
    return table, match


def describe(catalog: Catalog, table: Table, match: Match, shape: Shape) -> DestinationPlan:
    """The destination as the plan keeps it, with the SQL of its partition values."""
    schema = table.schema()
    names = {column.source: column.name for column in match.columns}
    described = tables.describe(catalog, table)
    if (folder := folder_of(catalog)) is not None:
        described = replace(described, form="parquet", receipts_location=places.receipts(folder.location))
    return replace(
        described,
        spec=plan_spec(table.spec(), schema, match.columns),
        sorted=tables.tells_sort_orders(catalog)
        and is_sorted_by(shape.sorting_key, shape.types, names, schema, table.sort_order()),
    )


def _add_columns(catalog: Catalog, table: Table, lacking: Sequence[MappedColumn]) -> None:
    doing = f"adding columns to table {'.'.join(table.name())}"
    # If we die here, the columns are there or not: the next try matches again and adds the rest.
    with catalog_call(catalog.name, doing), table.update_schema() as update:
        for column in lacking:
            update.add_column(column.name, column.type)
