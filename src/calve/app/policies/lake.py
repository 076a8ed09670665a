"""The lake table under a view: its state, how a server reads it, and the tag that keeps that state."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from calve.app.destination import parse_table
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import Sort, string, tokens
from calve.clickhouse.tables import TableInfo
from calve.destination.names import DestinationAddress
from calve.destination.outcome import EarlierExport
from calve.model.errors import CalveError, NotFoundError, RefusedError, TemporaryError, UsageError
from calve.objects.uri import LOCAL, Uri, full_uri

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from calve.iceberg.destination import IcebergTable

_LOCAL_ENGINE = "IcebergLocal('{path}/')"


@dataclass(frozen=True, kw_only=True)
class Lake:
    """One state of the lake table, and how a server reads it."""

    address: DestinationAddress
    engine: str
    metadata: str  # relative to the table's folder
    head: str  # its snapshot
    exports: tuple[EarlierExport, ...]


def lake_as_it_is(app: App, address: DestinationAddress, source: str) -> Lake:
    found = app.destination(address).find()
    if found is None:
        raise NotFoundError(
            f"{address} does not exist", code="no_destination", hint="export a partition there first"
        )
    table = cast("IcebergTable", found).table
    return Lake(
        address=address,
        engine=lake_engine(app, source, address.catalog, table.location().rstrip("/")),
        metadata=lake_metadata(address, table),
        head=str(table.metadata.current_snapshot_id),
        exports=tuple(found.exports()),
    )


def lake_metadata(address: DestinationAddress, table: "Table") -> str:
    location, metadata = table.location().rstrip("/"), table.metadata_location
    if not metadata.startswith(f"{location}/"):
        raise RefusedError(
            f"the metadata of {address} is not in the table's own folder, so ClickHouse cannot be pointed at it",
            code="metadata_elsewhere",
            hint="remove the table's property write.metadata.path",
        )
    return metadata.removeprefix(f"{location}/")


def lake_engine(app: App, source: str, catalog: str, location: str) -> str:
    """The table engine with the table's place filled in, as text that stays within its quotes."""
    uri = Uri.parse(full_uri(location))
    template = app.config.source(source).lake.get(catalog, _LOCAL_ENGINE if uri.kind == LOCAL else "")
    if not template:
        raise UsageError(
            f"source {source} does not say how its server reads the tables of catalog {catalog}",
            code="lake_engine",
            hint=f"[source.{source}] lake = {{{catalog} = \"IcebergS3(named_collection, filename = '{{path}}/')\"}}",
        )
    for word in tokens(template):
        if word.sort is not Sort.STRING and word.text == "{":
            raise UsageError(
                f"[source.{source}] lake.{catalog}: {{path}} and {{bucket}} must be inside single quotes",
                code="lake_engine",
            )
    path = uri.key if uri.kind != LOCAL else f"/{uri.key}"
    filled = template.replace("{path}", string(path)[1:-1])
    return filled.replace("{bucket}", string(uri.bucket)[1:-1])


def keep_lake(app: App, lake: Lake, table: TableInfo) -> Lake:
    """With a tag on the head that was looked at, which keeps its files while the view stands."""
    from calve.iceberg.kept_head import keep_head, tag_of_view

    address = lake.address
    # If we die here, the tag is ahead of what the view reads until the next try: its files may expire, as before.
    found = keep_head(app.catalog(address.catalog), address.identifier, tag_of_view(table.uuid))
    if str(found.metadata.current_snapshot_id) != lake.head:
        raise TemporaryError(
            f"{address} changed in the meantime", code="head_moved", hint="run the command again"
        )
    return replace(lake, metadata=lake_metadata(address, found))


def let_go(app: App, to: str, table: TableInfo, *, force: bool) -> None:
    """Remove the tag. With `force`, a lake that is not there any more keeps no view."""
    from calve.iceberg.kept_head import forget_head, tag_of_view

    try:
        address = parse_table(to, app.config)
        forget_head(app.catalog(address.catalog), address.identifier, tag_of_view(table.uuid))
    except CalveError:
        if not force:
            raise


def refuse_released(app: App, lake: Lake) -> None:
    """Between the set and the view. A release marks its partition first, then looks for a set, and then moves: so it
    finds this set, or its mark is found here before anybody reads the view."""
    found = app.destination(lake.address).find()
    now = {one.input for one in found.exports() if one.released} if found is not None else set()
    if more := sorted(now - {one.input for one in lake.exports if one.released}):
        raise TemporaryError(
            f"partition {more[0][1]} was released in the meantime",
            code="released_meanwhile",
            hint="run the command again",
        )
