"""What ended processes and old requests leave in the store, drained a bounded piece at a time.

Pins are claimed for a while, released by a worker that reaches their source, and recorded as released.

Events are walked by their number, oldest first, so that a call costs what it looks at and never a
scan; the caller keeps the place. An old event of a process that still lives is stepped over, not
waited for.
"""

from collections.abc import Sequence

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    or_,
    select,
    true,
    tuple_,
    update,
)

from calve.model.change import PIN_NOT_RELEASED, PIN_RELEASED, NewEvent
from calve.model.errors import ErrorInfo
from calve.model.process import Pin, ProcessId, WorkerId
from calve.model.reach import kinds_in, sources_in
from calve.model.refusals import illegal_transition, no_such_pin
from calve.model.states import PinState
from calve.store import rows, tables
from calve.store.database import seconds_to_us
from calve.store.feed import forgotten, hold_state
from calve.store.reader import SqlReader
from calve.store.rows import chunks, record
from calve.store.tables import events, locks, pins, processes

_DAY_SECONDS = 86_400.0
_KEPT_DAYS = 7.0  # ended notices and done actions
_SILENT_DAYS = 1.0  # servers
_OUTAGE_DAYS = 90.0
_UNSEEN_DAYS = 30.0  # sightings that nobody has looked for again


class SqlHistory(SqlReader):
    def forget_history(self, *, days: float, after: int, limit: int) -> int:
        old, ended = self._database.read(lambda connection: self._look(connection, days, after, limit))
        if ended and self._forget_attempts(ended, limit) == limit:
            return after or -1  # there may be more of them: the events stay, to come back to
        if ended:
            # if we die here, all of the piece is forgotten or none of it, and it is looked at again
            self._database.write(lambda connection: _forget(connection, ended, after, old[-1]))
        return old[-1] if len(old) == limit else 0

    def _look(
        self, connection: Connection, days: float, after: int, limit: int
    ) -> tuple[list[int], list[str]]:
        """Numbers of old events, and which of their processes are history."""
        before = self._database.clock - seconds_to_us(days * _DAY_SECONDS)
        next_events = (
            select(events.c.number, events.c.process_id, (events.c.at < before).label("is_old"))
            .where(events.c.number > after)
            .order_by(events.c.number)
            .limit(limit)
        )
        old = [row for row in connection.execute(next_events) if row.is_old]
        ended: list[str] = []
        for some in chunks(sorted({row.process_id for row in old})):
            is_history = and_(
                processes.c.id.in_(some),
                processes.c.finished_at < before,
                processes.c.cleanup_at.is_(None),
            )
            ended += connection.execute(select(processes.c.id).where(is_history)).scalars()
        return [row.number for row in old], ended

    def _forget_attempts(self, ended: list[str], limit: int) -> int:
        """A process may have very many."""
        of_them = tables.attempts.c.process_id.in_(ended)
        return self._forget(tables.attempts, of_them, limit)

    def forget_requests(self, *, hours: float, audit_days: float, limit: int) -> int:
        old = {
            tables.requests: (tables.requests.c.made_at, hours / 24),
            tables.notices: (tables.notices.c.ended_at, _KEPT_DAYS),
            tables.actions: (tables.actions.c.done_at, _KEPT_DAYS),
            tables.audit: (tables.audit.c.at, audit_days),
            tables.servers: (tables.servers.c.heartbeat_at, _SILENT_DAYS),
            tables.starts: (tables.starts.c.made_at, audit_days),
            tables.sessions: (tables.sessions.c.expires_at, 0.0),
            tables.outages: (tables.outages.c.closed_at, _OUTAGE_DAYS),
            tables.sightings: (tables.sightings.c.tried_at, _UNSEEN_DAYS),
        }
        # If we die here, some of it is gone and the rest goes later.
        return max(self._forget_old(table, at, days, limit) for table, (at, days) in old.items())

    def _forget_old(self, table: Table, at: Column[int], days: float, limit: int) -> int:
        before = self._database.clock - seconds_to_us(days * _DAY_SECONDS)
        return self._forget(table, at < before, limit)

    def _forget(self, table: Table, gone: ColumnElement[bool], limit: int) -> int:
        keys = list(table.primary_key.columns)
        old = select(*keys).where(gone).limit(limit)
        # Looked for without a lock first: most calls find nothing.
        if not self._database.read(lambda connection: connection.execute(old).first()):
            return 0
        forget = delete(table).where(tuple_(*keys).in_(old))
        return self._database.write(lambda connection: connection.execute(forget).rowcount)


