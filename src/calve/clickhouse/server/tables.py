"""What a table of a server is, whatever the server's age: columns that its system tables lack are
not asked for."""

from pathlib import PurePosixPath
from typing import Any

from calve.clickhouse import tables
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql import create_table
from calve.clickhouse.sql.create_table import declared_columns
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import ZERO_UUID, Column, Mutation, TableInfo
from calve.model.errors import PermanentError, RefusedError


def describe(session: ServerSession, database: str, table: str) -> TableInfo:
    """`Session.describe` of a server."""
    name = TableName(source=session.source, database=database, table=table)
    row = _row(session, name)
    if row is None:
        raise tables.missing(session, name)
    if row["engine"] == "Distributed":
        raise _distributed(session, name, row["engine_full"])
    tables.refuse_without_parts(name, row["engine"])
    clause = create_table.parse(row["engine_full"])
    uuid = "" if row["uuid"] == tables.ZERO_UUID else row["uuid"]
    policies = tables.row_policies(session, name) if session.has("row_policies") else ()
    return TableInfo(
        source=session.source,
        database=database,
        name=table,
        uuid=uuid,
        identity=identity(session, name, replicated=clause.replicated, uuid=uuid),
        engine=row["engine"],
        clause=clause,
        columns=_columns(session, name, row["create_table_query"]),
        partition_key=row["partition_key"],
        sorting_key=row["sorting_key"],
        primary_key=row["primary_key"],
        sampling_key=row["sampling_key"],
        create_query=row["create_table_query"],
        storage_policy=row["storage_policy"],
        data_paths=_seen_paths(session, row["paths"]),
        timezone=session.once("timezone", lambda: _timezone(session)),
        version=session.version,
        row_policies=policies or (),
        mutations=unfinished_mutations(session, name),
        patch_parts=tables.patch_parts(session, name),
        user_functions=session.once("functions", lambda: _user_functions(session)),
        splits_parts=session.features.part_offset,
        policies_hidden=policies is None,
    )


def unfinished_mutations(session: ServerSession, table: TableName) -> tuple[Mutation, ...]:
    """Mutations that some part has not seen; none where the server is too old to have any."""
    if not session.has("mutations", "mutation_id"):
        return ()
    reason = "latest_fail_reason" if session.has("mutations", "latest_fail_reason") else "''"
    killed = "AND NOT is_killed" if session.has("mutations", "is_killed") else ""
    found = session.rows(
        f"SELECT mutation_id, command, parts_to_do, {reason} AS reason FROM system.mutations "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)} "
        f"AND NOT is_done {killed} ORDER BY create_time, mutation_id",
        what=f"table {table}",
    )
    return tuple(
        Mutation(
            id=row["mutation_id"],
            command=row["command"],
            parts_to_do=int(row["parts_to_do"]),
            fail_reason=row["reason"][:200],
        )
        for row in found
    )


def _row(session: ServerSession, name: TableName) -> dict[str, Any] | None:
    uuid = "toString(uuid)" if session.has("tables", "uuid") else "''"
    policy = "storage_policy" if session.has("tables", "storage_policy") else "''"
    paths = "data_paths" if session.has("tables", "data_paths") else "[data_path]"
    found = session.rows(
        f"SELECT {uuid} AS uuid, engine, engine_full, create_table_query, partition_key, sorting_key, "
        f"primary_key, sampling_key, {policy} AS storage_policy, {paths} AS paths FROM system.tables "
        f"WHERE database = {string(name.database)} AND name = {string(name.table)}",
        what=f"table {name}",
    )
    return found[0] if found else None


def _columns(session: ServerSession, table: TableName, create: str) -> tuple[Column, ...]:
    """All of them. A user is shown those that it may read; to export these alone would lose the others
    without a word."""
    order = " ORDER BY position" if session.has("columns", "position") else ""
    found = session.rows(
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)}{order}",
        what=f"table {table}",
    )
    seen = {row["name"] for row in found}
    declared = declared_columns(create) if session.features.grants else []
    if hidden := [column for column in declared if column not in seen]:
        raise PermanentError(
            f"table {table}: user {session.user} may not read column {', '.join(hidden)}",
            code="columns_hidden",
            hint=f"GRANT SELECT ON {table.sql} TO {quoted(session.user)}",
        )
    return tuple(Column(**row) for row in found)


def _timezone(session: ServerSession) -> str:
    """What a DateTime without a zone means. `timezone()` would be the user's session's."""
    if not session.features.server_timezone:
        return session.timezone
    return str(session.rows("SELECT serverTimezone() AS zone")[0]["zone"])


def _seen_paths(session: ServerSession, paths: list[str]) -> tuple[str, ...]:
    """The table's folders as executors see them, for the disks that are mapped; others as they are
    at the server."""
    seen = {disk.name: str(disk.path) for disk in session.disks()}
    disks = session.once("disks", lambda: server_disks(session))
    roots = {path: seen[name] for name, path in disks.items() if name in seen}
    return tuple(_moved(path, roots) for path in paths)


def _moved(path: str, roots: dict[str, str]) -> str:
    # The longest root first: a disk may lie inside of another's folder.
    for root in sorted(roots, key=len, reverse=True):
        if PurePosixPath(path).is_relative_to(root):
            return str(PurePosixPath(roots[root]) / PurePosixPath(path).relative_to(root)) + "/"
    return path


def server_disks(session: ServerSession) -> dict[str, str]:
    """The server's own disks, by name. One that knows none has a single data folder, `default`."""
    if session.has("disks"):
        return {row["name"]: row["path"] for row in session.rows("SELECT name, path FROM system.disks")}
    found = session.rows("SELECT data_path FROM system.tables WHERE data_path != '' LIMIT 1")
    folder = PurePosixPath(found[0]["data_path"]) if found else None
    # <root>/data/<database>/<table>/
    return {"default": str(folder.parents[2])} if folder is not None and len(folder.parts) > 3 else {}


def _user_functions(session: ServerSession) -> frozenset[str]:
    if not session.has("functions", "origin"):
        return frozenset()
    found = session.rows("SELECT name FROM system.functions WHERE origin != 'System'")
    return frozenset(row["name"] for row in found)


def _distributed(session: ServerSession, table: TableName, engine_full: str) -> RefusedError:
    """Names the tables on the shards: each is a source of its own."""
    arguments = [text.strip("'`\"") for text in create_table.parse(engine_full).arguments[:3]]
    cluster, database, local = (*arguments, "", "", "")[:3]
    found = session.rows(
        "SELECT shard_num, any(host_name) AS host FROM system.clusters "
        f"WHERE cluster = {string(cluster)} GROUP BY shard_num ORDER BY shard_num"
    )
    target = TableName(source=None, database=database or table.database, table=local)
    shards = ", ".join(f"{target} at {row['host']}" for row in found) or str(target)
    return RefusedError(
        f"table {table} is Distributed over cluster {cluster}: its rows are in {shards}",
        code="table_engine",
        hint="make each shard a [source.…] of its own and export its local table",
    )


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
