"""Counts and ages over all rows, for metrics and pages. One statement each.

What ended an hour ago does not change: a program reads it once in an hour, and else only what is newer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select

from calve.model.access import Latest, Tally, Totals
from calve.model.errors import Outcome
from calve.model.states import PinState, ProcessState
from calve.store import rows
from calve.store.database import from_us, time_from_us
from calve.store.tables import notices, pins, processes, proofs

_HELD = rows.names(state for state in PinState if state is not PinState.RELEASED)
_ENDS = {ProcessState.COMPLETED.value: "completed_at", ProcessState.FAILED.value: "failed_at"}
_WORK = (processes.c.kind, processes.c.source, processes.c.destination)


_HOUR_US = 3_600_000_000


@dataclass(frozen=True, kw_only=True)
class EndedWork:
    """Rows of `ended_statement`. `newest`: the last process that there was; fewer in a store that was put back."""

    rows: Sequence[Any]
    read_at: int
    newest: int

    @property
    def upto(self) -> int:
        """Above any time that a transaction takes: no process ends earlier than this any more."""
        return self.read_at - _HOUR_US


def ended_work(connection: Connection, now_us: int, known: EndedWork | None) -> EndedWork:
    newest = connection.execute(select(func.max(processes.c.seq))).scalar() or 0
    if known and known.newest <= newest and 0 <= now_us - known.read_at < _HOUR_US:
        return known
    rows = connection.execute(ended_statement(now_us - _HOUR_US)).all()
    return EndedWork(rows=rows, read_at=now_us, newest=newest)


def load_totals(connection: Connection, now_us: int, ended: EndedWork) -> Totals:
    recent = connection.execute(recent_statement(ended.upto)).all()
    work = [*ended.rows, *recent, *connection.execute(live_statement())]
    running, waiting = connection.execute(live_tasks_statement()).one()
    held, oldest_pin_at = connection.execute(held_pins_statement()).one()
    return Totals(
        at=time_from_us(now_us),
        tallies=_tallies(work),
        tasks_running=int(running or 0),  # PostgreSQL adds whole numbers up to decimals
        tasks_waiting=int(waiting or 0),
        unknown_outcomes=connection.execute(unknown_statement()).scalar_one(),
        pins_held=held,
        oldest_pin_at=from_us(oldest_pin_at),
        notices_waiting=connection.execute(waiting_notices_statement()).scalar_one(),
        latest=_latest(work, connection.execute(proven_statement())),
    )


def _work_statement(condition: ColumnElement[bool]) -> Select[Any]:
    c = processes.c
    counted = (func.count(), func.min(c.created_at), func.max(c.finished_at))
    # Not by the bare column: its index has all processes in that order, and would be read from end to end.
    kind = c.kind.concat(literal("", literal_execute=True))
    return (
        select(kind, c.source, c.destination, c.state, *counted)
        .where(condition)
        .group_by(kind, c.source, c.destination, c.state)
    )


def ended_statement(before_us: int) -> Select[Any]:
    """The one that reads every process: 0.1 s of CPU for 100,000."""
    return _work_statement(processes.c.finished_at < before_us)


def recent_statement(since_us: int) -> Select[Any]:
    finished_at = processes.c.finished_at
    return _work_statement((finished_at >= since_us) & finished_at.is_not(None))  # the index's words


def live_statement() -> Select[Any]:
    return _work_statement(processes.c.finished_at.is_(None))


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
        if state in _ENDS:  # the rows of what is newer come later
            found.setdefault(tuple(what), {})[_ENDS[state]] = time_from_us(ended)
    for *what, at in proven:
        found.setdefault(tuple(what), {})["proven_at"] = time_from_us(at)
    newest = sorted(found.items(), key=lambda item: (max(item[1].values()), item[0]), reverse=True)
    return tuple(
        Latest(kind=kind, source=source, destination=destination, **times)
        for (kind, source, destination), times in newest
    )
