"""What a table is: its columns, keys, engine, identity, and what stands in the way of exporting it."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from calve.clickhouse.errors import ACCESS_DENIED, NoTableError, number_of
from calve.clickhouse.source import Statements
from calve.clickhouse.sql import create_table
from calve.clickhouse.sql.create_table import EngineClause
from calve.clickhouse.sql.tokens import TableName, string
from calve.model.errors import CalveError, PermanentError, RefusedError

PATCH_PREFIX = "patch-"  # of the partition ids of patch parts: patch-<hash of columns>-<partition id>
_PATCH_HASH_LENGTH = 32
ZERO_UUID = "00000000-0000-0000-0000-000000000000"  # of what has none
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HINTS = {
    "View": "a view holds no rows: export the table it reads",
    "MaterializedView": "export the table it writes to (TO …, or its `.inner_id.…` table)",
    "Distributed": "export the local table on each shard, as a source of its own",
    "Merge": "export each of the tables it shows",
    "Buffer": "export the table it flushes to",
    "Dictionary": "export the table it is loaded from",
}
_HINT = "only tables of the MergeTree family have parts: copy the rows into one first"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `default_kind` is "", DEFAULT, MATERIALIZED, ALIAS or EPHEMERAL."""

    name: str
    type: str
    default_kind: str = ""
    default_expression: str = ""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """An ALTER that has not reached every part yet."""

    id: str
    command: str
    parts_to_do: int
    fail_reason: str = ""

    def __str__(self) -> str:
        reason = f", failing: {self.fail_reason}" if self.fail_reason else ""
        return f"{self.id} {self.command} ({self.parts_to_do} parts to do{reason})"


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A MergeTree table as it stands."""

    source: str
    database: str
    name: str
    uuid: str  # "" where the database gives its tables none
    identity: str  # of the source's data: part of every export key
    engine: str  # "ReplacingMergeTree"
    clause: EngineClause
    columns: tuple[Column, ...]
    partition_key: str
    sorting_key: str
    primary_key: str
    sampling_key: str
    create_query: str
    storage_policy: str
    data_paths: tuple[str, ...]  # one a disk
    timezone: str  # the server's: what DateTime without a zone, and conversions, mean
    version: str  # of ClickHouse
    row_policies: tuple[str, ...] = ()
    mutations: tuple[Mutation, ...] = ()  # unfinished
    patch_parts: tuple[str, ...] = ()
    user_functions: frozenset[str] = frozenset()  # UDFs that the source knows and an executor does not
    splits_parts: bool = True  # a large part can be read by several tasks
    policies_hidden: bool = False  # whether it has row policies is not for this user to know

    @property
    def settings(self) -> Mapping[str, str]:
        return self.clause.settings

    @property
    def sql(self) -> str:
        """Its name, for a statement."""
        return self.full_name.sql

    @property
    def full_name(self) -> TableName:
        return TableName(source=self.source, database=self.database, table=self.name)

    def __str__(self) -> str:
        return str(self.full_name)


def refuse_without_parts(name: TableName, engine: str) -> None:
    if not engine.endswith("MergeTree"):
        raise RefusedError(
            f"table {name} has the engine {engine}, which has no parts to export",
            code="table_engine",
            hint=_HINTS.get(engine, _HINT),
        )


def describe(session: Statements, database: str, table: str, *, functions: bool = True) -> TableInfo:
    """`Session.describe` of an engine of ours. Without `functions`, it is known that nobody defined any."""
    name = TableName(source=session.source, database=database, table=table)
    found = session.rows(
        "SELECT toString(uuid) AS uuid, engine, engine_full, create_table_query, partition_key, sorting_key, "
        "primary_key, sampling_key, storage_policy, data_paths, serverTimezone() AS timezone, "
        "version() AS version, toString(serverUUID()) AS server_uuid "
        f"FROM system.tables WHERE database = {string(database)} AND name = {string(table)}",
        what=f"table {name}",
    )
    if not found:
        raise missing(session, name)
    row = found[0]
    refuse_without_parts(name, row["engine"])
    uuid = _uuid(row)
    return TableInfo(
        source=session.source,
        database=database,
        name=table,
        uuid=uuid,
        identity=_identity(session, name, row, uuid),
        engine=row["engine"],
        clause=create_table.parse(row["engine_full"]),
        columns=_columns(session, name),
        partition_key=row["partition_key"],
        sorting_key=row["sorting_key"],
        primary_key=row["primary_key"],
        sampling_key=row["sampling_key"],
        create_query=row["create_table_query"],
        storage_policy=row["storage_policy"],
        data_paths=tuple(row["data_paths"]),
        timezone=row["timezone"],
        version=row["version"],
        # An engine of ours has no users, so no policies either, and says so by refusing the look.
        row_policies=row_policies(session, name) or (),
        mutations=unfinished_mutations(session, name),
        patch_parts=patch_parts(session, name),
        user_functions=_user_functions(session) if functions else frozenset(),
    )


def name_of(session: Statements, uuid: str) -> TableName | None:
    """What the table with this uuid is called by now; None where there is none."""
    found = session.rows(
        f"SELECT database, name FROM system.tables WHERE toString(uuid) = {string(uuid)}", what="tables"
    )
    return TableName(source=None, database=found[0]["database"], table=found[0]["name"]) if found else None


def unfinished_mutations(session: Statements, table: TableName) -> tuple[Mutation, ...]:
    """Mutations that some part has not seen. Killed ones will never be applied and do not count."""
    found = session.rows(
        "SELECT mutation_id, command, parts_to_do, latest_fail_reason FROM system.mutations "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)} "
        "AND NOT is_done AND NOT is_killed ORDER BY create_time, mutation_id",
        what=f"table {table}",
    )
    return tuple(
        Mutation(
            id=row["mutation_id"],
            command=row["command"],
            parts_to_do=row["parts_to_do"],
            fail_reason=row["latest_fail_reason"][:200],
        )
        for row in found
    )


def patch_parts(session: Statements, table: TableName, partition_ids: Sequence[str] = ()) -> tuple[str, ...]:
    """Patches of lightweight updates that some part of their partition has not taken in yet (W6); of these
    partitions, or of all. A part takes in patches up to its data version; the engine removes those that all
    have, later."""
    mine = f"active AND database = {string(table.database)} AND table = {string(table.table)}"
    is_patch = f"startsWith(partition_id, {string(PATCH_PREFIX)})"
    of_these = f" AND id IN ({', '.join(map(string, partition_ids))})" if partition_ids else ""
    # Most tables have none: a third of the CPU of the whole question, which each export asks six times.
    if not session.rows(
        f"SELECT 1 AS one FROM system.parts WHERE {mine} AND {is_patch} LIMIT 1", what=f"table {table}"
    ):
        return ()
    found = session.rows(
        "SELECT name FROM (SELECT name, data_version, "
        f"substring(partition_id, {len(PATCH_PREFIX) + _PATCH_HASH_LENGTH + 2}) AS id "
        f"FROM system.parts WHERE {mine} AND {is_patch}) AS patch "
        "INNER JOIN (SELECT partition_id AS id, min(data_version) AS oldest "
        f"FROM system.parts WHERE {mine} AND NOT {is_patch} GROUP BY id) AS partition USING (id) "
        f"WHERE data_version > oldest{of_these} ORDER BY name",
        what=f"table {table}",
    )
    return tuple(row["name"] for row in found)


def _columns(session: Statements, table: TableName) -> tuple[Column, ...]:
    found = session.rows(
        "SELECT name, type, default_kind, default_expression FROM system.columns "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)} ORDER BY position",
        what=f"table {table}",
    )
    return tuple(Column(**row) for row in found)


def _uuid(row: Mapping[str, Any]) -> str:
    """The table's uuid. The embedded engine's `default` database hides it, its path does not."""
    if row["uuid"] != ZERO_UUID:
        return str(row["uuid"])
    for path in row["data_paths"]:
        last = PurePosixPath(path).name
        if _UUID.fullmatch(last):
            return last
    return ""


def _identity(session: Statements, table: TableName, row: Mapping[str, Any], uuid: str) -> str:
    """What makes this input itself, wherever it is read from.

    A replicated table is its Keeper path: the same on all replicas, another on each shard (D7).
    Otherwise server and table. The embedded engine has no server id (all zeros), so there it is
    the table's uuid alone: a folder that was moved, mounted elsewhere or restored is the same
    source, and not exported twice. Two copies that went on to live apart are two sources only
    if the configuration gives them an `id`.
    """
    clause = create_table.parse(row["engine_full"])
    if session.configured_id:
        return f"id:{session.configured_id}/{uuid or table.sql}"
    if clause.replicated:
        path = _keeper_path(session, table)
        if path:
            return f"keeper:{path}"
    if uuid and session.embedded:
        return f"embedded:{uuid}"
    if uuid and row["server_uuid"] != ZERO_UUID:
        return f"server:{row['server_uuid']}/{uuid}"
    raise RefusedError(
        f"table {table} has no identity of its own: its database gives tables no uuid",
        code="no_identity",
        hint=f'set id = "…" under [source.{session.source}] to any name that no other source has',
    )


def _keeper_path(session: Statements, table: TableName) -> str:
    found = session.rows(
        "SELECT concat(zookeeper_name, ':', zookeeper_path) AS path FROM system.replicas "
        f"WHERE database = {string(table.database)} AND table = {string(table.table)}",
        what=f"table {table}",
    )
    return str(found[0]["path"]) if found else ""


UNKNOWN_POLICIES = "unknown: the user may not see them"


def row_policies(session: Statements, table: TableName) -> tuple[str, ...] | None:
    """None where the user may not see them."""
    try:
        found = session.rows(
            "SELECT name FROM system.row_policies "
            f"WHERE database = {string(table.database)} AND table IN ({string(table.table)}, '') ORDER BY name",
            what=f"table {table}",
        )
    except PermanentError as error:
        if number_of(error) != ACCESS_DENIED:
            raise
        return None
    return tuple(row["name"] for row in found)


def _user_functions(session: Statements) -> frozenset[str]:
    found = session.rows("SELECT name FROM system.functions WHERE origin != 'System'")
    return frozenset(row["name"] for row in found)


def missing(session: Statements, table: TableName) -> CalveError:
    """No such table. Suggests what a person may have meant."""
    found = session.rows(
        "SELECT database, name FROM system.tables "
        "WHERE database NOT IN ('system', 'INFORMATION_SCHEMA', 'information_schema') "
        "AND endsWith(engine, 'MergeTree') ORDER BY database, name LIMIT 10000"
    )
    names = {
        str(TableName(source=None, database=row["database"], table=row["name"])): row["name"] for row in found
    }
    wanted = str(TableName(source=None, database=table.database, table=table.table))
    folded = {name.casefold(): name for name in names}
    near = [folded[name] for name in difflib.get_close_matches(wanted.casefold(), folded, n=3)]
    near += [name for name, last in names.items() if last == table.table and name not in near][:2]
    hint = f"did you mean {' or '.join(near)}?" if near else f"source {table.source} has no table like it"
    return NoTableError(f"table {table} does not exist", code="no_table", hint=hint)


def system_columns(session: Statements, tables: Sequence[str]) -> frozenset[tuple[str, str]]:
    """As table and column. A table that the version does not have is in none of them."""
    rows = session.rows(
        "SELECT table, name FROM system.columns WHERE database = 'system' "
        f"AND table IN ({', '.join(map(string, tables))})"
    )
    return frozenset((row["table"], row["name"]) for row in rows)
