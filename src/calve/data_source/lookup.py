"""What there is to read: a table's columns and parts, and how an executor reads them.

Nothing is pinned: Spark does not say when a query has ended, so a pin could never be released. A freeze
and a backup hold still by themselves. Parts of a table in use are read by name; a part that was merged
away meanwhile fails its task with a clear error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calve.archive.location import Location
from calve.archive.source import BackupSource
from calve.clickhouse.embedded.source import EmbeddedSource, folder_of
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.partitions import Selection, find, live_parts, select
from calve.clickhouse.pins import freeze
from calve.clickhouse.pins.pin import FROZEN, PinRequest
from calve.clickhouse.reader import Reader
from calve.clickhouse.server import live
from calve.clickhouse.server.parts import ListedPart, listed_parts
from calve.clickhouse.server.session import Version
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.clickhouse.server.visit import ServerVisit
from calve.clickhouse.source import Session
from calve.clickhouse.tables import Column, TableInfo, describe
from calve.data_source.options import Options
from calve.data_source.spark_types import MAPPED_AS
from calve.destination.plan import PartPlan, Relation
from calve.export.columns import map_columns
from calve.model.errors import NotFoundError
from calve.objects.storage import Storage
from calve.objects.uri import full_uri

_SERVER = "spark"  # the source's name in errors, and its id: a reader needs no identity
_SPEAKS_TODAYS_SQL = Version(22, 6)  # it has the functions that pushed filters are made of


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What there is to read, as the driver found it."""

    columns: tuple[Column, ...]  # all of the table's
    relation: Relation
    parts: tuple[PartPlan, ...]
    settings: Mapping[str, str]
    reader: Reader
    splits: bool = True  # a huge part can be read by ranges
    filters: bool = False  # there is a server that can filter before it sends


def look_up(options: Options, names: Sequence[str] = ()) -> Lookup:
    """Ask the source, or the backup, once. `names` are the columns that will be read; none for all."""
    if options.backup:
        return _in_backup(options)
    if options.served:
        return _at_server(options, names)
    source = EmbeddedSource("source", folder_of(options.source))
    with source.visit() as session:
        table = describe(session, options.table.database, options.table.table)
        freeze.refuse_unfinished(session, table)
        scratch = scratch_table(table)
        parts = _frozen(session, table, options) if options.frozen else _live(session, table, options)
    relation = Relation(mode=FROZEN, create=scratch.create)
    return Lookup(
        columns=table.columns,
        relation=relation,
        reader=source.reader(relation),
        parts=parts,
        settings={"session_timezone": table.timezone},
    )


def _live(session: Session, table: TableInfo, options: Options) -> tuple[PartPlan, ...]:
    ids = [one.id for one in find(session, table, options.partitions)] if options.partitions else []
    return live_parts(session, table, ids)


def _frozen(session: Session, table: TableInfo, options: Options) -> tuple[PartPlan, ...]:
    ids = options.partitions or freeze.frozen_partitions(session, table, options.frozen)
    if not ids:
        raise NotFoundError(
            f"the freeze {options.frozen} has no parts of table {table}",
            code="no_freeze",
            hint="use the name given to ALTER TABLE … FREEZE WITH NAME",
        )
    return tuple(part.plan() for part in freeze.frozen_parts(session, table, ids, options.frozen))


def _in_backup(options: Options) -> Lookup:
    url = options.backups if "://" in options.backups else full_uri(str(Path(options.backups).absolute()))
    location = Location(url, Storage(options.storage), signing_key=options.signing_key)
    database, table = options.table.database, options.table.table
    source = BackupSource(location, options.backup, "backup", dict(options.storage))
    wanted = Selection(partitions=options.partitions, all=not options.partitions)
    with source.visit() as view:
        ids = tuple(one.id for one in select(view, view.describe(database, table), wanted))
    pinned = source.pin(PinRequest(database=database, table=table, partitions=ids), "")
    return Lookup(
        columns=pinned.columns,
        relation=pinned.relation,
        reader=source.reader(pinned.relation),
        parts=pinned.parts,
        settings=dict(pinned.settings),
    )


def _at_server(options: Options, names: Sequence[str]) -> Lookup:
    """Ask the first replica that answers. With `names`, rows come with those columns alone.

    Executors ask the same replica, for the columns that Spark reads and no others. The server does the
    reading, so row policies and lightweight deletes apply, and the server says how many rows to expect.
    """
    source = ServerSource(_SERVER, _server_options(options))
    with source.visit() as session:
        table = session.describe(options.table.database, options.table.table)
        freeze.refuse_unfinished(session, table)
        parts = _server_parts(session, table, options)
        read = replace(table, columns=_needed(table.columns, names))
        relation = live.relation(session, read, read, masked=_masked(table, parts), final=False)
        return Lookup(
            columns=table.columns,
            relation=relation,
            # An executor asks for a part by its name.
            parts=tuple(part.plan_with(path=part.name, disk=part.disk, content=part.hash) for part in parts),
            settings={"session_timezone": table.timezone},
            reader=source.reader(relation),
            splits=session.features.part_offset,
            filters=session.features.version >= _SPEAKS_TODAYS_SQL,
        )


def _server_options(options: Options) -> ServerOptions:
    return ServerOptions(
        url=options.source,
        user=options.user,
        password=options.password,
        ca_file=options.ca_file,
        id=_SERVER,
    )


def _server_parts(session: ServerVisit, table: TableInfo, options: Options) -> list[ListedPart]:
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
