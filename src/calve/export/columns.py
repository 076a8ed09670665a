"""Columns of a ClickHouse table to columns of an Iceberg table. Pure.

`map_columns` derives what a new table gets; `match_schema` fits that to a table that exists,
by name, never by position (P5). Both answer with all refusals at once, nothing half done.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyiceberg.schema import Schema, assign_fresh_schema_ids
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

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string as literal
from calve.destination.plan import ColumnPlan
from calve.export.casts import Cast, cast
from calve.export.choices import Choices, NanosecondsAs
from calve.export.iceberg_types import CASTABLE, UnmappedError, derive, parse_cast
from calve.model.errors import RefusedError, UsageError

_NOT_STORED = frozenset({"ALIAS", "EPHEMERAL"})


class SourceColumn(Protocol):
    """A column as the source describes it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def default_kind(self) -> str: ...  # "", DEFAULT, MATERIALIZED, ALIAS or EPHEMERAL


_SHOWN_NAMES = 20  # of a table's columns, in a hint


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One column that cannot be exported as asked, and what to do about it."""

    column: str
    reason: str
    hint: str = ""
    usage: bool = True  # the command or the configuration can mend it; otherwise the data forbids it

    def __str__(self) -> str:
        return f"{self.column}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class MappedColumn:
    name: str  # in the destination
    source: str
    source_type: types.Type
    expression: str  # the column itself, or what puts flattened Nested columns together again
    type: IcebergType
    required: bool
    asked: bool = False  # by --cast
    lossy: bool = False  # the cast may change values, because that was asked for
    cast: Cast


@dataclass(frozen=True, kw_only=True)
class Mapping:
    """All exported columns in the source's order, or the reasons why not."""

    columns: tuple[MappedColumn, ...]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()  # names in the destination that were left out knowingly

    @property
    def schema(self) -> Schema:
        """What a new table is created with; ids are assigned as Iceberg does."""
        fields = (
            NestedField(place, column.name, column.type, required=column.required)
            for place, column in enumerate(self.columns, start=1)
        )
        return assign_fresh_schema_ids(Schema(*fields))


@dataclass(frozen=True, kw_only=True)
class Match:
    """How the mapping fits a table."""

    columns: tuple[ColumnPlan, ...]
    refusals: tuple[Refusal, ...] = ()
    lacking: tuple[MappedColumn, ...] = ()  # columns the table does not have: `--evolve` adds them
    unfilled: tuple[str, ...] = ()  # optional columns of the table that the source does not have


@dataclass(frozen=True, kw_only=True)
class _Given:
    """A column after flattened Nested columns were put together."""

    name: str
    type: types.Type
    expression: str


def map_columns(columns: Sequence[SourceColumn], choices: Choices) -> Mapping:
    """What each column becomes in a table made for it."""
    kept = [column for column in columns if column.default_kind not in _NOT_STORED]
    given = _gathered(kept, choices)
    mapped: list[MappedColumn] = []
    refusals = _unknown_names(columns, given, choices)
    for one in given:
        try:
            mapped.append(_mapped(one, choices))
        except UnmappedError as error:
            refusals.append(_refusal(one.name, error))
    refusals += _shared_names(mapped)
    if not given and not refusals:
        refusals.append(Refusal(column="*", reason="no column is left to export"))
    return Mapping(
        columns=tuple(mapped),
        refusals=tuple(refusals),
        notes=_notes(columns, mapped),
        excluded=frozenset(_destination_name(item) for item in choices.exclude),
    )


def match_schema(mapping: Mapping, schema: Schema, *, evolve: bool = False) -> Match:
    """Fit the mapping to an existing schema. With `evolve`, columns that the table lacks are no
    refusal (the caller adds them and matches again), and optional ones it has alone stay null."""
    fields = {field.name: field for field in schema.fields}
    plans: list[ColumnPlan] = []
    refusals = list(mapping.refusals)
    lacking: list[MappedColumn] = []
    for column in mapping.columns:
        if column.name not in fields:
            lacking.append(column)
            continue
        try:
            plans.append(_planned(column, fields[column.name]))
        except UnmappedError as error:
            refusals.append(_refusal(column.source, error))
    if not evolve:
        refusals += [_not_in_table(column) for column in lacking]
    unfilled = tuple(name for name in fields if name not in {column.name for column in mapping.columns})
    refusals += _unfilled(mapping, fields, unfilled, evolve=evolve)
    return Match(columns=tuple(plans), refusals=tuple(refusals), lacking=tuple(lacking), unfilled=unfilled)


def raise_refusals(table: str, refusals: Sequence[Refusal]) -> None:
    """One error with every column and reason; a usage error only if the command can mend them all."""
    if not refusals:
        return
    lines = "".join(f"\n  {refusal}" for refusal in refusals)
    hints = "; ".join(dict.fromkeys(refusal.hint for refusal in refusals if refusal.hint))
    kind = UsageError if all(refusal.usage for refusal in refusals) else RefusedError
    raise kind(f"{table} cannot be exported as it is:{lines}", code="columns_refused", hint=hints)


