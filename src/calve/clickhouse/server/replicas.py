"""A replica that lags would export less than the table has: it is synced first, or refused."""

from calve.clickhouse.errors import MAY_NOT, number_of
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, RefusedError, TemporaryError


def ready(session: ServerSession, table: TableInfo) -> None:
    """Return once this replica has all that its table has. Nothing to do for a table of one place."""
    if not table.clause.replicated:
        return
    _refuse_broken(session, table)
    if session.read_only:
        _refuse_lagging(session, table)
        return
    mode = " LIGHTWEIGHT" if session.features.sync_lightweight else ""
    try:
        session.execute(
            f"SYSTEM SYNC REPLICA {table.sql}{mode}", what=f"waiting for the replica of table {table}"
        )
    except CalveError as error:
        if number_of(error) in MAY_NOT:
            _refuse_lagging(session, table)
            return
        raise


def _refuse_broken(session: ServerSession, table: TableInfo) -> None:
    row = _state(session, table)
    if row["is_readonly"] or row["is_session_expired"]:
        raise TemporaryError(
            f"the replica of table {table} at {session.address} has lost its Keeper session: "
            "so it may lack rows",
            code="replica_readonly",
            hint="SYSTEM RESTART REPLICA at the source, or name another replica first in the url",
        )


def _refuse_lagging(session: ServerSession, table: TableInfo) -> None:
    row = _state(session, table)
    behind = row["log_max_index"] - row["log_pointer"] + 1 if row["log_pointer"] else 0
    if row["waiting"] or behind > 0:
        raise TemporaryError(
            f"the replica of table {table} at {session.address} lags: {row['waiting']} entries to fetch, "
            f"{max(behind, 0)} not looked at yet",
            code="replica_lags",
            hint="try again later, or grant SYSTEM SYNC REPLICA to the user",
        )


def _state(session: ServerSession, table: TableInfo) -> dict[str, int]:
    found = session.rows(
        "SELECT toUInt8(is_readonly) AS is_readonly, toUInt8(is_session_expired) AS is_session_expired, "
        "toUInt64(inserts_in_queue) AS waiting, toInt64(log_max_index) AS log_max_index, "
        "toInt64(log_pointer) AS log_pointer FROM system.replicas "
        f"WHERE database = {string(table.database)} AND table = {string(table.name)}",
        what=f"table {table}",
    )
    if not found:
        raise RefusedError(
            f"table {table} is replicated, but {session.address} shows no replica of it", code="no_replica"
        )
    return found[0]
