"""Notices and actions: rows that several programs carry out, each claimed for a while and then recorded.

A target's position, its notices and its alarms move in one transaction, compared with the position that
was read: of two notifiers that read the same events one writes.
"""

import json
from collections.abc import Sequence

from sqlalchemy import Column, ColumnElement, Connection, delete, insert, or_, select, true, update

from calve.model.access import Action, ActionQuery, Alarm, Notice
from calve.model.process import ProcessId
from calve.model.refusals import no_such_action
from calve.store import rows, tables
from calve.store.database import seconds_to_us
from calve.store.feed import SqlFeed
from calve.store.registry import SqlRegistry
from calve.store.rows import Row, chunks, columns, plain


class Notices(SqlRegistry, SqlFeed):
    def follow_target(self, name: str) -> int:
        known = select(tables.targets.c.position).where(tables.targets.c.name == plain(name))

        def work(connection: Connection) -> int:
            position = connection.execute(known).scalar_one_or_none()
            if position is None:
                position = connection.execute(select(tables.store_state.c.last_position)).scalar_one()
                made = {"name": plain(name), "position": position, "seen_at": self._database.clock}
                connection.execute(insert(tables.targets).values(made))
            return int(position)

        found = self._database.read(lambda connection: connection.execute(known).scalar_one_or_none())
        if found is not None:
            return int(found)
        while self.number_events():
            pass  # what happened before the target was made is not news
        return self._database.write(work)

    def alarms(self, target: str) -> list[Alarm]:
        c = tables.alarms.c
        return self._values(Alarm, select(tables.alarms).where(c.target == plain(target)).order_by(c.subject))

    def add_notices(
        self,
        target: str,
        *,
        after: int,
        upto: int,
        notices: Sequence[Notice] = (),
        alarms: Sequence[Alarm] = (),
        cleared: Sequence[str] = (),
    ) -> bool:
        clock, c = self._database.clock, tables.targets.c
        move = (
            update(tables.targets)
            .where(c.name == plain(target), c.position == after)
            .values(position=upto, seen_at=clock)
        )

        def work(connection: Connection) -> bool:
            if connection.execute(move).rowcount != 1:
                return False
            _clear(connection, target, [*cleared, *(alarm.subject for alarm in alarms)])
            for alarm in alarms:
                raised = columns(alarm) | {"target": plain(target), "made_at": clock}
                connection.execute(insert(tables.alarms).values(raised))
            known = _known(connection, tables.notices.c.id, [notice.id for notice in notices])
            for notice in notices:
                if notice.id not in known:
                    made = columns(notice) | {"target": plain(target), "made_at": clock}
                    connection.execute(insert(tables.notices).values(made))
            return True

        # If we die here, the target is told all of it or knows the feed no further than before.
        return self._database.write(work)

    def claim_notices(self, target: str, *, limit: int, lease_seconds: float) -> list[Notice]:
        c = tables.notices.c
        waiting = (c.target == plain(target)) & c.ended_at.is_(None)
        return [
            rows.value(Notice, row)
            for row in self._claim_rows(c.seq, waiting, c.not_before, limit, lease_seconds)
        ]

    def record_notices(
        self, ids: Sequence[str], error: str = "", *, retry_seconds: float = 0.0, ends: bool = True
    ) -> None:
        clock, c = self._database.clock, tables.notices.c
        later = None if ends else clock + seconds_to_us(retry_seconds)
        made = {"attempts": c.attempts + 1, "error": plain(error), "not_before": later}

        def work(connection: Connection) -> None:
            for some in chunks([plain(id) for id in ids]):
                waiting = c.id.in_(some) & c.ended_at.is_(None)
                ended = {"ended_at": clock} if ends else {}
                connection.execute(update(tables.notices).where(waiting).values(made | ended))

        # If we die here, they were sent and are sent again, with the same ids.
        self._database.write(work)

    def given_up(self, limit: int) -> list[Notice]:
        c = tables.notices.c
        ended = c.ended_at.is_not(None) & (c.error != "")
        statement = select(tables.notices).where(ended).order_by(c.ended_at.desc(), c.seq.desc())
        return self._values(Notice, statement.limit(limit))

    def put_actions(self, actions: Sequence[Action]) -> list[Action]:
        c = tables.actions.c
        ids = [plain(action.id) for action in actions]

        def work(connection: Connection) -> list[Action]:
            known = _known(connection, c.id, ids)
            for action in actions:
                if plain(action.id) not in known:
                    made = columns(action, "number") | {"made_at": self._database.clock}
                    connection.execute(insert(tables.actions).values(made))
            statement = select(tables.actions).where(c.id.in_(ids)).order_by(c.number)
            return [rows.value(Action, row) for row in connection.execute(statement).mappings()]

        # If we die here, all were accepted or none; put again, what is there stays as it is.
        return self._database.write(work)

    def claim_actions(self, *, limit: int, lease_seconds: float, ids: Sequence[str] = ()) -> list[Action]:
        c = tables.actions.c
        waiting = c.done_at.is_(None) & (c.id.in_([plain(id) for id in ids]) if ids else true())
        return [
            rows.value(Action, row)
            for row in self._claim_rows(c.number, waiting, c.claimed_until, limit, lease_seconds)
        ]

    def hold_actions(self, ids: Sequence[str], lease_seconds: float) -> None:
        c = tables.actions.c
        until = self._database.clock + seconds_to_us(lease_seconds)
        held = update(tables.actions).where(c.id.in_([plain(id) for id in ids]), c.done_at.is_(None))
        self._database.write(lambda connection: connection.execute(held.values(claimed_until=until)))

    def record_action(self, id: str, processes: Sequence[ProcessId] = (), error: str = "") -> None:
        c = tables.actions.c
        done = {
            "done_at": self._database.clock,
            "claimed_until": None,
            "processes": json.dumps(processes),
            "error": plain(error),
        }

        def work(connection: Connection) -> None:
            connection.execute(
                update(tables.actions).where(c.id == plain(id), c.done_at.is_(None)).values(done)
            )
            if not connection.execute(select(c.number).where(c.id == plain(id))).first():
                raise no_such_action(id)

        self._database.write(work)

    def actions(self, query: ActionQuery) -> list[Action]:
        c = tables.actions.c
        statement = select(tables.actions).order_by(c.number.desc()).limit(query.limit)
        if query.ids:
            statement = statement.where(c.id.in_([plain(id) for id in query.ids]))
        if query.before is not None:
            statement = statement.where(c.number < query.before)
        return self._values(Action, statement)

    def _claim_rows(
        self,
        key: Column[int],
        waiting: ColumnElement[bool],
        until: Column[int],
        limit: int,
        lease_seconds: float,
    ) -> list[Row]:
        """Oldest first; what a rival is just claiming is passed over."""
        clock = self._database.clock
        due = select(key).where(waiting, or_(until.is_(None), until <= clock)).order_by(key).limit(limit)
        if not self._database.read(lambda connection: connection.execute(due).first()):
            return []
        hide = (
            update(key.table)
            .where(key.in_(due.with_for_update(skip_locked=True)))
            .values({until: clock + seconds_to_us(lease_seconds)})
            .returning(key.table)
        )
        # If we die here, they show up again once they are no longer hidden.
        found = self._database.write(lambda connection: connection.execute(hide).mappings().all())
        return sorted(found, key=lambda row: int(row[key.name]))


def _clear(connection: Connection, target: str, subjects: Sequence[str]) -> None:
    c = tables.alarms.c
    for some in chunks([plain(subject) for subject in subjects]):
        connection.execute(delete(tables.alarms).where(c.target == plain(target), c.subject.in_(some)))


def _known(connection: Connection, column: Column[str], ids: Sequence[str]) -> set[str]:
    return {
        found
        for some in chunks([plain(id) for id in ids])
        for found in connection.execute(select(column).where(column.in_(some))).scalars()
    }
