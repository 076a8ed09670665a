"""The table that a source asks for, and how its columns go into a table that exists. Pure.

A new table's schema, partition spec and sort order are derived from the source's columns and keys. Columns
go into a table by name, exactly or by a promotion that Iceberg allows; what does not fit is refused, with
every reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from calve.destination.plan import ColumnPlan
from calve.destination.port import FoundTable
from calve.export.casts import cast
from calve.export.choices import Choices
from calve.export.columns import (
    ColumnMapping,
    MappedColumn,
    Refusal,
    SourceColumn,
    map_columns,
    raise_refusals,
    refusal_of,
)
from calve.export.iceberg_types import UnmappedError
from calve.export.request import ExportRequest
from calve.export.spec import DerivedSpec, derive_sort_order, derive_spec, parse_partition_by


@dataclass(frozen=True, kw_only=True)
class Match:
    """How the mapping fits a table."""

    columns: tuple[ColumnPlan, ...]
    refusals: tuple[Refusal, ...] = ()
    lacking: tuple[MappedColumn, ...] = ()  # columns the table does not have: `--evolve` adds them
    widened: tuple[NestedField, ...] = ()  # columns of the table as `--evolve` makes them: wider, or optional
    unfilled: tuple[str, ...] = ()  # optional columns of the table that the source does not have


def match_schema(mapping: ColumnMapping, schema: Schema, *, evolve: bool = False) -> Match:
    """Fit the mapping to an existing schema. With `evolve`, columns that the table lacks, or that are too
    narrow for it, are no refusal (the caller adds or widens them), and optional ones it has alone stay null."""
    fields = {field.name: field for field in schema.fields}
    plans: list[ColumnPlan] = []
    refusals = list(mapping.refusals)
    lacking: list[MappedColumn] = []
    widened: list[NestedField] = []
    for column in mapping.columns:
        field = fields.get(column.name)
        if field is None:
            lacking.append(column)
            continue
        wider = _widened(column, field) if evolve else None
        if wider is not None:
            widened.append(wider)
        try:
            plans.append(_planned(column, wider or field))
        except UnmappedError as error:
            refusals.append(refusal_of(column.source, error))
    if not evolve:
        refusals += [_not_in_table(column) for column in lacking]
    unfilled = tuple(name for name in fields if name not in {column.name for column in mapping.columns})
    refusals += _unfilled(mapping, fields, unfilled, evolve=evolve)
    return Match(
        columns=tuple(plans),
        refusals=tuple(refusals),
        lacking=tuple(lacking),
        widened=tuple(widened),
        unfilled=unfilled,
    )


def _widened(column: MappedColumn, field: NestedField) -> NestedField | None:
    """The table's column as Iceberg allows to widen it for these values; None where it fits, or cannot."""
    fits = promotes(column.type, field.field_type)
    wider = field.field_type.is_primitive and promotes(field.field_type, column.type)
    required = field.required and column.required
    if (fits and required == field.required) or not (fits or wider):
        return None
    kind = field.field_type if fits else column.type
    return NestedField(field.field_id, field.name, kind, required=required, doc=field.doc)


def _planned(column: MappedColumn, field: NestedField) -> ColumnPlan:
    if not promotes(column.type, field.field_type):
        hint = "--exclude {column}"
        if field.field_type.is_primitive and promotes(field.field_type, column.type):
            hint = f"--evolve widens it; {hint}"
        if not column.asked and field.field_type.is_primitive:
            hint = f"--cast {{column}}='{str(field.field_type).replace(' ', '')}', or {hint}"
        raise UnmappedError(
            f"{column.source_type} becomes {column.type}, but the table's column {field.name}"
            f" is {field.field_type}",
            hint,
        )
    if field.required and not column.required:
        raise UnmappedError(
            f"it may be NULL, but the table's column {field.name} is required",
            "--evolve makes the table's column optional; --exclude {column} leaves it out",
        )
    # the table's own type: fields of structs in the table's order
    fitted = cast(column.source_type, field.field_type, column.expression, lossy=column.lossy)
    return ColumnPlan(
        name=field.name,
        source=column.source,
        source_type=str(column.source_type),
        select=fitted.sql,
        field_id=field.field_id,
        type=str(field.field_type),
        required=field.required,
        check=" OR ".join(check.sql for check in fitted.checks),
        check_reason=" or ".join(dict.fromkeys(check.reason for check in fitted.checks)),
        lossy=column.asked and column.lossy,
    )


def promotes(derived: IcebergType, existing: IcebergType) -> bool:
    """Whether Iceberg allows values of one type in a column of the other."""
    match derived, existing:
        case ListType(), ListType():
            return (derived.element_required or not existing.element_required) and promotes(
                derived.element_type, existing.element_type
            )
        case MapType(), MapType():
            return (
                derived.key_type == existing.key_type
                and (derived.value_required or not existing.value_required)
                and promotes(derived.value_type, existing.value_type)
            )
        case StructType(), StructType():
            return _struct_promotes(derived, existing)
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return derived.scale == existing.scale and derived.precision <= existing.precision
        case _:
            return derived == existing


def _struct_promotes(derived: StructType, existing: StructType) -> bool:
    own = {field.name: field for field in derived.fields}
    return own.keys() == {field.name for field in existing.fields} and all(
        promotes(own[field.name].field_type, field.field_type)
        and (own[field.name].required or not field.required)
        for field in existing.fields
    )


def _not_in_table(column: MappedColumn) -> Refusal:
    return Refusal(
        column=column.source,
        reason=f"the table has no column {column.name}",
        hint=f"--evolve adds it; --exclude {column.source} leaves it out",
    )


def _unfilled(
    mapping: ColumnMapping, fields: dict[str, NestedField], unfilled: Sequence[str], *, evolve: bool
) -> list[Refusal]:
    refusals = []
    refused = {refusal.column for refusal in mapping.refusals}
    for name in unfilled:
        if fields[name].required:
            refusals.append(
                Refusal(
                    column=name,
                    reason="the table requires this column, and the source has none to fill it",
                    usage=False,
                )
            )
        elif not evolve and name not in mapping.excluded and name not in refused:
            refusals.append(
                Refusal(
                    column=name,
                    reason="the table has this column and the source has not",
                    hint="--evolve leaves it null",
                )
            )
    return refusals


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
