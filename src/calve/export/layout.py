"""The table that a source asks for: schema, partition spec and sort order, derived from its columns and
keys. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from calve.export.choices import Choices
from calve.export.mapping import Mapping, SourceColumn, map_columns, raise_refusals
from calve.export.partitioning import DerivedSpec, derive_sort_order, derive_spec, parse_partition_by
from calve.export.request import ExportRequest


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

    mapping: Mapping
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
