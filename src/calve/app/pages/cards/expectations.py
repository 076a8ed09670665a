"""Cards about what `[expect]` asks for, and did not happen."""

from collections.abc import Iterator
from datetime import timedelta

from calve.app.commands import command
from calve.app.expectations import Overdue, overdue
from calve.app.pages.cards.card import Card, Glance
from calve.control.why import why
from calve.model.process import Process, ProcessQuery
from calve.model.states import ProcessState

_MOST_LATE = 20
_DONE = {"export": "exported", "backup": "backed up", "restore": "restored", "optimize": "optimized"}


def late(look: Glance) -> Iterator[Card]:
    """What `[expect]` asks for, and did not happen. Counts in memory say what may be late; the store has the last
    word."""
    latest = look.app.overview.counts().totals.latest if look.app.config.expect else ()
    for one in list(overdue(look.app.config.expect, latest, look.now))[:_MOST_LATE]:
        wanted, done = one.expectation, _DONE[one.expectation.kind]
        ended = _last_completed(look, one)
        if not one.unproven and ended and ended.finished_at and look.now - ended.finished_at <= wanted.within:
            continue
        live = [each for each in look.live if (each.kind, each.source) == (wanted.kind, one.table)]
        if one.unproven:
            title = f"No {wanted.kind} of {one.table} was proven lately"
            reason = f"{wanted.name} expects a proof within {_span(wanted.proven_within or wanted.within)}"
        elif one.completed_at:
            title = f"{one.table} was not {done} for more than {_span(wanted.within)}"
            reason = why(look.reader, live[0], tasks=False) if live else "nothing is queued"
        else:
            title = f"{one.table} was never {done}"
            reason = why(look.reader, live[0], tasks=False) if live else "nothing is queued"
        yield Card(
            kind="unproven" if one.unproven else "overdue",
            title=title,
            why=reason,
            since=one.proven_at if one.unproven else one.completed_at,
            ids=tuple(each.id for each in live),
            source=one.table,
            destination=one.destination if wanted.kind != "backup" else "",
            command=_remedy(one, ended),
            href=("table", {"source": one.table, "to": one.destination})
            if wanted.kind == "export" and one.completed_at
            else None,
            work=wanted.kind,
            state=f"{wanted.name} {one.proven_at if one.unproven else one.completed_at}",
        )


def _last_completed(look: Glance, one: Overdue) -> Process | None:
    kind = one.expectation.kind
    query = ProcessQuery(
        kind=kind,
        states=frozenset({ProcessState.COMPLETED}),
        source="" if kind == "restore" else one.table,
        destination=one.table if kind == "restore" else "",
        limit=1,
    )
    return next(iter(look.app.store.processes(query)), None)


def _remedy(one: Overdue, ended: Process | None) -> str:
    match one.expectation.kind:
        case "backup" if one.unproven and ended:
            return command("backup_verify", name=ended.destination.rpartition("/")[2])
        case "backup":
            return command("backup_create", name="NAME", tables=[one.table.partition(":")[2]])
        case _ if one.unproven and ended:
            return command("verify", ids=[ended.id])
        case "export":
            return command("export_preview", table=one.table, to=one.destination or "DEST", all=True)
        case "optimize":
            return command("optimize", table=one.table)
    return ""


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    number, unit = (hours / 24, "day") if hours >= 48 and hours % 24 == 0 else (hours, "hour")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"
