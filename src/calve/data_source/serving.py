"""A table of a ClickHouse server, read over HTTP by the parts it has now.

Executors ask the replica that was asked first, for the columns that Spark reads and no others. The
server does the reading, so its users see what they may see: row policies and lightweight deletes
apply, and how many rows are to come is then the server's to say.
"""

from collections.abc import Sequence
from dataclasses import replace

from calve.clickhouse.parts.partitions import find
from calve.clickhouse.pins import pins
from calve.clickhouse.server import live
from calve.clickhouse.server.parts import ListedPart, listed_parts
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.server.version import Version
from calve.clickhouse.server.visit import ServerVisit
from calve.clickhouse.tables import Column, TableInfo
from calve.data_source.found import Found
from calve.data_source.options import Options
from calve.data_source.spark_types import MAPPED_AS
from calve.export.mapping import map_columns

_NAME = "spark"  # of the source, in errors; also its id: whoever only reads needs no identity
_SPEAKS_TODAYS_SQL = Version(22, 6)  # it has the functions that pushed filters are made of


def look(options: Options, names: Sequence[str]) -> Found:
    """Ask the first replica that answers. With `names`, rows come with those columns alone."""
    source = ServerSource(_NAME, _server_options(options))
    with source.visit() as session:
        table = session.describe(options.table.database, options.table.table)
        pins.refuse_unfinished(session, table)
        parts = _parts(session, table, options)
        read = replace(table, columns=_needed(table.columns, names))
        return Found(
            columns=table.columns,
            relation=live.relation(session, read, read, masked=_masked(table, parts), final=False),
            # An executor asks for a part by its name.
            parts=tuple(part.plan_with(path=part.name, disk=part.disk, content=part.hash) for part in parts),
            settings={"session_timezone": table.timezone},
            access=source.access(),
            splits=session.features.part_offset,
            filters=session.features.version >= _SPEAKS_TODAYS_SQL,
        )


def _server_options(options: Options) -> ServerOptions:
    return ServerOptions(
        url=options.source,
        user=options.user,
        password=options.password,
        ca_file=options.ca_file,
        id=_NAME,
    )


def _parts(session: ServerVisit, table: TableInfo, options: Options) -> list[ListedPart]:
    ids = [one.id for one in find(session, table, options.partitions)] if options.partitions else None
    return listed_parts(session, table.database, table.name, ids)


def _masked(table: TableInfo, parts: Sequence[ListedPart]) -> list[str]:
    """Parts of which fewer rows may come than they have: all, where a policy hides rows, or may."""
    hidden = bool(table.row_policies) or table.policies_hidden
    return [part.name for part in parts if part.masked or hidden]


def _needed(columns: Sequence[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """The table's columns behind those that Spark names; flattened Nested ones have a common prefix."""
    if not names:
        return tuple(columns)
    behind = {one.source for one in map_columns(columns, MAPPED_AS).columns if one.name in names}
    return tuple(one for one in columns if one.name in behind or one.name.partition(".")[0] in behind)
