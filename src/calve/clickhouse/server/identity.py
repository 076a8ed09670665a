"""What makes a table of a server itself, wherever it is read from (D7).

A replicated table is its Keeper path: the same on all replicas, also those made by hand with
uuids of their own, and another on each shard, also where ON CLUSTER gave all shards one uuid.
Any other table is its server's uuid and its own. Where a server is too old for either, only
the configuration can say it: `id`.
"""

from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql.table_name import TableName
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import ZERO_UUID
from calve.model.errors import RefusedError

_DEFAULT_KEEPER = "default"  # what servers with one Keeper, or with no name for it, call it


def identity(session: ServerSession, table: TableName, *, replicated: bool, uuid: str) -> str:
    """The identity; RefusedError where there is none."""
    if replicated and (path := _keeper_path(session, table)):
        return f"keeper:{path}"
    server = session.once("server_uuid", lambda: _server_uuid(session))
    if uuid and server:
        return f"server:{server}/{uuid}"
    if session.configured_id:
        return f"id:{session.configured_id}/{uuid or table.sql}"
    raise RefusedError(
        f"table {table} has no identity of its own: ClickHouse {session.version} gives "
        f"{'its tables' if not uuid else 'itself'} no uuid",
        code="no_identity",
        hint=f'set id = "…" under [source.{session.source}] to any name that no other source has',
    )


def _keeper_path(session: ServerSession, table: TableName) -> str:
    keeper = "zookeeper_name" if session.has("replicas", "zookeeper_name") else string(_DEFAULT_KEEPER)
    found = session.rows(
        f"SELECT concat({keeper}, ':', zookeeper_path) AS path FROM system.replicas "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)}",
        what=f"table {table}",
    )
    return str(found[0]["path"]) if found else ""


def _server_uuid(session: ServerSession) -> str:
    if not session.features.server_uuid:
        return ""
    found = session.rows("SELECT toString(serverUUID()) AS uuid")
    uuid = str(found[0]["uuid"])
    return "" if uuid == ZERO_UUID else uuid
