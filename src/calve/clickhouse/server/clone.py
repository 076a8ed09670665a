"""Pins at a server: a hard-linked clone table in the database `calve_pins`.

The clone is a plain MergeTree table (also of a replicated one) with the source's structure and
without its TTLs, the columns' own included (D12), and with merges off by its own settings, which
a restart does not undo. Its parts are links: taking it copies nothing, and merges, mutations,
drops and truncates of the source change nothing in it, nor wait for it (L4).
"""

from collections.abc import Sequence

from calve.clickhouse.errors import number_of
from calve.clickhouse.pins.shadow import checked
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql import tokens
from calve.clickhouse.sql.create_table import columns_with_ttl
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, DeniedError, NotFoundError, PermanentError, RefusedError

DATABASE = "calve_pins"
_EXISTS = 57
_TOO_LARGE_TO_DROP = 359
# Parts as they are, for as long as the pin is held. Those that a server does not know are left out.
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


def pin_table(name: str) -> TableName:
    """The clone of the pin `name`. Only names of ours become tables."""
    return TableName(source=None, database=DATABASE, table=checked(name))


def clone(session: ServerSession, table: TableInfo, partition_ids: Sequence[str], name: str) -> None:
    """Take the pin `name` over whole partitions. Once: a clone that exists is refused (D5). Every
    statement bears the pin's name as its query id, by which `release` ends it."""
    _refuse_inline_disk(table)
    pin = pin_table(name)
    what = f"pinning {table} as {name}"
    # if we die here, an empty database is left: every pin uses it
    session.execute(f"CREATE DATABASE IF NOT EXISTS {tokens.name(DATABASE)}", what=what, query_id=name)
    try:
        # if we die here, the journal names the pin, and its release drops the table
        session.execute(_create(session, table, pin), what=what, query_id=name)
    except CalveError as error:
        if number_of(error) == _EXISTS:
            raise PermanentError(
                f"the pin {name} exists already: its clone was taken by an earlier try",
                code="pin_taken",
                hint="release it; the next attempt has a name of its own",
            ) from None
        raise
    _strip_column_ttls(session, pin, name)
    _stop_merges(session, pin, name)
    for partition_id in partition_ids:
        # REPLACE, not ATTACH: repeated by a lost answer, it still holds every part once
        session.execute(
            f"ALTER TABLE {pin.sql} REPLACE PARTITION ID {tokens.string(partition_id)} FROM {table.sql}",
            what=f"pinning partition {partition_id} of {table}",
            query_id=name,
        )


def release(session: ServerSession, name: str) -> None:
    """Let the pin go, taken or not, its source there or not. Twice is harmless. First its own
    statements are ended: a killed client does not stop them, and one still under way could bring
    the clone back."""
    pin = pin_table(name)
    session.kill(name, f"ending what takes the pin {name}")
    sync = " SYNC" if session.features.drop_sync else ""
    settings = {"max_table_size_to_drop": "0"} if session.features.drop_limit_setting else {}
    try:
        session.execute(f"DROP TABLE IF EXISTS {pin.sql}{sync}", settings, what=f"releasing the pin {name}")
    except NotFoundError:
        return  # the database is gone, and the clone with it
    except CalveError as error:
        if number_of(error) != _TOO_LARGE_TO_DROP:
            raise
        _drop_by_part(session, pin, sync)


def _refuse_inline_disk(table: TableInfo) -> None:
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


def names(session: ServerSession) -> list[str]:
    """The clones that the server has: those that no journal names are for a person to look at."""
    found = session.rows(
        f"SELECT name FROM system.tables WHERE database = {tokens.string(DATABASE)} ORDER BY name"
    )
    return [row["name"] for row in found]


def exists(session: ServerSession, name: str) -> bool:
    """Whether the pin's clone is at the server."""
    pin = pin_table(name)
    found = session.rows(
        "SELECT count() AS n FROM system.tables "
        f"WHERE database = {tokens.string(pin.database)} AND name = {tokens.string(pin.table)}"
    )
    return bool(found[0]["n"])


def _create(session: ServerSession, table: TableInfo, pin: TableName) -> str:
    """AS copies columns, indexes and projections, which REPLACE PARTITION wants equal; the engine is
    written anew, so that Replicated, TTL and settings that act on their own stay behind."""
    clause = table.clause
    arguments = f"({', '.join(clause.family_arguments)})" if clause.family_arguments else ""
    text = f"CREATE TABLE {pin.sql} AS {table.sql} ENGINE = {clause.family}{arguments}"
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
    settings |= {key: value for key, value in _STILL.items() if key in _merge_tree_settings(session)}
    return text + (
        " SETTINGS " + ", ".join(f"{key} = {value}" for key, value in settings.items()) if settings else ""
    )


def _merge_tree_settings(session: ServerSession) -> frozenset[str]:
    def ask() -> frozenset[str]:
        found = session.rows("SELECT name FROM system.merge_tree_settings")
        return frozenset(row["name"] for row in found)

    return session.once("merge_tree_settings", ask)


def _strip_column_ttls(session: ServerSession, pin: TableName, name: str) -> None:
    """AS copies a column's TTL with the column. The clone is still empty: this changes no part."""
    found = session.rows(
        "SELECT create_table_query AS text FROM system.tables "
        f"WHERE database = {tokens.string(pin.database)} AND name = {tokens.string(pin.table)}"
    )
    for column in columns_with_ttl(found[0]["text"] if found else ""):
        session.execute(
            f"ALTER TABLE {pin.sql} MODIFY COLUMN {tokens.name(column)} REMOVE TTL",
            what=f"pin {name}",
            query_id=name,
        )


def _stop_merges(session: ServerSession, pin: TableName, name: str) -> None:
    """Beside the settings, which stay: at once, and also for servers whose settings have no such limit.
    Not everybody may do it, and it ends with a restart, so nothing relies on it."""
    try:
        session.execute(f"SYSTEM STOP MERGES {pin.sql}", what=f"pin {name}", query_id=name)
    except DeniedError:
        raise
    except PermanentError:
        return


def _drop_by_part(session: ServerSession, pin: TableName, sync: str) -> None:
    """A server that refuses to drop large tables drops parts."""
    found = session.rows(
        "SELECT name FROM system.parts WHERE active "
        f"AND database = {tokens.string(pin.database)} AND table = {tokens.string(pin.table)}"
    )
    for row in found:
        # if we die here, the next release goes on with the parts that are left
        session.execute(f"ALTER TABLE {pin.sql} DROP PART {tokens.string(row['name'])}", what=f"pin {pin}")
    session.execute(f"DROP TABLE IF EXISTS {pin.sql}{sync}", what=f"pin {pin}")
