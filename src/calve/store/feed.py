"""The feed: all events in one order that has no gap and never starts again.

`events.number` cannot be that order: PostgreSQL commits numbers out of turn, and SQLite gives a number again
once the newest event is deleted. So a committed event gets its `position` later, from the reader of the
feed. Writers know nothing of it and never wait for one another here.
"""

from typing import Any

from sqlalchemy import Connection, Select, bindparam, literal_column, select, update

from calve.model.access import FeedState
from calve.model.process import Event
from calve.store import rows
from calve.store.reader import SqlReader
from calve.store.tables import events, store_state

_NUMBER = (
    update(events)
    .where(events.c.number == bindparam("at_number"))
    .values(position=bindparam("given_position"))
)


class SqlFeed(SqlReader):
    def number_events(self, limit: int = 1000) -> int:
        # Looked for without a lock first: a quiet store is not written.
        if not self._database.read(lambda connection: connection.execute(unnumbered_statement(1)).first()):
            return 0
        # If we die here, all of the piece is numbered or none of it.
        return self._database.write(lambda connection: _number(connection, limit))

    def feed(self, after: int, limit: int) -> list[Event]:
        statement = feed_statement(after, limit)
        return self._database.read(
            lambda connection: [rows.event(row) for row in connection.execute(statement).mappings()]
        )

    def feed_state(self) -> FeedState:
        row = self._database.read(lambda connection: connection.execute(select(store_state)).mappings().one())
        return FeedState(
            store_id=row["id"],
            last_position=row["last_position"],
            forgotten_position=row["forgotten_position"],
        )

    def event_at(self, position: int) -> Event | None:
        # One that is not the position's own was asked for beyond the end, or of a forgotten event.
        return next((event for event in self.feed(position - 1, 1) if event.position == position), None)


def _number(connection: Connection, limit: int) -> int:
    """One numberer at a time, until its commit: a reader that sees a position can see all before it. The
    events are looked at after the lock is held, by a statement of their own and so in a new snapshot."""
    hold_state(connection)
    last = connection.execute(select(store_state.c.last_position)).scalar_one()
    numbers = connection.execute(unnumbered_statement(limit)).scalars().all()
    if numbers:
        given = [
            {"at_number": number, "given_position": last + nth} for nth, number in enumerate(numbers, start=1)
        ]
        connection.execute(_NUMBER, given)
        connection.execute(update(store_state).values(last_position=last + len(numbers)))
    return len(numbers)


def unnumbered_statement(limit: int) -> Select[Any]:
    return select(events.c.number).where(events.c.position.is_(None)).order_by(events.c.number).limit(limit)


def feed_statement(after: int, limit: int) -> Select[Any]:
    # The second condition is the partial index's own, in its own words.
    numbered = events.c.position > literal_column("0")
    return select(events).where(events.c.position > after, numbered).order_by(events.c.position).limit(limit)


def forgotten(connection: Connection, positions: list[int | None]) -> None:
    """Events at these positions are deleted by this transaction, which holds the state's row. One that
    never got a position cannot be named to a reader: a position is spent on it, and every cursor starts anew."""
    state = connection.execute(select(store_state)).one()
    last = state.last_position + (None in positions)
    gone = max(state.forgotten_position, *(position or 0 for position in positions))
    gone = last if None in positions else gone
    connection.execute(update(store_state).values(last_position=last, forgotten_position=gone))


def hold_state(connection: Connection) -> None:
    """Until the transaction ends nobody else numbers events or deletes them."""
    connection.execute(select(store_state.c.single).with_for_update()).all()
