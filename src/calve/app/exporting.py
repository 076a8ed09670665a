"""From the words of a command to a request: names parsed, everything named known to the configuration."""

from dataclasses import dataclass
from datetime import timedelta

from calve.app.destination import parse_destination
from calve.app.wiring import App
from calve.archive.backups import find
from calve.clickhouse.parts.selection import Selection
from calve.clickhouse.sql.table_name import TableName, parse
from calve.export.request import ExportRequest


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `calve export`, as typed."""

    partitions: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    every: bool = False
    older_than_hours: int | None = None
    where: str = ""
    final: bool = False
    force: bool = False
    discard_deletes: bool = False
    allow_overlap: bool = False
    create: bool = True
    evolve: bool = False
    partition_by: str = ""
    casts: tuple[tuple[str, str], ...] = ()
    exclude: tuple[str, ...] = ()
    mutations: str = "refuse"
    ignore_row_policies: bool = False
    from_backup: str = ""
    unsigned: bool = False

    @property
    def selection(self) -> Selection:
        hours = self.older_than_hours
        return Selection(
            partitions=self.partitions,
            parts=self.parts,
            all=self.every,
            older_than=None if hours is None else timedelta(hours=hours),
        )


def request_of(app: App, table: str, destination: str, asked: Asked) -> ExportRequest:
    """Nothing is connected to yet: a name that is wrong is told at once."""
    name = parse(table)
    to = parse_destination(destination, app.config)
    source = _source(app, name, asked)
    return ExportRequest(
        source=source,
        database=name.database,
        table=name.table,
        catalog=to.catalog,
        identifier=to.identifier,
        storage=to.storage,
        partitions=(),
        parts=asked.parts,
        where=asked.where,
        final=asked.final,
        force=asked.force,
        discard_deletes=asked.discard_deletes,
        allow_overlap=asked.allow_overlap,
        create=asked.create,
        evolve=asked.evolve,
        partition_by=asked.partition_by,
        casts=dict(asked.casts),
        exclude=asked.exclude,
        mutations=asked.mutations,
        ignore_row_policies=asked.ignore_row_policies,
        from_backup=asked.from_backup,
        unsigned=asked.unsigned,
    )


def _source(app: App, name: TableName, asked: Asked) -> str:
    if asked.from_backup:
        # The source that the backup was made of: it need not be configured, nor exist.
        return name.source or find(app.backups(), asked.from_backup, unsigned=asked.unsigned).source
    source = name.source or app.config.default_source
    app.config.source(source)
    return source
