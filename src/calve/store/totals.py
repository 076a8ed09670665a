"""Counts and ages over all rows, for metrics and the first page of a dashboard. One statement each."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, select

from calve.model.access import Latest, Tally, Totals
from calve.model.errors import Outcome
from calve.model.states import PinState, ProcessState
from calve.store import rows
from calve.store.database import from_us, time_from_us
from calve.store.tables import notices, pins, processes, proofs

_HELD = rows.names(state for state in PinState if state is not PinState.RELEASED)
_ENDS = {ProcessState.COMPLETED.value: "completed_at", ProcessState.FAILED.value: "failed_at"}
_WORK = (processes.c.kind, processes.c.source, processes.c.destination)


def load_totals(connection: Connection, now: datetime) -> Totals:
    work = connection.execute(work_statement()).all()
    running, waiting = connection.execute(live_tasks_statement()).one()
    held, oldest_pin_at = connection.execute(held_pins_statement()).one()
    return Totals(
        at=now,
        tallies=_tallies(work),
        tasks_running=int(running or 0),  # PostgreSQL adds whole numbers up to decimals
        tasks_waiting=int(waiting or 0),
        unknown_outcomes=connection.execute(unknown_statement()).scalar_one(),
        pins_held=held,
        oldest_pin_at=from_us(oldest_pin_at),
        notices_waiting=connection.execute(waiting_notices_statement()).scalar_one(),
        latest=_latest(work, connection.execute(proven_statement())),
    )


def work_statement() -> Select[Any]:
    """The one that reads every process: 0.1 s of CPU for 100,000, so answers are kept for a while."""
    c = processes.c
    counted = (func.count(), func.min(c.created_at), func.max(c.finished_at))
    return select(*_WORK, c.state, *counted).group_by(*_WORK, c.state)


def live_tasks_statement() -> Select[Any]:
    c = processes.c
    left = c.tasks_total - c.tasks_done - c.tasks_failed - c.tasks_running
    return select(func.sum(c.tasks_running), func.sum(left)).where(c.finished_at.is_(None))


def unknown_statement() -> Select[Any]:
    """Ended processes that wait for a look at what they sent."""
    unknown = processes.c.error.contains(f'"outcome": "{Outcome.UNKNOWN.value}"')
    return select(func.count(processes.c.seq)).where(processes.c.cleanup_at.is_not(None), unknown)


def held_pins_statement() -> Select[Any, Any]:
    return select(func.count(pins.c.seq), func.min(pins.c.created_at)).where(pins.c.state.in_(_HELD))


def waiting_notices_statement() -> Select[Any]:
    return select(func.count(notices.c.seq)).where(notices.c.ended_at.is_(None))


def proven_statement() -> Select[Any]:
    return (
        select(*_WORK, func.max(proofs.c.made_at))
        .join(proofs, proofs.c.process_id == processes.c.id)
        .where(proofs.c.ok.is_(True))
        .group_by(*_WORK)
    )


def _tallies(work: Iterable[Any]) -> tuple[Tally, ...]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, _, _, state, count, oldest, _ in work:
        earlier, known = found.get((kind, state), (0, oldest))
        found[kind, state] = earlier + count, min(known, oldest)
    return tuple(
        Tally(kind=kind, state=ProcessState(state), count=count, oldest_at=time_from_us(oldest))
        for (kind, state), (count, oldest) in sorted(found.items())
    )


def _latest(work: Iterable[Any], proven: Iterable[Any]) -> tuple[Latest, ...]:
    found: dict[tuple[str, ...], dict[str, datetime]] = {}
    for *what, state, _, _, ended in work:
        if state in _ENDS:
            found.setdefault(tuple(what), {})[_ENDS[state]] = time_from_us(ended)
    for *what, at in proven:
        found.setdefault(tuple(what), {})["proven_at"] = time_from_us(at)
    newest = sorted(found.items(), key=lambda item: (max(item[1].values()), item[0]), reverse=True)
    return tuple(
        Latest(kind=kind, source=source, destination=destination, **times)
        for (kind, source, destination), times in newest
    )
