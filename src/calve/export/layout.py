"""The table that a source asks for, and how its columns go into a table that exists. Pure.

A new table's schema, partition spec and sort order are derived from the source's columns and keys. Columns
go into a table by name, exactly or by a promotion that Iceberg allows; what does not fit is refused, with
every reason.
"""

import difflib
from collections.abc import Mapping, Sequence
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
from calve.model.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Match:
    """How the mapping fits a table."""

    columns: tuple[ColumnPlan, ...]
    schema: Schema  # of the table, with its columns renamed as asked
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    lacking: tuple[MappedColumn, ...] = ()  # columns the table does not have: `--evolve` adds them
    widened: tuple[NestedField, ...] = ()  # columns of the table as `--evolve` makes them: wider, or optional
    unfilled: tuple[str, ...] = ()  # optional columns of the table that the source does not have


def match_schema(mapping: ColumnMapping, schema: Schema, *, evolve: bool = False) -> Match:
    """Fit the mapping to an existing schema. With `evolve`, columns that the table lacks, or that are too
    narrow for it, are no refusal (the caller adds or widens them), and those it has alone stay null."""
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
    notes: list[str] = []
    for name in unfilled:
        field = fields[name]
        renamed = _rename_hint(field, lacking)
        if evolve and field.field_id not in schema.identifier_field_ids:
            if field.required:
                widened.append(field.model_copy(update={"required": False}))
            notes.append(f"column {name} of the table gets no values: the source has no such column{renamed}")
        elif (refusal := _unfilled(mapping, field, renamed, schema)) is not None:
            refusals.append(refusal)
    return Match(
        columns=tuple(plans),
        schema=schema,
        refusals=tuple(refusals),
        notes=tuple(notes),
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
        hint=f"--evolve adds {column.name}; --exclude {column.source} leaves it out",
    )


def _unfilled(mapping: ColumnMapping, field: NestedField, renamed: str, schema: Schema) -> Refusal | None:
    """A column of the table that the source does not have; nothing where it was left out knowingly."""
    if field.required:
        identifies = field.field_id in schema.identifier_field_ids
        evolve = "" if identifies else f"--evolve makes {field.name} optional and leaves it null"
        return Refusal(
            column=field.name,
            reason="the table requires this column, and the source has none to fill it",
            hint=f"{evolve}{renamed}".lstrip("; "),
            usage=False,
        )
    if field.name in mapping.excluded or field.name in {refusal.column for refusal in mapping.refusals}:
        return None
    return Refusal(
        column=field.name,
        reason="the table has this column and the source has not",
        hint=f"--evolve leaves {field.name} null{renamed}",
    )


def _rename_hint(field: NestedField, lacking: Sequence[MappedColumn]) -> str:
    """The source's column that may be this one under another name: of its type, the name most alike."""
    alike = [
        column.name
        for column in lacking
        if promotes(column.type, field.field_type) or promotes(field.field_type, column.type)
    ]
    if not alike:
        return ""
    [nearest] = difflib.get_close_matches(field.name, alike, n=1, cutoff=0.0)
    return f"; if it was renamed at the source: --rename {field.name}={nearest}"


def pending_renames(schema: Schema, renames: Mapping[str, str], mapping: ColumnMapping) -> dict[str, str]:
    """Those of the renames that the table does not have yet. UsageError for one that cannot be."""
    names = {field.name for field in schema.fields}
    exported = {column.name for column in mapping.columns}
    pending = {}
    for old, new in renames.items():
        if new not in exported:
            raise _wrong_rename(old, new, f"the export has no column {new}")
        if old in names and new in names:
            raise _wrong_rename(old, new, "the table has both columns")
        if old not in names and new not in names:
            raise _wrong_rename(old, new, f"the table has no column {old}")
        if old in names:
            pending[old] = new
    return pending


def _wrong_rename(old: str, new: str, why: str) -> UsageError:
    return UsageError(
        f"cannot rename column {old} to {new}: {why}",
        code="rename",
        hint="give --rename OLD=NEW: the table's column, and the name that the source has for it now",
    )


def with_renames(schema: Schema, renames: Mapping[str, str]) -> Schema:
    """As the table's schema will be: a column keeps its field id, so older rows come under the new name."""
    fields = (
        field.model_copy(update={"name": renames.get(field.name, field.name)}) for field in schema.fields
    )
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


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
        include=choices.include | frozenset(request.include),
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
    was: str = ""  # how --evolve or --rename changes it: "int", "required", "named old"
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
    """A table that exists, with what `--evolve` and `--rename` change in it."""
    before = {field.field_id: field for field in table.schema.fields}
    columns = [
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=column.source_type,
            type=column.type,
            required=column.required,
            check=column.check_reason,
            lossy=column.lossy,
            was=_was(column, before[column.field_id]),
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
    changed = {field.field_id: field for field in match.widened}
    schema = Schema(*(changed.get(field.field_id, field) for field in match.schema.fields))
    return TargetTable(columns=tuple(columns), schema=schema, spec=table.spec, sort_order=table.sort_order)


def _was(column: ColumnPlan, before: NestedField) -> str:
    changes = [
        f"named {before.name}" if before.name != column.name else "",
        str(before.field_type) if str(before.field_type) != column.type else "",
        "required" if before.required and not column.required else "",
    ]
    return ", ".join(change for change in changes if change)
