"""Reading a source again, long after an export: rows and checksums of what was exported from it.

No pin: a pin is released when its process ends, and what is read is only compared. A partition
whose content changed since cannot be compared, and that is said, not guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema

from calve.clickhouse.parts import partitions
from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import TableInfo
from calve.destination import checksums
from calve.destination.content import increment_of, input_of, unchanged
from calve.destination.plan import ExportPlan, KeyPlan
from calve.export.request import ExportRequest
from calve.model.errors import RefusedError


@dataclass(frozen=True, kw_only=True)
class Reread:
    """What the source holds now of what was exported."""

    rows: int
    checksums: dict[str, str]  # by column


def read_again(source: LiveSource, request: ExportRequest, plan: ExportPlan) -> Reread:
    """RefusedError where what was exported is no longer there to be read."""
    named_parts = request.parts
    if any(increment_of(input_of(key)[2]) for key in plan.keys):
        named_parts = tuple(part.name for part in plan.parts)  # a partition has others beside the new ones
    with source.visit() as session:
        table = session.describe(request.database, request.table)
        _refuse_unable(session, table)
        _refuse_changed(session, table, plan, named_parts)
        found = session.rows(
            _query(table, plan, named_parts), _settings(plan), what=f"reading table {table} again"
        )
        # After reading too: what changed meanwhile may or may not have been read.
        _refuse_changed(session, table, plan, named_parts)
    [row] = found
    return Reread(
        rows=row["rows"],
        checksums={
            column.name: checksums.text(row[f"s{place}"]) for place, column in enumerate(plan.columns)
        },
    )


def _query(table: TableInfo, plan: ExportPlan, named_parts: Sequence[str]) -> str:
    schema = Schema.model_validate_json(plan.destination.schema)
    prefix = "calve"
    while any(prefix in text for column in plan.columns for text in (column.select, column.name)):
        prefix += "_"
    outer = ["count() AS rows"] + [
        f"{checksums.sql(schema.find_field(column.field_id).field_type, f'{prefix}_c{place}')} AS s{place}"
        for place, column in enumerate(plan.columns)
    ]
    inner = ", ".join(f"{column.select} AS {prefix}_c{place}" for place, column in enumerate(plan.columns))
    final = " FINAL" if plan.relation.final else ""
    return (
        f"SELECT {', '.join(outer)} FROM"
        f" (SELECT {inner} FROM {table.sql}{final} WHERE {_condition(plan, named_parts)})"
    )


def _condition(plan: ExportPlan, named_parts: Sequence[str]) -> str:
    column, values = (
        ("_part", list(named_parts))
        if named_parts
        else ("_partition_id", [key.partition for key in plan.keys])
    )
    condition = f"{column} IN ({', '.join(map(string, values))})"
    return f"{condition} AND ({plan.relation.where})" if plan.relation.where else condition


def _settings(plan: ExportPlan) -> dict[str, str]:
    """As the tasks read: in their time zone, a column's own name before an alias."""
    return {**plan.settings, "prefer_column_name_to_alias": "1", "optimize_use_projections": "0"}


def _refuse_unable(session: Session, table: TableInfo) -> None:
    if why := session.cannot_recompute():
        raise RefusedError(
            f"the rows of {table} cannot be read again for comparison at their source: {why}",
            code="source_cannot_recompute",
            hint="without --deep, the files are still proven against what the tasks read",
        )


def _refuse_changed(session: Session, table: TableInfo, plan: ExportPlan, named_parts: Sequence[str]) -> None:
    if table.identity != plan.source_identity:
        raise _changed(f"{plan.table} is not the table that was exported")
    if named_parts:
        _refuse_gone(session, table, named_parts)
        for key in plan.keys:
            _refuse_repeated_names(session, table, key, named_parts)
        return
    now = {one.id: one for one in session.partitions(table)}
    for key in plan.keys:
        _refuse_other_content(table, key, now.get(key.partition))


def _refuse_other_content(table: TableInfo, key: KeyPlan, now: partitions.PartitionInfo | None) -> None:
    if now is None:
        raise _changed(f"partition {key.partition} of {table} has been dropped since it was exported")
    if not unchanged(key.content, now.content):
        raise _changed(
            f"partition {key.partition} of {table} has changed since it was exported:"
            f" {key.rows} rows then, {now.rows} now"
        )


def _refuse_gone(session: Session, table: TableInfo, named_parts: Sequence[str]) -> None:
    """A merge or a mutation gives a part another name."""
    found = session.rows(
        f"SELECT name FROM system.parts WHERE active AND database = {string(table.database)}"
        f" AND table = {string(table.name)} AND name IN ({', '.join(map(string, named_parts))})",
        what=f"table {table}",
    )
    if gone := sorted(set(named_parts) - {row["name"] for row in found}):
        raise _changed(f"part {gone[0]} of {table} was merged, changed or dropped since it was exported")


def _refuse_repeated_names(session: Session, table: TableInfo, key: KeyPlan, names: Sequence[str]) -> None:
    """A part that was loaded after a drop and a restart may have the old name, and other files (P17)."""
    now = session.named_content(table, key.partition, names)
    comparable = now and now.partition("-")[0] == key.content.partition("-")[0]
    if comparable and not unchanged(key.content, now):
        raise _changed(
            f"the named parts of {table} are others of the same names than those that were exported"
        )


def _changed(what: str) -> RefusedError:
    return RefusedError(
        f"{what}: the source can no longer prove the export",
        code="source_changed",
        hint="without --deep, the files are still proven against what the tasks read;"
        " `calve export --force` replaces what changed",
    )
