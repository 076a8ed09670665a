"""The proof of a demo: three readings of the same rows, each with a checksum of every column.

The source is read by ClickHouse from its own parts, the Iceberg table by PyIceberg and by
ClickHouse's `icebergLocal`. Nothing of what the export itself computed is used.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table

from calve.app.config import Config
from calve.app.demo.folder import DATABASE, TABLE
from calve.app.wiring import App
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name, parse, string
from calve.destination import checksums
from calve.destination.plan import ColumnPlan, ExportPlan
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.model.process import ProcessId


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one reader saw."""

    reader: str
    rows: int
    checksums: Mapping[str, int]


def differences(first: Reading, other: Reading) -> list[str]:
    """What `other` saw differently, in words."""
    found = []
    if first.rows != other.rows:
        found.append(f"{other.reader} reads {other.rows:,} rows where {first.reader} has {first.rows:,}")
    found += [
        f"{other.reader} reads different values in column {column} than {first.reader}"
        for column, checksum in first.checksums.items()
        if other.checksums[column] != checksum
    ]
    return found


def read_source(session: Session, relation: str, columns: Sequence[ColumnPlan], table: Table) -> Reading:
    """The source's own rows, as the export's casts see them."""
    expressions = {column.name: column.select for column in columns}
    return _clickhouse("the source", session, relation, expressions, table)


def read_by_clickhouse(session: Session, table: Table) -> Reading:
    relation = f"icebergLocal({string(table.location().removeprefix('file://'))})"
    expressions = {field.name: name(field.name) for field in table.schema().fields}
    return _clickhouse("ClickHouse", session, relation, expressions, table)


def _clickhouse(
    reader: str, session: Session, relation: str, expressions: Mapping[str, str], table: Table
) -> Reading:
    kinds = {field.name: field.field_type for field in table.schema().fields}
    sums = ", ".join(
        f"{checksums.sql(kinds[column], name(column))} AS {name(f'sum of {column}')}"
        for column in expressions
    )
    cast = ", ".join(f"{expression} AS {name(column)}" for column, expression in expressions.items())
    # Names of the inner query must not be taken for the source's columns of the same name.
    settings = {"prefer_column_name_to_alias": "1"}
    query = f"SELECT count() AS rows, {sums} FROM (SELECT {cast} FROM {relation})"
    row = session.rows(query, settings, what=relation)[0]
    return Reading(
        reader=reader,
        rows=row["rows"],
        checksums={column: int(row[f"sum of {column}"]) for column in expressions},
    )


def read_by_pyiceberg(table: Table) -> Reading:
    kinds = {field.name: field.field_type for field in table.schema().fields}
    rows, sums = 0, dict.fromkeys(kinds, 0)
    with catalog_call(table.catalog.name, f"reading {'.'.join(table.name())}"):
        for batch in _batches(table):
            rows += batch.num_rows
            for column, kind in kinds.items():
                sums[column] = checksums.add(
                    sums[column], checksums.of_arrow(kind, batch.column(batch.schema.get_field_index(column)))
                )
    return Reading(reader="PyIceberg", rows=rows, checksums=sums)


def _batches(table: Table) -> Any:
    return table.scan().to_arrow_batch_reader()


def readings(config: Config, process_id: ProcessId) -> list[Reading]:
    """The source first, then each reader of the exported table."""
    with closing(App(config)) as app:
        plan = ExportPlan.from_json(app.store.plan(process_id) or "")
        table = tables.load(app.catalog(plan.destination.catalog), plan.destination.identifier)
        with app.source(plan.source).visit() as visit:
            source = read_source(visit, parse(f"{DATABASE}.{TABLE}").sql, plan.columns, table)
            clickhouse = read_by_clickhouse(visit, table)
        return [source, read_by_pyiceberg(table), clickhouse]
