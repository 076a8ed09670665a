"""From the words of a command to a request: names parsed, everything named known to the configuration."""

from dataclasses import dataclass
from datetime import timedelta

from calve.app.destination import parse_destination
from calve.app.wiring import App
from calve.kinds.export.request import ExportRequest
from calve.source.names import parse
from calve.source.selection import Selection


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
    source = name.source or app.config.default_source
    app.config.source(source)
    return ExportRequest(
        source=source,
        database=name.database,
        table=name.table,
        catalog=to.catalog,
        identifier=to.identifier,
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
    )
