"""Whether the view over a table and its lake shows the rows that left, by the way that it reads them itself at each server."""

from pyiceberg.schema import Schema

from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.tokens import Sort, TableName, tokens
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import residency, view
from calve.clickhouse.tier.quarantine import DATABASE, QuarantineAttempt, closed_table
from calve.clickhouse.tier.residency import Resident
from calve.model.record import fields_of
from calve.policy.bounds import TimeKey, time_key
from calve.policy.proof.source import parts_sums
from calve.policy.release.plan import ReleasePlan
from calve.policy.row_hash import HashedColumn, RowHash


def differs(source: LiveSource, plan: ReleasePlan, attempt: QuarantineAttempt) -> str:
    """Which servers find other rows; "" for none. Columns that the view leaves out are not compared."""
    assert plan.proof.rows is not None
    for visit in source.visits():
        with visit as session:
            text, columns = _text(session, plan)
            row_hash = RowHash(columns, Schema.model_validate_json(plan.proof.schema))
            rows = f"FROM ({text.cold_rows(Resident(id=attempt.partition, cold=True))})"
            [found] = session.rows(row_hash.query(rows), plan.proof.rows.settings, what=f"view {plan.view}")
            held = session.describe(DATABASE, closed_table(attempt).table)
            parts = session.parts(held, [attempt.partition])
        there = parts_sums(source, held, parts, row_hash, plan.proof.rows.settings)
        if vars(there) != {name: int(value) for name, value in found.items()}:
            return f"{found['rows']} rows, where {there.rows} are in quarantine, or other values"
    return ""


def _text(session: Session, plan: ReleasePlan) -> tuple[view.ViewText, list[HashedColumn]]:
    table = session.describe(plan.request.database, plan.request.table)
    about = fields_of(residency.comment_of(session, table.uuid))
    database, _, name = plan.view.partition(".")
    text = view.compose(
        session,
        table,
        TableName(source=None, database=database, table=name),
        view.columns_of(session, view.cold_table(table.uuid)),
        exclude=about.get("exclude", ()),
        time_column=_time_column(table),
    )
    shown = {one.name for one in text.columns}
    known = {one.name for one in table.columns}
    return text, [one for one in plan.proof.columns if _names(one.expression) & known <= shown]


def _time_column(table: TableInfo) -> str:
    key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
    return key.column if isinstance(key, TimeKey) else ""


def _names(expression: str) -> set[str]:
    return {word.value for word in tokens(expression) if word.sort in (Sort.NAME, Sort.QUOTED)}
