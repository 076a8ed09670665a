"""A view over a table and its lake, made, shown and dropped at every server of the source.

Nothing here removes a row from anywhere. A partition is read from the lake only if its export is there whole: the rows
that each server finds in the lake, by the way that the view reads it, are counted before anything is changed.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from calve.app.destination import parse_table
from calve.app.partitions import Exported, compared
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import Sort, TableName, string, tokens
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import obstacles, residency, view
from calve.clickhouse.tier.residency import Resident
from calve.destination.names import DestinationAddress
from calve.destination.outcome import EarlierExport
from calve.model.errors import (
    CalveError,
    DamagedError,
    NotFoundError,
    RefusedError,
    TemporaryError,
    UsageError,
)
from calve.objects.uri import LOCAL, Uri, full_uri
from calve.policy.bounds import TimeKey, Unit, time_key
from calve.policy.calendar import zone_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from calve.iceberg.destination import IcebergTable

Json = dict[str, Any]
T = TypeVar("T")
_LOCAL_ENGINE = "IcebergLocal('{path}/')"


@dataclass(frozen=True, kw_only=True)
class Lake:
    """One state of the lake table, and how a server reads it."""

    address: DestinationAddress
    engine: str
    metadata: str  # relative to the table's folder
    head: str  # its snapshot
    exports: tuple[EarlierExport, ...]


@dataclass(frozen=True, kw_only=True)
class TierServer:
    """What one server has."""

    table: TableInfo
    partitions: tuple[PartitionInfo, ...]
    residents: Mapping[str, Resident]
    about: Json  # of a view that is there


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Where partitions shall be read from."""

    cold: Mapping[str, Resident]
    rows: Mapping[str, int]  # that the lake has of them
    added: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)  # rows in the table of partitions that are cold


