"""What there is to read: a table's columns and parts, and how an executor reads them.

Nothing is pinned: Spark does not say when a query has ended, so nobody could release it. A freeze and
a backup hold still by themselves; parts of a table that is in use are read by name, and one that was
merged away meanwhile fails its task clearly.
"""

from collections.abc import Sequence
from pathlib import Path

from calve.backup import offering
from calve.backup.location import Location
from calve.clickhouse.embedded.embedded import EmbeddedSource, folder_of
from calve.clickhouse.engine.ddl import scratch_table
from calve.clickhouse.parts.listing import live_parts
from calve.clickhouse.parts.partitions import find
from calve.clickhouse.parts.selection import Selection
from calve.clickhouse.pins import pins
from calve.clickhouse.ports import Session
from calve.clickhouse.tables import TableInfo, describe
from calve.data_source import serving
from calve.data_source.found import Found
from calve.data_source.options import Options
from calve.model.errors import NotFoundError
from calve.model.plan import PartPlan, Relation
from calve.objects.storage import Storage
from calve.objects.uri import full_uri


def look(options: Options, names: Sequence[str] = ()) -> Found:
    """Ask the source, or the backup, once. `names` are the columns that will be read; none for all."""
    if options.backup:
        return _in_backup(options)
    if options.served:
        return serving.look(options, names)
    source = EmbeddedSource("source", folder_of(options.source))
    with source.visit() as session:
        table = describe(session, options.table.database, options.table.table)
        pins.refuse_unfinished(session, table)
        scratch = scratch_table(table)
        parts = _frozen(session, table, options) if options.frozen else _live(session, table, options)
    return Found(
        columns=table.columns,
        relation=Relation(mode="frozen", create=scratch.create),
        parts=parts,
        settings={"session_timezone": table.timezone},
    )


def _live(session: Session, table: TableInfo, options: Options) -> tuple[PartPlan, ...]:
    ids = [one.id for one in find(session, table, options.partitions)] if options.partitions else []
    return live_parts(session, table, ids)


def _frozen(session: Session, table: TableInfo, options: Options) -> tuple[PartPlan, ...]:
    ids = options.partitions or pins.frozen_partitions(session, table, options.frozen)
    if not ids:
        raise NotFoundError(
            f"the freeze {options.frozen} holds nothing of table {table}",
            code="no_freeze",
            hint="name it as ALTER TABLE … FREEZE WITH NAME did",
        )
    return tuple(part.plan() for part in pins.frozen_parts(session, table, ids, options.frozen))


def _in_backup(options: Options) -> Found:
    url = options.backups if "://" in options.backups else full_uri(str(Path(options.backups).absolute()))
    location = Location(url, Storage(options.storage))
    database, table = options.table.database, options.table.table
    manifest, entry = offering.table_in(location, options.backup, database, table)
    wanted = Selection(partitions=options.partitions, all=not options.partitions)
    ids = [one.id for one in offering.select(manifest, entry, wanted)]
    held = offering.held(location, options.backup, database, table, partitions=ids, parts=(), final=False)
    return Found(columns=held.columns, relation=held.relation, parts=held.parts, settings=dict(held.settings))
