"""The table that a source asks for: schema, partition spec and sort order, derived from its columns and
keys; and the table that its rows go into, as a person is shown it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from calve.destination.port import FoundTable
from calve.export.choices import Choices
from calve.export.columns import ColumnMapping, SourceColumn, map_columns, raise_refusals
from calve.export.match import Match
from calve.export.request import ExportRequest
from calve.export.spec import DerivedSpec, derive_sort_order, derive_spec, parse_partition_by


class Shape(Protocol):
    """What of a table decides how its destination looks."""

    @property
    def columns(self) -> Sequence[SourceColumn]: ...
    @property
    def partition_key(self) -> str: ...
    @property
    def sorting_key(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The table that would be created for a source."""

    mapping: ColumnMapping
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    notes: tuple[str, ...]


def lay_out(shape: Shape, request: ExportRequest, choices: Choices) -> Layout:
    """Refuses, with every reason, what has no mapping."""
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
        sort_order=derive_sort_order(shape.sorting_key, source_types(shape), names, schema),
        notes=mapping.notes + derived.notes,
    )


def source_types(shape: Shape) -> dict[str, str]:
    return {column.name: column.type for column in shape.columns}


@dataclass(frozen=True, kw_only=True)
class TargetColumn:
    """A column of the destination, as it is or as it will be created."""

    name: str
    source: str
    source_type: str
    type: str
    required: bool
    added: bool = False  # to a table that exists, by --evolve
    check: str = ""  # what a value must not be for it to be written
    lossy: bool = False  # values may change, as asked


@dataclass(frozen=True, kw_only=True)
class TargetTable:
    """The table that the rows go into, as it is or as it will be created."""

    columns: tuple[TargetColumn, ...]
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder


def created(layout: Layout) -> TargetTable:
    """A table that does not exist yet."""
    columns = tuple(
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=str(column.source_type),
            type=str(column.type),
            required=column.required,
            check=" or ".join(dict.fromkeys(check.reason for check in column.cast.checks)),
            lossy=column.asked and column.lossy,
        )
        for column in layout.mapping.columns
    )
    return TargetTable(columns=columns, schema=layout.schema, spec=layout.spec, sort_order=layout.sort_order)


def fitted(table: FoundTable, match: Match) -> TargetTable:
    """A table that exists, with what `--evolve` adds to it."""
    columns = [
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=column.source_type,
            type=column.type,
            required=column.required,
            check=column.check_reason,
            lossy=column.lossy,
        )
        for column in match.columns
    ]
    columns += [
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=str(column.source_type),
            type=str(column.type),
            required=False,
            added=True,
        )
        for column in match.lacking
    ]
    return TargetTable(
        columns=tuple(columns), schema=table.schema, spec=table.spec, sort_order=table.sort_order
    )