def view_create(
    app: App,
    table: str,
    to: str,
    into: str,
    *,
    cold: Sequence[str] = (),
    hot: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Json:
    """Make the view, or bring it up to date: with the lake as it is now, and the table's columns."""
    name = app.table(table)
    source = name.source or app.config.default_source
    shown = _view_name(app, into, source)
    lake = lake_as_it_is(app, parse_table(to, app.config), source)
    servers = _at_each(app, source, lambda session: _server(session, name))
    _refuse(servers, lake, shown, cold, hot)
    wanted = _wanted(app, servers, lake, cold, hot)
    exclude = exclude or next((one.about.get("exclude", ()) for one in servers if one.about), ())
    seen = lake
    texts = _at_each(app, source, lambda session: _prepared(session, servers, seen, shown, wanted, exclude))
    lake = _held(app, lake, servers[0].table)
    before = residency.newest(server.residents for server in servers)
    flips = [*wanted.cold.values(), *(Resident(id=id, cold=False) for id in wanted.returned)]
    changed = [one for one in flips if not _says(before.get(one.id), one)]
    stamped = residency.stamped(changed, before, secrets.token_hex(8))
    state = {**before, **{one.id: one for one in stamped}}
    about, set_up, left = _about(name, lake, shown, exclude), iter(texts), iter(texts)
    _at_each(app, source, lambda session: _set_up(session, next(set_up), lake, about, state))
    _refuse_released(app, lake)
    placed = _at_each(app, source, lambda session: _placed(session, next(left)))
    older = [one for some in placed for one in some]
    return {
        "view": str(TableName(source=None, database=shown.database, table=shown.table)),
        "table": str(TableName(source=source, database=name.database, table=name.table)),
        "to": str(lake.address),
        "cold": sorted(wanted.cold),
        "added": sorted(wanted.added),
        "returned": sorted(wanted.returned),
        "late_rows": dict(sorted(wanted.late.items())),
        "metadata": lake.metadata,
        "servers": len(servers),
        "older_queries": [asdict(one) for one in older],
        "grants": _grants(servers[0].table, shown),
    }


def view_show(app: App, table: str) -> Json:
    """The view of a table, as each server has it."""
    name = app.table(table)
    source = name.source or app.config.default_source
    servers = _at_each(app, source, lambda session: _server(session, name))
    about = _known(servers, name)
    state = residency.newest(server.residents for server in servers)
    ids = sorted(id for id, one in state.items() if one.cold)
    here = {one.id: one.rows for server in servers for one in server.partitions}
    return {
        "view": about["view"],
        "table": str(TableName(source=source, database=name.database, table=name.table)),
        "to": about["to"],
        "metadata": about.get("metadata", ""),
        "cold": [
            {"id": id, "rows_in_table": here.get(id, 0), "bounded": state[id].lower != residency.EARLIEST}
            for id in ids
        ],
        "servers": len(servers),
        "same_everywhere": all(dict(server.residents) == state for server in servers),
    }


def view_drop(app: App, table: str, *, force: bool = False) -> Json:
    """Remove the view and what it stands on, at every server. Rows are where they were."""
    name = app.table(table)
    source = name.source or app.config.default_source
    servers = _at_each(app, source, lambda session: _server(session, name))
    about = _known(servers, name)
    state = residency.newest(server.residents for server in servers)
    ids = sorted(id for id, one in state.items() if one.cold)
    if ids and not force:
        raise RefusedError(
            f"view {about['view']} reads {len(ids)} partitions from {about['to']} ({', '.join(ids[:5])}…)",
            code="view_in_use",
            hint="--force drops it all the same; their rows stay in the lake",
        )
    shown = _view_name(app, about["view"], source)
    _let_go(app, about["to"], servers[0].table, force=force)
    _at_each(app, source, lambda session: view.drop(session, servers[0].table.uuid, shown))
    return {"view": about["view"], "dropped": True, "cold": ids}


def _let_go(app: App, to: str, table: TableInfo, *, force: bool) -> None:
    """Remove the tag. With `force`, a lake that is not there any more keeps no view."""
    from calve.iceberg.kept_head import forget_head, tag_of_view

    try:
        address = parse_table(to, app.config)
        forget_head(app.catalog(address.catalog), address.identifier, tag_of_view(table.uuid))
    except CalveError:
        if not force:
            raise


def _at_each(app: App, source: str, do: Callable[[Session], T]) -> list[T]:
    """What it gives at each server, one after the other. Not a generator: one that an error leaves unfinished holds
    its source until it is collected."""
    found = []
    for visit in app.source(source).visits():
        with visit as session:
            found.append(do(session))
    return found


def _server(session: Session, name: TableName) -> TierServer:
    table = session.describe(name.database, name.table)
    if not table.uuid:
        raise RefusedError(
            f"table {table} has no uuid, by which its view would be kept",
            code="no_uuid",
            hint="move it into a database of the engine Atomic",
        )
    residents: Mapping[str, Resident] = {}
    about: Json = {}
    comment = residency.comment_of(session, table.uuid)
    if comment is not None:
        residents = residency.read(session, table.uuid)
        with suppress(DamagedError):  # whose view nobody can tell: as if there were none
            about = residency.about(table.uuid, comment)
    found = tuple(one for one in session.partitions(table) if one.rows)
    return TierServer(table=table, partitions=found, residents=residents, about=about)


def _known(servers: Sequence[TierServer], name: TableName) -> Json:
    for server in servers:
        if server.about:
            return server.about
    raise NotFoundError(
        f"table {name} has no view",
        code="no_view",
        hint="make one: calve view TABLE --to DEST --as DATABASE.NAME",
    )


def _view_name(app: App, text: str, source: str) -> TableName:
    found = app.table(text)
    if found.source not in (None, source):
        raise UsageError(
            f"the view {text!r} is at another source than its table", code="view_name", hint="omit the source"
        )
    if found.database in ("system", residency.DATABASE) or found.database.lower() == "information_schema":
        raise UsageError(f"no view can be made in database {found.database}", code="view_name")
    return TableName(source=None, database=found.database, table=found.table)


def _about(name: TableName, lake: Lake, shown: TableName, exclude: Sequence[str]) -> str:
    return json.dumps(
        {
            "table": str(TableName(source=None, database=name.database, table=name.table)),
            "view": str(shown),
            "to": str(lake.address),
            "metadata": lake.metadata,
            "exclude": sorted(exclude),
        }
    )


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
            f"the metadata of {address} is not in the table's own folder, so ClickHouse cannot be told which to read",
            code="metadata_elsewhere",
            hint="remove the table's property write.metadata.path",
        )
    return metadata.removeprefix(f"{location}/")


