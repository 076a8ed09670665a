"""What keeps rows of a table from being read, or kept, anywhere else than in it."""

from calve.clickhouse.errors import ACCESS_DENIED, number_of
from calve.clickhouse.source import Statements
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import PermanentError, RefusedError


def refuse_row_policies(session: Statements, table: TableInfo, cold: TableName) -> None:
    """What policies hide in the table, equal ones must hide on the cold side. RefusedError otherwise."""
    if not table.row_policies and not table.policies_hidden:
        return
    wanted = _policies(session, TableName(source=None, database=table.database, table=table.name))
    found = _policies(session, cold)
    if wanted is None or found is None or wanted != found:
        raise RefusedError(
            f"table {table} has row policies, and what they hide would show on the cold side",
            code="row_policies",
            hint=f"create policies with the same conditions and users on {cold.sql}: it need not exist for that",
        )


def _policies(session: Statements, table: TableName) -> frozenset[str] | None:
    """Each as its condition and users; None where they are not shown."""
    try:
        found = session.rows(
            "SELECT toString((ifNull(select_filter, ''), is_restrictive, apply_to_all, arraySort(apply_to_list), "
            "arraySort(apply_to_except))) AS policy FROM system.row_policies "
            f"WHERE database = {string(table.database)} AND table IN ({string(table.table)}, '')",
            what=f"row policies of {table}",
        )
    except PermanentError as error:
        if number_of(error) != ACCESS_DENIED:
            raise
        return None
    return frozenset(row["policy"] for row in found)
