"""A view over a table and its lake, made, shown and dropped at every server of the source.

Nothing here removes a row from anywhere. A partition is read from the lake only if its export is there whole: the rows
that each server finds in the lake, by the way that the view reads it, are counted before anything is changed.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

from calve.app.destination import parse_table
from calve.app.policies.lake import Lake, keep_lake, lake_as_it_is, let_go, refuse_released
from calve.app.policies.residents import TierServer, Wanted, choose
from calve.app.view import Json
from calve.app.wiring import App
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import TableName
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import obstacles, residency, view
from calve.clickhouse.tier.residency import Resident
from calve.model.errors import DamagedError, NotFoundError, RefusedError, UsageError
from calve.policy.bounds import TimeKey, time_key

T = TypeVar("T")


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
    wanted = choose(app, servers, lake, cold, hot)
    exclude = exclude or next((one.about.get("exclude", ()) for one in servers if one.about), ())
    seen = lake
    texts = _at_each(app, source, lambda session: _prepared(session, servers, seen, shown, wanted, exclude))
    lake = keep_lake(app, lake, servers[0].table)
    before = residency.newest(server.residents for server in servers)
    flips = [*wanted.cold.values(), *(Resident(id=id, cold=False) for id in wanted.returned)]
    changed = [one for one in flips if not _says(before.get(one.id), one)]
    stamped = residency.stamped(changed, before, secrets.token_hex(8))
    state = {**before, **{one.id: one for one in stamped}}
    about, set_up, left = _about(name, lake, shown, exclude), iter(texts), iter(texts)
    _at_each(app, source, lambda session: _set_up(session, next(set_up), lake, about, state))
    refuse_released(app, lake)
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
            f"view {about['view']} reads {len(ids)} partition{'s' * (len(ids) > 1)} from {about['to']}"
            f" ({', '.join(ids[:5])}{', …' if len(ids) > 5 else ''})",
            code="view_in_use",
            hint="--force drops it anyway; their rows stay in the lake",
        )
    shown = _view_name(app, about["view"], source)
    let_go(app, about["to"], servers[0].table, force=force)
    _at_each(app, source, lambda session: view.drop(session, servers[0].table.uuid, shown))
    return {"view": about["view"], "dropped": True, "cold": ids}


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


def _placed(session: Session, text: view.ViewText) -> list[residency.OlderQuery]:
    # If we die here, the view is as it was, or there is none: the next try makes it.
    session.execute(text.create(), what=f"view {text.view}")
    return residency.older_queries(session, residency.clock(session))


def _grants(table: TableInfo, shown: TableName) -> list[str]:
    """What a reader needs: the view reads with the rights of the user who queries it."""
    needed = (shown, table.full_name, view.cold_table(table.uuid), residency.residency_table(table.uuid))
    return [f"GRANT SELECT ON {one.sql} TO reader" for one in needed]
