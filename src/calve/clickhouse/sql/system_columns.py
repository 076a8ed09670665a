"""Which columns the system tables of a source have: what a version lacks is asked for otherwise."""

from collections.abc import Sequence

from calve.clickhouse.source import Statements
from calve.clickhouse.sql.tokens import string


def system_columns(session: Statements, tables: Sequence[str]) -> frozenset[tuple[str, str]]:
    """As table and column. A table that the version does not have is in none of them."""
    rows = session.rows(
        "SELECT table, name FROM system.columns WHERE database = 'system' "
        f"AND table IN ({', '.join(map(string, tables))})"
    )
    return frozenset((row["table"], row["name"]) for row in rows)