# ---- the source's side


def _gathered(columns: Iterable[SourceColumn], choices: Choices) -> list[_Given]:
    """The columns to export. `n.a Array(X), n.b Array(Y)`, which is how ClickHouse stores a
    Nested column unless told otherwise, become one column `n` again."""
    groups: dict[str, list[SourceColumn]] = {}
    for column in columns:
        prefix, dot, _ = column.name.partition(".")
        nested = dot and isinstance(types.parse(column.type), types.Array)
        if not _excluded(column.name, choices):
            groups.setdefault(prefix + "." if nested else column.name, []).append(column)
    return [_given(name, group) for name, group in groups.items()]


def _excluded(name: str, choices: Choices) -> bool:
    return name in choices.exclude or name.partition(".")[0] in choices.exclude


def _given(name: str, group: Sequence[SourceColumn]) -> _Given:
    if not name.endswith("."):
        only = group[0]
        return _Given(name=only.name, type=types.parse(only.type), expression=quoted(only.name))
    arrays = [types.parse(column.type) for column in group]
    elements = tuple(
        types.Element(column.name.partition(".")[2], array.inner)
        for column, array in zip(group, arrays, strict=True)
        if isinstance(array, types.Array)
    )
    whole = types.Array(types.Tuple(elements))
    zipped = f"arrayZip({', '.join(quoted(column.name) for column in group)})"
    return _Given(
        name=name.removesuffix("."), type=whole, expression=f"CAST({zipped}, {literal(str(whole))})"
    )


def _mapped(given: _Given, choices: Choices) -> MappedColumn:
    asked = choices.casts.get(given.name)
    required = not types.is_nullable(given.type)
    if asked is None:
        target = derive(given.type, choices).type
        lossy = choices.nanoseconds is NanosecondsAs.TRUNCATE
    else:
        try:
            target, lossy = parse_cast(asked)
        except ValueError as error:
            raise UnmappedError(str(error), f"one of {', '.join(CASTABLE)}") from error
    made = cast(given.type, target, given.expression, lossy=lossy)
    return MappedColumn(
        name=_destination_name(given.name),
        source=given.name,
        source_type=given.type,
        expression=given.expression,
        type=target,
        required=required,
        asked=asked is not None,
        lossy=lossy,
        cast=made,
    )


def _destination_name(source: str) -> str:
    """No dots: in Iceberg a dot leads into a struct."""
    return source.replace(".", "_")


def _refusal(column: str, error: UnmappedError) -> Refusal:
    return Refusal(column=column, reason=error.reason, hint=error.hint.replace("{column}", column))


def _unknown_names(
    columns: Sequence[SourceColumn], given: Sequence[_Given], choices: Choices
) -> list[Refusal]:
    known = {column.name for column in columns} | {column.name.partition(".")[0] for column in columns}
    refused = [
        Refusal(column=name, reason="there is no such column to exclude", hint=_columns_are(sorted(known)))
        for name in sorted(choices.exclude - known)
    ]
    exported = {one.name for one in given}
    refused += [
        Refusal(
            column=name,
            reason="there is no such exported column to cast",
            hint=_columns_are([one.name for one in given]),
        )
        for name in sorted(set(choices.casts) - exported)
    ]
    return refused


def _columns_are(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"its columns are {', '.join(names[:_SHOWN_NAMES])}{more}"


def _shared_names(mapped: Sequence[MappedColumn]) -> list[Refusal]:
    counts = Counter(column.name for column in mapped)
    return [
        Refusal(
            column=column.source,
            reason=f"another column too would be named {column.name}",
            hint=f"--exclude {column.source}",
        )
        for column in mapped
        if counts[column.name] > 1
    ]


def _notes(columns: Sequence[SourceColumn], mapped: Sequence[MappedColumn]) -> tuple[str, ...]:
    notes = [
        f"column {column.name} is {column.default_kind} and not stored, so not exported"
        for column in columns
        if column.default_kind in _NOT_STORED
    ]
    notes += [
        f"column {column.source} is named {column.name} in the destination"
        for column in mapped
        if column.name != column.source
    ]
    notes += [
        f"column {column.source} is cast to {column.type} with loss, as asked: values may change"
        for column in mapped
        if column.asked and column.lossy
    ]
    folded = Counter(column.name.lower() for column in mapped)
    notes += [
        f"column {column.name} differs from another only in case; Spark needs spark.sql.caseSensitive"
        for column in mapped
        if folded[column.name.lower()] > 1
    ]
    return tuple(notes)


# ---- the destination's side


def _planned(column: MappedColumn, field: NestedField) -> ColumnPlan:
    if not promotes(column.type, field.field_type):
        hint = "--exclude {column}"
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
            "make the table's column optional, or --exclude {column}",
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
    mapping: Mapping, fields: dict[str, NestedField], unfilled: Sequence[str], *, evolve: bool
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
