"""The source's side of a proof: which stored columns can be compared with the destination's, and the sums of the rows
that it holds now.

No pin: what is read is only compared. The parts are the same before the first query and after the last one, or
nothing is said. A query reads a bounded number of rows, and a visit makes one: an embedded source is free in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import Expression, Name, expression, members, string, unquote
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import Column, TableInfo
from calve.destination.content import increment_of, input_of, unchanged
from calve.destination.plan import ColumnPlan, ExportPlan, PartPlan
from calve.destination.proof import Box, Within
from calve.destination.receipt import Receipt
from calve.model.errors import NotFoundError, RefusedError, TemporaryError
from calve.policy.bounds import TimeKey, time_key
from calve.policy.proof.plan import ProofRequest, SourceRows
from calve.policy.row_hash import HashedColumn, RowHash, RowSums, is_comparable

_QUERY_ROWS = 20_000_000
_NOT_STORED = ("ALIAS", "EPHEMERAL")
# A column's own name before an alias, as the tasks of an export read; nothing but the rows themselves.
COMPARED = {"prefer_column_name_to_alias": "1", "optimize_use_projections": "0"}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the rows of the source are compared, and what of them is not."""

    rows: SourceRows
    columns: tuple[HashedColumn, ...]
    boxes: tuple[Box, ...] = ()  # where its rows are in the destination, if its key tells
    notes: tuple[str, ...] = ()


def compare_with(
    source: LiveSource, request: ProofRequest, plan: ExportPlan, schema: Schema
) -> Comparison | str:
    """With the destination's `schema`; or why the source cannot be compared."""
    if plan.relation.where or plan.relation.final or plan.relation.mode == "backup":
        return "the export does not have all rows of its partitions as the source has them"
    if any(increment_of(input_of(key)[2]) for key in plan.keys):
        return "only new parts of its partitions were exported"  # beside rows of exports before it
    with source.visit() as session:
        if why := session.cannot_recompute():
            return why
        try:
            table = session.describe(request.database, request.table)
        except (NotFoundError, RefusedError) as error:
            return error.message
        if table.row_policies:
            return "the source has row policies, which may hide rows"
        if why := _changed(session, table, plan.source_identity, _contents(plan)):
            return why
        values = [one.value for one in session.partitions(table) if one.id in _contents(plan)]
    found = comparable_columns(table.columns, plan.columns, schema)
    if isinstance(found, str):
        return found
    columns, notes = found
    rows = SourceRows(
        identity=plan.source_identity, contents=_contents(plan), settings={**plan.settings, **COMPARED}
    )
    boxes = boxes_of(table, values, plan.columns, schema)
    return Comparison(rows=rows, columns=columns, boxes=boxes, notes=notes)


def boxes_of(
    table: TableInfo, values: Sequence[str], columns: Sequence[ColumnPlan], schema: Schema
) -> tuple[Box, ...]:
    """() unless the partition key tells of each row of the destination whether it is of these partitions: by a time,
    and by other columns as they are."""
    by_name = {column.name: column.type for column in table.columns}
    key = time_key(table.partition_key, by_name, table.timezone)
    if not isinstance(key, TimeKey) or not key.plain:
        return ()
    known = {field.field_id: field.field_type for field in schema.fields}
    fields = {one.source: (one.field_id, known[one.field_id]) for one in columns if one.field_id in known}
    names = [expression(member) for member in members(table.partition_key)]
    made = []
    for value in values:
        box = _box(key, names, value, fields)
        if box is None:
            return ()
        made.append(box)
    return tuple(made)


def _box(
    key: TimeKey,
    names: Sequence[Expression | None],
    value: str,
    fields: Mapping[str, tuple[int, IcebergType]],
) -> Box | None:
    bounds = key.bounds(value)
    if bounds is None:
        return None
    found: list[Within] = []
    for place, text in enumerate(members(value) if key.members > 1 else [value]):
        name = names[place]
        column = key.column if place == key.member else name.name if isinstance(name, Name) else ""
        match fields.get(column), text.strip():
            case (id, DateType()), _ if place == key.member and not key.zone:
                days = (bounds.lower.date().isoformat(), bounds.upper.date().isoformat())
                found.append(Within(field_id=id, lower=days[0], upper=days[1]))
            case (id, TimestamptzType()), _ if place == key.member and key.zone:
                times = (bounds.lower.isoformat(), bounds.upper.isoformat())
                found.append(Within(field_id=id, lower=times[0], upper=times[1]))
            case (id, StringType()), quoted_text if quoted_text.startswith("'"):
                found.append(Within(field_id=id, equal=unquote(quoted_text)))
            case (id, IntegerType() | LongType()), number if number.lstrip("-").isdigit():
                found.append(Within(field_id=id, equal=number))
            case _:
                return None
    return tuple(found)


def _contents(plan: ExportPlan) -> dict[str, str]:
    return {key.partition: key.content for key in plan.keys}


def _changed(session: Session, table: TableInfo, identity: str, contents: Mapping[str, str]) -> str:
    if table.identity != identity:
        return f"{table} is no longer the table that was exported"
    now = {one.id: one.content for one in session.partitions(table)}
    for partition, content in contents.items():
        if partition not in now:
            return f"the source no longer has partition {partition}"
        if not unchanged(content, now[partition]):
            return f"partition {partition} has changed at the source since the export"
    return ""


