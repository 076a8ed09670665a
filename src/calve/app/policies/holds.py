"""Holds: somebody wants the rows of a table, or of one partition, to stay.

A hold knows the table by name, and by its uuid and identity as the source gives them when it is made, so that neither a
new name nor another table under the old one gets around it. A table or partition that is not there is taken only if
insisted on: most are typing errors, and such a hold looks as if it protected something.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from calve.app import view
from calve.app.arguments import span
from calve.app.view import Json
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import id_among
from calve.model.access import Asked
from calve.model.errors import CalveError, NotFoundError, RefusedError, UsageError
from calve.model.process import GuardedTable
from calve.model.tier import Hold, HoldAdded, new_hold_id


def hold_add(
    app: App, table: str, partition: str, *, reason: str, until: str, force: bool, asked: Asked
) -> Json:
    if not reason.strip():
        raise UsageError("a hold needs a reason", code="missing_option", hint="--reason 'case 4711'")
    now = app.store.now()
    until_at = _until(until, now) if until else None
    name = app.table(table)
    source = name.source or app.config.default_source
    app.config.source(source)  # one that is not configured has no tables
    wanted = GuardedTable(identity="", uuid="", name=f"{source}:{name.database}.{name.table}")
    unmatched = ""
    try:
        wanted, partition = _at_source(app, source, name.database, name.table, wanted.name, partition)
    except CalveError as error:
        if not force:
            raise RefusedError(
                f"the hold would match nothing that exists now ({error.message}); nothing was changed",
                code="hold_unmatched",
                hint="fix the name, or give --force to hold it by name alone",
            ) from error
        unmatched = error.message
    hold = Hold(
        id=new_hold_id(),
        name=wanted.name,
        identity=wanted.identity,
        uuid=wanted.uuid,
        partition=partition,
        who=asked.who,
        reason=reason,
        until_at=until_at,
    )
    # If we die here, the hold is there or not: `calve hold list` says which.
    return _added(app.registry.add_hold(hold, asked), unmatched)


def _at_source(
    app: App, source: str, database: str, table: str, name: str, partition: str
) -> tuple[GuardedTable, str]:
    """As the source knows them; a partition by its id or its value. One that left its table can be held in quarantine."""
    with app.source(source).visit() as session:
        info = session.describe(database, table)
        found = session.partitions(info) if partition else []
        by_value = {one.value: one.id for one in found}
        ids = {one.id for one in found} | {one.partition for one in app.registry.releases(info.identity)}
        wanted = id_among(session, info, partition, ids) or by_value.get(partition, "") if partition else ""
    if partition and not wanted:
        raise NotFoundError(
            f"{name} has no partition {partition}", code="no_partition", hint=f"calve partitions {name}"
        )
    partition = wanted
    return GuardedTable(identity=info.identity, uuid=info.uuid, name=name), partition


def _until(text: str, now: datetime) -> datetime:
    """A span from now, or a time; both by the store's clock, which also ends the hold."""
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        at = now + span(text, what="time", code="bad_until")
    if at <= now:
        raise UsageError(
            f"{text!r} is in the past", code="bad_until", hint="give a later one: 90d, 2027-01-31"
        )
    return at


def _added(added: HoldAdded, unmatched: str) -> Json:
    return hold_json(added.hold, standing=True) | {
        "unmatched": unmatched,
        "announced": [
            {
                "process": one.process_id,
                "step": one.step,
                "partition": one.partition,
                "at": view.time_json(one.made_at),
            }
            for one in added.open
        ],
    }


def hold_json(hold: Hold, *, standing: bool) -> Json:
    return view.plain_json(hold) | {"standing": standing}


def hold_list(app: App, table: str = "", *, every: bool = False) -> list[Json]:
    """Of one table by its name, or all; oldest first."""
    now = app.store.now()
    wanted = _name(app, table)
    return [
        hold_json(one, standing=one.stands(now))
        for one in app.registry.holds(every=every)
        if wanted in ("", one.name)
    ]


def _name(app: App, table: str) -> str:
    if not table:
        return ""
    name = app.table(table)
    return f"{name.source or app.config.default_source}:{name.database}.{name.table}"


def hold_release(app: App, id: str, asked: Asked) -> Json:
    return hold_json(app.registry.release_hold(id, asked), standing=False)


def matching(holds: Sequence[Hold], table: GuardedTable, partition: str) -> list[Hold]:
    return [one for one in holds if one.matches(table, partition)]
