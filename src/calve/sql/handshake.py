"""What clients ask before the first statement of their user, recorded from them.

Answers are made once by the engine for each format and kept, so a client connects while every cage is taken. One
statement is answered in another's place: `system.settings` is the engine's own and says nothing about Calve; without
any, clickhouse-connect sends no settings and asks for no compression.
"""

_SETTINGS = "SELECT '' AS name, '' AS value, toUInt8(1) AS readonly WHERE 0"
_ASKED = {
    # clickhouse-connect, and with it Airflow's provider, dbt and Superset
    "SELECT version(), timezone()": "SELECT version(), timezone()",
    "SELECT name, value, readonly FROM system.settings LIMIT 10000": _SETTINGS,
    "SELECT 1 AS check": "SELECT 1 AS check",
    # clickhouse-sqlalchemy, DBeaver and others
    "SELECT 1": "SELECT 1",
    "SELECT version()": "SELECT version()",
    "SELECT timezone()": "SELECT timezone()",
    "SELECT currentDatabase()": "SELECT currentDatabase()",
}


def meant(sql: str) -> str | None:
    """The statement to answer with; None for one that is not part of a handshake."""
    return _ASKED.get(" ".join(sql.split()))
