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
    IcebergType,
    NestedField,
)

from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string as literal
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
    usage: bool = True  # it can be fixed in the command or the configuration; otherwise the data forbids it

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
class ColumnMapping:
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
class _Given:
    """A column after flattened Nested columns were put together."""

    name: str
    type: types.Type
    expression: str


def map_columns(columns: Sequence[SourceColumn], choices: Choices) -> ColumnMapping:
    """What each column becomes in a table made for it."""
    kept = [column for column in columns if not _left_out(column, choices)]
    given = _gathered(kept, choices)
    mapped: list[MappedColumn] = []
    refusals = _unknown_names(columns, given, choices)
    for one in given:
        try:
            mapped.append(_mapped(one, choices))
        except UnmappedError as error:
            refusals.append(refusal_of(one.name, error))
    refusals += _shared_names(mapped)
    if not given and not refusals:
        refusals.append(Refusal(column="*", reason="no column is left to export"))
    return ColumnMapping(
        columns=tuple(mapped),
        refusals=tuple(refusals),
        notes=_notes(columns, mapped, choices),
        excluded=frozenset(_destination_name(item) for item in choices.exclude),
    )


def raise_refusals(table: str, refusals: Sequence[Refusal]) -> None:
    """One error with every column and reason; a usage error only if all can be fixed in the command."""
    if not refusals:
        return
    lines = "".join(f"\n  {refusal}" for refusal in refusals)
    hints = "; ".join(dict.fromkeys(refusal.hint for refusal in refusals if refusal.hint))
    kind = UsageError if all(refusal.usage for refusal in refusals) else RefusedError
    raise kind(f"{table} cannot be exported as it is:{lines}", code="columns_refused", hint=hints)


# ---- the source's side


def _left_out(column: SourceColumn, choices: Choices) -> bool:
    """What has no stored values: an EPHEMERAL column never has any, an ALIAS is computed where it is named."""
    asked = column.default_kind == "ALIAS" and column.name in choices.include
    return column.default_kind in _NOT_STORED and not asked


def _gathered(columns: Iterable[SourceColumn], choices: Choices) -> list[_Given]:
    """The columns to export. `n.a Array(X), n.b Array(Y)`, which is how ClickHouse stores a
    Nested column by default, become one column `n` again."""
    groups: dict[tuple[str, bool], list[SourceColumn]] = {}
    for column in columns:
        prefix, _, element = column.name.partition(".")
        nested = bool(prefix and element) and isinstance(types.parse(column.type), types.Array)
        if not _excluded(column.name, choices):
            groups.setdefault((prefix if nested else column.name, nested), []).append(column)
    return [
        _put_together(name, group) if nested else _alone(group[0]) for (name, nested), group in groups.items()
    ]


def _excluded(name: str, choices: Choices) -> bool:
    return name in choices.exclude or name.partition(".")[0] in choices.exclude


def _alone(column: SourceColumn) -> _Given:
    return _Given(name=column.name, type=types.parse(column.type), expression=quoted(column.name))


def _put_together(name: str, group: Sequence[SourceColumn]) -> _Given:
    arrays = [types.parse(column.type) for column in group]
    elements = tuple(
        types.Element(column.name.partition(".")[2], array.inner)
        for column, array in zip(group, arrays, strict=True)
        if isinstance(array, types.Array)
    )
    whole = types.Array(types.Tuple(elements))
    zipped = f"arrayZip({', '.join(quoted(column.name) for column in group)})"
    return _Given(name=name, type=whole, expression=f"CAST({zipped}, {literal(str(whole))})")


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


def refusal_of(column: str, error: UnmappedError) -> Refusal:
    return Refusal(column=column, reason=error.reason, hint=error.hint.replace("{column}", column))


def _unknown_names(
    columns: Sequence[SourceColumn], given: Sequence[_Given], choices: Choices
) -> list[Refusal]:
    known = {column.name for column in columns} | {column.name.partition(".")[0] for column in columns}
    refused = [
        Refusal(column=name, reason="there is no such column to exclude", hint=_columns_are(sorted(known)))
        for name in sorted(choices.exclude - known)
    ]
    refused += [
        Refusal(column=name, reason="there is no such column to include", hint=_columns_are(sorted(known)))
        for name in sorted(choices.include - known)
    ]
    refused += [
        Refusal(
            column=column.name,
            reason="it is EPHEMERAL: its values are used at an INSERT and never stored",
            hint=f"omit --include {column.name}",
        )
        for column in columns
        if column.name in choices.include and column.default_kind == "EPHEMERAL"
    ]
    refused += [
        Refusal(column=name, reason="it is both included and excluded", hint=f"omit --exclude {name}")
        for name in sorted(choices.include & choices.exclude)
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


def _notes(
    columns: Sequence[SourceColumn], mapped: Sequence[MappedColumn], choices: Choices
) -> tuple[str, ...]:
    notes = [
        f"column {column.name} is {column.default_kind} and not stored, so not exported"
        + (
            f"; --include {column.name} exports its values if the expression allows it"
            if column.default_kind == "ALIAS"
            else ""
        )
        for column in columns
        if _left_out(column, choices)
    ]
    notes += [
        f"column {column.name} is ALIAS: its values are computed as it is defined now"
        for column in columns
        if column.default_kind == "ALIAS" and not _left_out(column, choices)
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
