"""Pins at a server: a hard-linked clone table in the database `calve_pins`.

The clone is a plain MergeTree table (also of a replicated one) with the source's structure and
without its TTLs, the columns' own included (D12), and with merges off by its own settings, which
a restart does not undo. Its parts are links: taking it copies nothing, and merges, mutations,
drops and truncates of the source change nothing in it, nor wait for it (L4).
"""

from collections.abc import Sequence

from calve.clickhouse import still
from calve.clickhouse.errors import number_of
from calve.clickhouse.pins.shadow import checked
from calve.clickhouse.server.session import ServerSession
from calve.clickhouse.sql import tokens
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, NotFoundError, TemporaryError

DATABASE = "calve_pins"
_EXISTS = 57
_TOO_LARGE_TO_DROP = 359


def pin_table(name: str) -> TableName:
    """The clone of the pin `name`. Only names of ours become tables."""
    return TableName(source=None, database=DATABASE, table=checked(name))


def clone(session: ServerSession, table: TableInfo, partition_ids: Sequence[str], name: str) -> None:
    """Take the pin `name` over whole partitions. Once: a clone that exists is refused (D5). Every
    statement bears the pin's name as its query id, by which `release` ends it."""
    still.refuse_inline_disk(table)
    pin = pin_table(name)
    what = f"pinning {table} as {name}"
    # if we die here, an empty database is left: every pin uses it
    session.execute(f"CREATE DATABASE IF NOT EXISTS {tokens.name(DATABASE)}", what=what, query_id=name)
    try:
        # if we die here, the journal names the pin, and its release drops the table
        engine = f"{table.clause.family}{_arguments(table)}"
        known = session.once("merge_tree_settings", lambda: still.known_settings(session))
        session.execute(still.create(table, pin, engine, known), what=what, query_id=name)
    except CalveError as error:
        if number_of(error) == _EXISTS:
            raise TemporaryError(
                f"the pin {name} exists already: its clone was taken by an earlier try",
                code="pin_taken",
                hint="it is released, and the next attempt has a name of its own",
            ) from None
        raise
    still.strip_column_ttls(session, pin, name)
    still.stop_merges(session, pin, name)
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


def _arguments(table: TableInfo) -> str:
    given = table.clause.family_arguments
    return f"({', '.join(given)})" if given else ""


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