def _held(app: App, lake: Lake, table: TableInfo) -> Lake:
    """With a tag on the head that was looked at, which keeps its files while the view stands."""
    from calve.iceberg.kept_head import keep_head, tag_of_view

    address = lake.address
    # If we die here, the tag is ahead of what the view reads until the next try: its files may expire, as before.
    found = keep_head(app.catalog(address.catalog), address.identifier, tag_of_view(table.uuid))
    if str(found.metadata.current_snapshot_id) != lake.head:
        raise TemporaryError(f"{address} was written to meanwhile", code="head_moved", hint="run it again")
    return replace(lake, metadata=lake_metadata(address, found))


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


def _refuse(
    servers: Sequence[TierServer], lake: Lake, shown: TableName, cold: Sequence[str], hot: Sequence[str]
) -> None:
    table = servers[0].table
    both = sorted(set(cold) & set(hot))
    if both:
        raise UsageError(f"partition {both[0]} cannot be both --cold and --hot", code="view_partitions")
    if len({server.table.uuid for server in servers}) > 1:
        raise RefusedError(
            f"the servers of source {table.source} have different tables {table}",
            code="replicas",
            hint="give each server a source of its own, or make the table with one uuid on all of them",
        )
    if not table.partition_key:
        raise RefusedError(f"table {table} has no partitions", code="unpartitioned")
    known = next((server.about for server in servers if server.about), None)
    if known and known["view"] != str(shown):
        raise RefusedError(
            f"table {table} has the view {known['view']} already",
            code="view_exists",
            hint=f"drop it first: calve view {table} --drop --force",
        )
    strangers = {one.input[0] for one in lake.exports} - {table.identity, ""}
    if strangers:
        raise RefusedError(
            f"{lake.address} holds rows of other tables than {table}: they would be shown as its own",
            code="other_identity",
            hint="export each table to one of its own",
        )


def _wanted(
    app: App, servers: Sequence[TierServer], lake: Lake, cold: Sequence[str], hot: Sequence[str]
) -> Wanted:
    """What was cold stays so, and what the table lost joins it. The rest as asked, if that hides no row."""
    table = servers[0].table
    before = residency.newest(server.residents for server in servers)
    here = {one.id: one for server in servers for one in server.partitions}
    listed, gone = compared(app, table.identity, list(here.values()), lake.address)
    exports = {one.partition.id: one for one in listed}
    left = {one.input[1]: one for one in gone}
    released = {one.input[1] for one in lake.exports if one.released}
    for id in cold:
        stands = exports[id].exported if id in exports else Exported.GONE if id in left else Exported.NO
        if stands in _REASONS:
            raise RefusedError(
                f"partition {id} of {table} cannot be read from {lake.address}: {_REASONS[stands]}",
                code="not_exported",
                hint=f"calve export '{table}' --partition {id} --to {lake.address}",
            )
    for id in hot:
        if id in released or id not in here:
            raise RefusedError(
                f"partition {id} of {table} cannot be read from the table: its rows are not there",
                code="not_in_table",
            )
    was = {id for id, one in before.items() if one.cold}
    ids = (was | left.keys() | released | set(cold)) - set(hot)
    earlier = {**{id: one.earlier for id, one in exports.items()}, **left}
    lost = sorted(id for id in ids if (one := earlier.get(id)) is None or one.missing)
    if lost:
        raise RefusedError(
            f"partition {lost[0]} of {table} is read from {lake.address}, which no longer has it",
            code="no_longer_there",
            hint=f"calve export '{table}' --partition {lost[0]} --to {lake.address} --force, if the table has it",
        )
    key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
    return Wanted(
        cold={id: _resident(id, key, here.get(id)) for id in ids},
        rows={id: one.rows for id in ids if (one := earlier[id]) is not None},
        added=tuple(ids - was),
        returned=tuple(was & set(hot)),
        late={
            id: here[id].rows for id in ids & here.keys() if exports[id].exported is not Exported.UNCHANGED
        },
    )


_REASONS: Mapping[Exported | None, str] = {
    Exported.NO: "it is not exported there",
    Exported.CHANGED: "it has changed since its export",
    Exported.MISSING: "its export is no longer there",
}


def _resident(id: str, key: object, partition: PartitionInfo | None) -> Resident:
    bounds = None
    if isinstance(key, TimeKey):
        bounds = key.bounds(partition.value if partition is not None else partition_value(id, key))
    if bounds is None:
        return Resident(id=id, cold=True)
    return Resident(id=id, cold=True, lower=bounds.lower, upper=bounds.upper)


