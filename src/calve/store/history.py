"""Forgetting what long-ended processes leave in the journal, a bounded piece at a time.

Events are walked by their number, oldest first, so that a call costs what it looks at and never a
scan; the caller keeps the place. An old event of a process that still lives is stepped over, not
waited for.
"""

from sqlalchemy import Connection, and_, delete, select

from calve.model.states import PinState
from calve.store.database import seconds_to_us
from calve.store.reader import SqlReader
from calve.store.rows import chunks
from calve.store.tables import events, locks, pins, processes

_DAY_SECONDS = 86_400.0


class History(SqlReader):
    def forget_history(self, *, days: float, after: int, limit: int) -> int:
        old, ended = self._database.read(lambda connection: self._look(connection, days, after, limit))
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


def _forget(connection: Connection, ended: list[str], after: int, upto: int) -> None:
    """A process that ended never lives again, so what was read without a lock still holds."""
    for some in chunks(ended):
        connection.execute(
            delete(events).where(
                events.c.number > after, events.c.number <= upto, events.c.process_id.in_(some)
            )
        )
        connection.execute(
            delete(pins).where(pins.c.process_id.in_(some), pins.c.state == PinState.RELEASED.value)
        )
        connection.execute(delete(locks).where(locks.c.process_id.in_(some), locks.c.freed_at.is_not(None)))
