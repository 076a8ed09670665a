"""A table like another whose parts stay as they are: no TTL, the columns' own included (D12), and merges off by its own
settings, which a restart does not undo. Parts of the other can be linked into it and moved there: what must be equal
for that is."""

from collections.abc import Set

from calve.clickhouse.source import Statements
from calve.clickhouse.sql import tokens
from calve.clickhouse.sql.create_table import columns_with_ttl
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import TableInfo
from calve.model.errors import DeniedError, PermanentError, RefusedError

# Parts as they are, for as long as it is there. Those that a server does not know are left out.
_STILL = {
    "max_bytes_to_merge_at_max_space_in_pool": "1",
    "max_bytes_to_merge_at_min_space_in_pool": "1",
    "max_number_of_merges_with_ttl_in_pool": "0",
    "merge_with_ttl_timeout": "4000000000",
    "merge_with_recompression_ttl_timeout": "4000000000",
    "min_age_to_force_merge_seconds": "0",
    "min_partition_age_to_force_merge_seconds": "0",
    "ttl_only_drop_parts": "1",
    "remove_empty_parts": "0",
    "parts_to_delay_insert": "1000000000",  # here 0 would mean none, and not no limit
    "parts_to_throw_insert": "1000000000",
    "max_parts_in_total": "1000000000",
}
# What must be the source's own for parts to be taken over as they are; nothing else is.
_KEPT = frozenset(
    {
        "index_granularity",
        "index_granularity_bytes",
        "enable_mixed_granularity_parts",
        "storage_policy",
        "disk",
    }
    | {"min_bytes_for_wide_part", "min_rows_for_wide_part", "allow_nullable_key"}
    | {"deduplicate_merge_projection_mode", "allow_experimental_reverse_key"}
    | {"add_minmax_index_for_numeric_columns", "add_minmax_index_for_string_columns"}
    | {"assign_part_uuids", "escape_index_filenames"}
)


def create(
    table: TableInfo, made: TableName, engine: str, known: Set[str], *, more: str = "", comment: str = ""
) -> str:
    """AS copies columns, indexes and projections, which ClickHouse wants equal; the engine is
    written anew, so that TTL and settings that act on their own stay behind. `known` are the settings that the server
    has, `more` is one of the caller's."""
    clause = table.clause
    text = f"CREATE TABLE {made.sql} AS {table.sql} ENGINE = {engine}"
    if clause.old_syntax:
        return text
    if clause.partition_by:
        text += f" PARTITION BY {clause.partition_by}"
    if clause.primary_key:
        text += f" PRIMARY KEY {clause.primary_key}"
    text += f" ORDER BY {clause.order_by or 'tuple()'}"
    if clause.sample_by:
        text += f" SAMPLE BY {clause.sample_by}"
    settings = {key: value for key, value in clause.settings.items() if key in _KEPT}
    settings |= {key: value for key, value in _STILL.items() if key in known}
    if more and more in known:
        settings[more] = "1"
    if settings:
        text += " SETTINGS " + ", ".join(f"{key} = {value}" for key, value in settings.items())
    return text + (f" COMMENT {tokens.string(comment)}" if comment else "")


def known_settings(session: Statements) -> frozenset[str]:
    """Of MergeTree tables, at this server."""
    found = session.rows("SELECT name FROM system.merge_tree_settings")
    return frozenset(row["name"] for row in found)


def strip_column_ttls(session: Statements, made: TableName, query_id: str) -> None:
    """AS copies a column's TTL with the column. The table is still empty: this changes no part."""
    found = session.rows(
        "SELECT create_table_query AS text FROM system.tables "
        f"WHERE database = {tokens.string(made.database)} AND name = {tokens.string(made.table)}"
    )
    for column in columns_with_ttl(found[0]["text"] if found else ""):
        session.execute(
            f"ALTER TABLE {made.sql} MODIFY COLUMN {tokens.name(column)} REMOVE TTL",
            what=f"table {made}",
            query_id=query_id,
        )


def stop_merges(session: Statements, made: TableName, query_id: str) -> None:
    """Beside the settings, which stay: at once, and also for servers whose settings have no such limit.
    Not everybody may do it, and it ends with a restart, so nothing relies on it."""
    try:
        session.execute(f"SYSTEM STOP MERGES {made.sql}", what=f"table {made}", query_id=query_id)
    except DeniedError:
        raise
    except PermanentError:
        return


def refuse_inline_disk(table: TableInfo) -> None:
    """The server shows such a definition with its details hidden, and refuses it in that form. The policy
    that it makes of it has a name, which a clone could use; but a server that starts again with a pin
    held may not know that name yet when it loads the clone."""
    if table.clause.settings.get("disk", "").replace(" ", "").lower().startswith("disk("):
        raise RefusedError(
            f"table {table} defines its disk in its own settings, so no clone can be put on that disk",
            code="disk_inline",
            hint="map that disk under disks of the source, so that its parts are frozen and read as files; or"
            " define the disk in the server's configuration and name it in the table",
        )