def partition_value(id: str, key: object) -> str:
    """The value that ClickHouse made an id of, where the table has it no longer. Other ids have no bounds."""
    if not isinstance(key, TimeKey):
        return id
    if len(id) == 8 and id.isdigit() and key.unit in (Unit.WEEK, Unit.MONTH, Unit.QUARTER, Unit.YEAR):
        return f"{id[:4]}-{id[4:6]}-{id[6:]}"  # the first day
    if len(id) in (9, 10) and id.isdigit() and key.zone:
        local = datetime.fromtimestamp(int(id), UTC).astimezone(zone_of(key.zone))
        return local.strftime("%Y-%m-%d %H:%M:%S")
    return id


def _says(before: Resident | None, one: Resident) -> bool:
    if before is None:
        return False
    return (before.cold, before.lower, before.upper) == (one.cold, one.lower, one.upper)


def _prepared(
    session: Session,
    servers: Sequence[TierServer],
    lake: Lake,
    shown: TableName,
    wanted: Wanted,
    exclude: Sequence[str],
) -> view.ViewText:
    """Everything that can be wrong at one server, before anything is changed there that a view reads."""
    table = servers[0].table
    if view.owner(session, shown) not in (None, table.uuid):
        raise RefusedError(
            f"{shown} exists, and is not the view of {table}",
            code="view_name_taken",
            hint="give another name with --as",
        )
    obstacles.refuse_row_policies(session, table, view.cold_table(table.uuid))
    trial = view.trial_table(table.uuid)
    key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
    view.pin(session, table, trial, lake.engine, lake.metadata)
    try:
        text = view.compose(
            session,
            table,
            shown,
            view.columns_of(session, trial),
            exclude=exclude,
            time_column=key.column if isinstance(key, TimeKey) else "",
        )
        for one in [*servers[0].partitions[:1], *servers[0].partitions[1:][-1:]]:
            view.check_key(session, text, one.id)
        if wanted.cold:
            _compare(session.rows(text.counts(list(wanted.cold.values())), what="counting"), wanted, lake)
    finally:
        # If we die here, a table that nobody reads is left: the next try replaces it.
        session.execute(f"DROP TABLE IF EXISTS {trial.sql}", what=f"the trial of {table}")
    return text


def _compare(rows: Sequence[Mapping[str, Any]], wanted: Wanted, lake: Lake) -> None:
    found = {row["id"]: row["rows"] for row in rows}
    for id, expected in sorted(wanted.rows.items()):
        if found.get(id, 0) != expected:
            raise RefusedError(
                f"ClickHouse finds {found.get(id, 0)} rows of partition {id} in {lake.address},"
                f" where {expected} were exported",
                code="cold_differs",
                hint="calve verify checks whether the lake has them; others may write to that table too",
            )


def _set_up(
    session: Session, text: view.ViewText, lake: Lake, about: str, state: Mapping[str, Resident]
) -> None:
    """What the view reads: the set after the state that has its rows."""
    table = text.table
    residency.create(session, table.uuid, about)
    view.pin(session, table, view.cold_table(table.uuid), lake.engine, lake.metadata)
    residency.put(session, table.uuid, state.values())


def _refuse_released(app: App, lake: Lake) -> None:
    """Between the set and the view. A release marks its partition first, then looks for a set, and then moves: so it
    finds this set, or its mark is found here before anybody reads the view."""
    found = app.destination(lake.address).find()
    now = {one.input for one in found.exports() if one.released} if found is not None else set()
    if more := sorted(now - {one.input for one in lake.exports if one.released}):
        raise TemporaryError(
            f"partition {more[0][1]} was released meanwhile", code="released_meanwhile", hint="run it again"
        )


def _placed(session: Session, text: view.ViewText) -> list[residency.OlderQuery]:
    # If we die here, the view is as it was, or there is none: the next try makes it.
    session.execute(text.create(), what=f"view {text.view}")
    return residency.older_queries(session, residency.clock(session))


def _grants(table: TableInfo, shown: TableName) -> list[str]:
    """What a reader needs: the view reads with the rights of the user who queries it."""
    needed = (shown, table.full_name, view.cold_table(table.uuid), residency.residency_table(table.uuid))
    return [f"GRANT SELECT ON {one.sql} TO reader" for one in needed]