def comparable_columns(
    now: Sequence[Column], exported: Sequence[ColumnPlan], schema: Schema
) -> tuple[tuple[HashedColumn, ...], tuple[str, ...]] | str:
    stored = {column.name: column for column in now if column.default_kind not in _NOT_STORED}
    known = {field.field_id: field for field in schema.fields}
    made: list[HashedColumn] = []
    notes: list[str] = []
    for column in exported:
        field = known.get(column.field_id)
        if field is None:
            notes.append(f"column {column.name} is no longer in the destination")
            continue
        members = _members(column, stored)
        if members is None and column.source not in {one.name for one in now}:
            return f"column {column.source} is no longer at the source"
        expression, kind = _stored_values(column, members, stored)
        for member in members or ():
            stored.pop(member)
        if kind and not column.lossy and is_comparable(types.parse(kind), field.field_type):
            made.append(HashedColumn(field_id=column.field_id, expression=expression, type=kind))
        else:
            made.append(
                HashedColumn(
                    field_id=column.field_id, expression=column.select, type=column.source_type, cast=True
                )
            )
            notes.append(f"column {column.name} is compared after its cast to {field.field_type}")
    notes += [f"column {name} is not in the destination" for name in stored]
    return tuple(made), tuple(notes)


def _members(column: ColumnPlan, stored: Mapping[str, Column]) -> list[str] | None:
    """The stored columns that one exported column is made of: itself, or those of a Nested one. None: it is not
    stored."""
    if column.source in stored:
        return [column.source]
    return [name for name in stored if name.startswith(f"{column.source}.")] or None


def _stored_values(
    column: ColumnPlan, members: Sequence[str] | None, stored: Mapping[str, Column]
) -> tuple[str, str]:
    """SQL and its type; no type for what is not stored."""
    if members is None:
        return "", ""
    if list(members) == [column.source]:
        return quoted(column.source), stored[column.source].type
    arrays = [(name, types.parse(stored[name].type)) for name in members]
    elements = tuple(
        types.Element(name.removeprefix(f"{column.source}."), kind.inner)
        for name, kind in arrays
        if isinstance(kind, types.Array)
    )
    zipped = f"arrayZip({', '.join(map(quoted, members))})"
    return zipped, str(types.Array(types.Tuple(elements))) if len(elements) == len(arrays) else ""


def are_inside(receipts: Sequence[Receipt], boxes: Sequence[Box], schema: Schema) -> bool:
    """Whether the least and greatest times of the export's files are those of its partitions. They are not where the
    server's zone was another one when rows were inserted: one instant is then filed under two months."""
    spans = [one for box in boxes for one in box if one.lower]
    kind = schema.find_field(spans[0].field_id).field_type
    assert isinstance(kind, PrimitiveType)
    lower = min(literal(one.lower).to(kind).value for one in spans)
    upper = max(literal(one.upper).to(kind).value for one in spans)
    for file in (file for receipt in receipts for file in receipt.files):
        ends = [bounds.get(spans[0].field_id) for bounds in (file.lower_bounds, file.upper_bounds)]
        if None in ends:
            return False
        first, last = (from_bytes(kind, bytes.fromhex(str(end))) for end in ends)
        if not lower <= first <= last < upper:
            return False
    return True


def source_sums(
    source: LiveSource,
    request: ProofRequest,
    rows: SourceRows,
    columns: Sequence[HashedColumn],
    schema: Schema,
) -> RowSums:
    """RefusedError where the rows are no longer those of the plan; TemporaryError where parts were merged
    meanwhile."""
    table, before = _parts(source, request, rows)
    total = parts_sums(source, table, before, RowHash(columns, schema), rows.settings)
    _, after = _parts(source, request, rows)
    if {part.name for part in before} != {part.name for part in after}:
        raise TemporaryError(
            f"parts of {table} were merged while they were read",
            code="parts_merged",
            hint="it is retried automatically",
        )
    return total


def parts_sums(
    source: LiveSource,
    table: TableInfo,
    parts: Sequence[PartPlan],
    row_hash: RowHash,
    settings: Mapping[str, str],
) -> RowSums:
    """Of the rows of some parts, a bounded number of rows a query."""
    total = RowSums()
    for condition in _conditions(parts):
        with source.visit() as session:
            [found] = session.rows(
                row_hash.query(f"FROM {table.sql} WHERE {condition}"),
                settings,
                what=f"the rows of table {table}",
            )
        total += RowSums(**found)
    return total


def _parts(
    source: LiveSource, request: ProofRequest, rows: SourceRows
) -> tuple[TableInfo, tuple[PartPlan, ...]]:
    with source.visit() as session:
        table = session.describe(request.database, request.table)
        if why := _changed(session, table, rows.identity, rows.contents):
            raise RefusedError(
                f"{why}: it cannot prove the export",
                code="source_changed",
                hint="`calve policy explain` says more",
            )
        return table, session.parts(table, list(rows.contents))


def _conditions(parts: Sequence[PartPlan]) -> Iterator[str]:
    """Small parts together, large ones in pieces."""
    names: list[str] = []
    count = 0
    for part in parts:
        if part.rows > _QUERY_ROWS:
            for start in range(0, part.rows, _QUERY_ROWS):
                yield (
                    f"_part = {string(part.name)} AND _part_offset >= {start}"
                    f" AND _part_offset < {start + _QUERY_ROWS}"
                )
            continue
        if names and count + part.rows > _QUERY_ROWS:
            yield f"_part IN ({', '.join(map(string, names))})"
            names, count = [], 0
        names.append(part.name)
        count += part.rows
    if names:
        yield f"_part IN ({', '.join(map(string, names))})"