def _forget(connection: Connection, ended: list[str], after: int, upto: int) -> None:
    """A process that ended never lives again, so what was read without a lock still holds."""
    hold_state(connection)
    positions: list[int | None] = []
    for some in chunks(ended):
        old = (events.c.number > after) & (events.c.number <= upto) & events.c.process_id.in_(some)
        positions += connection.execute(delete(events).where(old).returning(events.c.position)).scalars()
        connection.execute(
            delete(pins).where(pins.c.process_id.in_(some), pins.c.state == PinState.RELEASED.value)
        )
        connection.execute(delete(locks).where(locks.c.process_id.in_(some), locks.c.freed_at.is_not(None)))
    if positions:
        forgotten(connection, positions)


class Releases(SqlReader):
    def claim_releases(
        self, worker: WorkerId, reach: frozenset[str], *, limit: int, lease_seconds: float
    ) -> list[Pin]:
        del worker  # hidden from everybody for a while, its claimer too: a release may be made twice
        clock = self._database.clock
        sources = sorted(sources_in(reach))
        due = (
            select(pins.c.seq)
            .where(
                pins.c.state == PinState.RELEASING.value,
                or_(pins.c.not_before.is_(None), pins.c.not_before <= clock),
                pins.c.source.in_(sources),
                _of_known_kinds(reach),
            )
            .order_by(pins.c.seq)
            .limit(limit)
        )
        # Looked for without a lock first: most ticks find nothing, and then no worker waits.
        if not sources or not self._database.read(lambda connection: connection.execute(due).first()):
            return []
        hide = (
            update(pins)
            .where(pins.c.seq.in_(due.with_for_update(skip_locked=True)))
            .values(not_before=clock + seconds_to_us(lease_seconds))
            .returning(pins)
        )

        def work(connection: Connection) -> list[Pin]:
            claimed = sorted(connection.execute(hide).mappings(), key=lambda row: int(row["seq"]))
            return [rows.pin(row) for row in claimed]

        # If we die here, the pins show up again once they are no longer hidden.
        return self._database.write(work)

    def renew_releases(self, names: Sequence[str], lease_seconds: float) -> None:
        until = self._database.clock + seconds_to_us(lease_seconds)
        # A release that failed meanwhile may wait for longer than that already.
        hidden = (pins.c.state == PinState.RELEASING.value) & (pins.c.not_before < until)
        hide = update(pins).where(pins.c.name.in_(names), hidden).values(not_before=until)
        self._database.write(lambda connection: connection.execute(hide))

    def record_release(self, name: str, error: ErrorInfo | None, retry_seconds: float = 0.0) -> None:
        self._database.write(lambda connection: self._record(connection, name, error, retry_seconds))

    def _record(
        self, connection: Connection, name: str, error: ErrorInfo | None, retry_seconds: float
    ) -> None:
        row = connection.execute(select(pins).where(pins.c.name == name).with_for_update()).mappings().first()
        if row is None:
            raise no_such_pin(name)
        state = PinState(row["state"])
        if state is PinState.RELEASED:
            return
        process_id = ProcessId(row["process_id"])
        if state is not PinState.RELEASING:
            raise illegal_transition(process_id, f"pin {name!r} is {state}, not RELEASING")
        guarded = update(pins).where(pins.c.name == name, pins.c.state == PinState.RELEASING.value)
        if error is None:
            change = guarded.values(state=PinState.RELEASED.value, not_before=None, error=None)
            event = NewEvent(name=PIN_RELEASED, message=name)
        else:
            change = guarded.values(
                release_attempts=pins.c.release_attempts + 1,
                not_before=self._database.clock + seconds_to_us(retry_seconds),
                error=rows.dump_error(error),
            )
            event = NewEvent(name=PIN_NOT_RELEASED, message=f"{name}: {error.message}")
        connection.execute(change)
        record(connection, self._database.clock, [(process_id, event)])


def _of_known_kinds(reach: frozenset[str]) -> ColumnElement[bool]:
    """A program that does not know a kind cannot release its pins."""
    kinds = kinds_in(reach)
    if kinds is None:
        return true()
    known = select(processes.c.seq).where(
        processes.c.id == pins.c.process_id, processes.c.kind.in_(sorted(kinds))
    )
    return known.exists()
