"""Cards about processes, workers and what is down or stopped."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from calve import __version__
from calve.app.commands import command
from calve.app.pages.cards.card import FAILURES, SHOWN_IDS, Card, Glance
from calve.app.pages.cards.policies import MOVES
from calve.control.budget import concerns, halting
from calve.control.why import why
from calve.model.access import NAMED_HALTS
from calve.model.process import Process, ProcessId
from calve.model.reach import reaches
from calve.model.states import ProcessState
from calve.model.tier import POLICY_HALT

_PIN_HOURS = 6.0
_STUCK_HOURS = 1.0
_HALT_HOURS = 24.0


def unknown(look: Glance) -> Iterator[Card]:
    for one in look.unknown:
        if one.kind in MOVES:
            continue  # see `policies.halfway_cards`
        yield Card(
            kind="unknown",
            title=f"The {one.kind} {one.id} to {one.destination} may or may not have been published",
            why=why(look.reader, one),
            since=one.finished_at,
            ids=(one.id,),
            code=one.error.code if one.error else "",
            source=one.source,
            destination=one.destination,
            command=command("why", ids=[one.id]),
            href=("sheet", {"id": one.id}),
        )


def damaged(look: Glance) -> Iterator[Card]:
    for one in look.live:
        if one.damaged:
            yield Card(
                kind="damaged",
                title=f"The row of process {one.id} cannot be read",
                why=why(look.reader, one),
                since=one.created_at,
                ids=(one.id,),
                command=command("doctor"),
                href=("sheet", {"id": one.id}),
            )


def failed(look: Glance) -> Iterator[Card]:
    groups: dict[tuple[str, ...], list[Process]] = {}
    unknown = {one.id for one in look.unknown}
    for one in look.failed:
        if one.id not in unknown:
            code = one.error.code if one.error else ""
            groups.setdefault((one.kind, one.source, one.destination, code), []).append(one)
    for (kind, source, destination, code), found in groups.items():
        newest = found[0]
        what = f"{len(found)} {kind}s" if len(found) > 1 else f"The {kind} {newest.id}"
        ids = tuple(one.id for one in found)
        error = newest.error
        yield Card(
            kind="failed",
            title=f"{what} of {source or destination} failed: {code}",
            why=f"{error.message}{f' ({error.hint})' if error.hint else ''}" if error else "",
            since=newest.finished_at,
            ids=ids,
            count=len(found),
            code=code,
            source=source,
            destination=destination,
            action="retry",
            arguments={"ids": list(ids[:SHOWN_IDS])},
            command=command("retry", ids=ids[:SHOWN_IDS]),
            href=("sheet", {"id": newest.id}),
        )


def down(look: Glance) -> Iterator[Card]:
    for one in look.reader.breakers():
        waiting = [process.id for process in look.live if concerns(one, process)]
        yield Card(
            kind="down",
            title=f"{one.service} is down",
            why=f"{one.reason}; {_wait(len(waiting))} for it",
            since=one.opened_at,
            ids=tuple(waiting),
            count=len(waiting),
            command=command("doctor"),
            href=("system", {}),
        )


def workers(look: Glance) -> Iterator[Card]:
    held: dict[str, list[ProcessId]] = {}
    for process in look.live:
        if process.owner:
            held.setdefault(process.owner, []).append(process.id)
    for worker in look.reader.workers():
        if worker not in look.alive and worker.id in held:
            yield Card(
                kind="silent",
                title=f"Worker {worker.id} fell silent",
                why=f"another worker takes over what it holds: {', '.join(held[worker.id][:3])}",
                since=worker.heartbeat_at,
                ids=tuple(held[worker.id]),
                count=len(held[worker.id]),
                command="calve worker",
                href=("system", {}),
            )
    nobodys = [one for one in look.live if not any(reaches(worker.reach, one) for worker in look.alive)]
    if nobodys:
        one = min(nobodys, key=lambda process: process.created_at)
        title = "No worker is running" if not look.alive else "No worker reaches some of the work"
        yield Card(
            kind="no_worker",
            title=f"{title}, and {_wait(len(nobodys))}",
            why=why(look.reader, one, tasks=False),
            since=one.created_at,
            ids=tuple(each.id for each in nobodys),
            count=len(nobodys),
            command="calve worker",
            href=("page", {"view": "waiting"}),
        )


def stuck(look: Glance) -> Iterator[Card]:
    """Live for long, with nothing running, and none of the other cards says why."""
    old = look.now - timedelta(hours=_STUCK_HOURS)
    for one in look.live:
        excused = (
            one.tasks.running
            or one.damaged
            or one.state is ProcessState.PUBLISHING
            or halting(one, look.reader.halts())
            or any(concerns(breaker, one) for breaker in look.reader.breakers())
            or not any(reaches(worker.reach, one) for worker in look.alive)
        )
        if one.created_at < old and not excused:
            yield Card(
                kind="late",
                title=f"The {one.kind} {one.id} of {one.source or one.destination} does not move",
                why=why(look.reader, one, tasks=False),
                since=one.created_at,
                ids=(one.id,),
                source=one.source,
                destination=one.destination,
                action="cancel",
                arguments={"ids": [one.id]},
                command=command("why", ids=[one.id]),
                href=("sheet", {"id": one.id}),
            )


def pins(look: Glance) -> Iterator[Card]:
    by: dict[ProcessId, list[datetime]] = {}
    for pin in look.app.registry.old_pins(look.now - timedelta(hours=_PIN_HOURS), FAILURES):
        by.setdefault(pin.process_id, []).append(pin.created_at or look.now)
    for process_id, times in by.items():
        yield Card(
            kind="held",
            title=f"Process {process_id} holds parts of its source frozen",
            why="parts that are frozen use disk space until they are released",
            since=min(times),
            ids=(process_id,),
            count=len(times),
            command=command("why", ids=[process_id]),
            href=("sheet", {"id": process_id}),
        )


def halts(look: Glance) -> Iterator[Card]:
    for one in look.reader.halts():
        if one.made_at and look.now - one.made_at > timedelta(hours=_HALT_HOURS):
            named = one.kind in NAMED_HALTS
            given = {"name": one.source} if named else {"table": one.source, "kind": one.kind}
            resume, said = f"{one.kind}_resume" if named else "lift", str(one)
            of = ("policy", given) if one.kind == POLICY_HALT and one.source else ("vault", {})
            yield Card(
                kind="halted",
                title=f"{said[0].upper()}{said[1:]}",
                why=f"by {one.who}{f': {one.reason}' if one.reason else ''}",
                since=one.made_at,
                source="" if named else one.source,
                action=resume,
                arguments=given,
                command=command(resume, **given),
                href=of if named else ("system", {}),
            )


def versions(look: Glance) -> Iterator[Card]:
    others = sorted({one.version or "0.1.0" for one in look.alive} - {__version__})
    if others:
        yield Card(
            kind="versions",
            title=f"Workers of version {', '.join(others)} run beside version {__version__}",
            why="older workers do not honour halts and record no phases",
            since=None,
            href=("system", {}),
        )


def _wait(count: int) -> str:
    return "1 process waits" if count == 1 else f"{count} processes wait"
